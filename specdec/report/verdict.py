"""What is said about a race: one frozen value that the page, the terminal, links, files and programs show.

``race_verdict.race_verdict`` makes it. Its sentences and figures are finished texts. Numbers to compute with are
``gain``, ``engine`` and ``speculation`` here, and the events of the race. A link to a run holds the fields in the order
in which they stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic supports the standard one only from Python 3.12 on

from specdec.events import MAX_GAMMA
from specdec.facts import OPEN
from specdec.measure.lengths import GammaPrediction
from specdec.report.judge import Doubt, Kind, Reason

LEAST_RUNS, MOST_RUNS = 3, 5  # runs of a race, without and with a reason to doubt its figures
RACE_SECONDS = 10.0  # for all runs; a race that would take longer is not repeated, because somebody waits for it
DOUBTED = (Kind.BUSY, Kind.NOISY)
DOUBTS = {Doubt.STALL, Doubt.WIDE_SPREAD, Doubt.FEW_RUNS}

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Gamma: TypeAlias = Annotated[int, Field(ge=0, le=MAX_GAMMA)]


@with_config(OPEN)
class Figure(TypedDict):
    """A figure as the page shows it.

    ``name`` is its key in ``definitions.DEFINITIONS``, if it stands there. ``label`` is what it is called; without one
    it is called as there.
    """

    value: str
    name: NotRequired[str]
    label: NotRequired[str]


@with_config(OPEN)
class Table(TypedDict):
    columns: Annotated[list[str], Field(max_length=20)]
    rows: Annotated[list[Annotated[list[str], Field(max_length=20)]], Field(max_length=20)]


@with_config(OPEN)
class Why(TypedDict):
    """``causes``: what limits the lane, each with one thing to do (``specdec.report.doctor``)."""

    title: str
    text: str
    figures: Annotated[list[Figure], Field(max_length=20)]
    steps: Annotated[list[tuple[str, float]], Field(max_length=20)]
    causes: NotRequired[Annotated[list[str], Field(max_length=20)]]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence below the headline.

    ``kind`` is a ``Doubt``; or "reason" (why speculation loses), "shares" (of our loop and of speculation), "stopped",
    "texts" (how the two compare), "grammar", "repetition", "lengths" (which a policy chose),
    "synthetic" (random weights) or "float32"; of a sweep or a
    benchmark also "alike", "terms" or "calls"; of a computed draft length "fastest", "measured", "assumed" or
    "estimated".
    """

    kind: str
    text: str
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaRecord(GammaPrediction):
    """A lane at one draft length, and its texts."""

    gamma: Gamma
    sentence: str
    factor: str
    faster: bool
    figures: Annotated[list[Figure], Field(max_length=8)]
    notes: Annotated[list[Note], Field(max_length=8)]
    __pydantic_config__ = STRICT


@with_config(OPEN)
class WhatIf(TypedDict):
    """A lane at all draft lengths (``GammaPredictions``). ``notes`` apply to all of them."""

    hits: list[Gamma]
    wrong: list[int | None]
    lengths: Annotated[list[GammaRecord], Field(min_length=MAX_GAMMA + 1, max_length=MAX_GAMMA + 1)]
    costs: Annotated[list[tuple[float, float, float]], Field(min_length=MAX_GAMMA + 1, max_length=MAX_GAMMA + 1)]
    best: Gamma
    exact: bool
    origin: str
    notes: Annotated[list[Note], Field(max_length=8)]


@with_config(OPEN)
class LaneEnd(TypedDict):
    """The label at the end of a lane's line; also a part of the verdict."""

    event: Literal["lane_end"]
    lane: str
    name: str
    duration: str
    spoken: NotRequired[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on a race. What is not known is None.

    kind         the kind of outcome, such as "faster", "slower", "unclear" or "busy" (``specdec.report.judge.Kind``);
                 ``reason`` says why speculation loses, ``doubts`` what makes the figures uncertain
    sentence     the headline
    factor       the large figure beside it: the speed-up over plain ``generate``, such as "2.1x"
    about        whether the factor is uncertain because of other programs or chance; it is shown as "about 2.1x"
    faster       whether the lane is faster than plain ``generate``
    gain         factor: plain ``generate`` / this lane, seconds a token
    engine       factor: plain ``generate`` / our loop without a draft, seconds a token
    speculation  factor: our loop without a draft / this lane, seconds a token
    notes        the sentences below the headline; of several, all but the first are folded
    caption      the settings in a few words, without the prompt
    stopped      whether somebody or a limit ended the race early
    runs         how many runs the figures are of; ``shown`` is the index of the run whose figures and text are shown
    same         whether both lanes wrote the same tokens in the shown run
    figures      up to four figures beside the headline, each a dict: ``value``, its ``name`` in docs/metrics.md, and
                 ``label`` if it is called otherwise
    rates        tokens/s of each lane of the shown run, by the lane's key
    lanes        a table, as ``columns`` and ``rows``: a row for each lane; ``places`` has one for each place of a
                 draft, ``passes`` one for each number of tokens that a target pass wrote, ``checks`` one for each
                 number of rows of a target pass, with v there
    details      the other figures of the shown run, and what was measured with which settings
    time         how the lane's time was spent
    why          the explanation: a title, a paragraph, its figures and the steps
    whatif       the lane at all draft lengths; ``whatif_refused`` says why that is not known
    warning      a sentence if the acceptance is lossy
    end          the label at the end of a stopped lane's line
    saved        the seconds between both lanes' ends
    chart        a description of the chart for screen readers
    """

    kind: Kind
    sentence: str
    notes: Annotated[tuple[Note, ...], Field(max_length=100)]
    stopped: bool
    reason: Reason | None = None
    doubts: Annotated[tuple[Doubt, ...], Field(max_length=8)] = ()
    factor: str | None = None
    about: bool = False
    faster: bool = False
    gain: float | None = None
    engine: float | None = None
    speculation: float | None = None
    caption: str | None = None
    runs: int | None = None
    shown: Annotated[int, Field(ge=0)] | None = None
    same: bool | None = None
    figures: Annotated[list[Figure], Field(max_length=8)] | None = None
    rates: dict[str, str] | None = None
    lanes: Table | None = None
    places: Table | None = None
    passes: Table | None = None
    details: Annotated[list[Figure], Field(max_length=100)] | None = None
    time: str | None = None
    why: Why | None = None
    whatif: WhatIf | None = None
    whatif_refused: str | None = None
    warning: str | None = None
    end: LaneEnd | None = None
    saved: str | None = None
    chart: str | None = None
    checks: Table | None = None

    @property
    def below(self) -> list[str]:
        """What stands below the sentence: the warning, if there is one, and the notes."""
        return [*filter(None, [self.warning]), *(note.text for note in self.notes)]

    def __str__(self) -> str:
        """The sentence, the warning and the notes, a line each."""
        return "\n".join([self.sentence, *self.below])


def another_run(verdict: Verdict, seconds: float) -> bool:
    """Whether a race runs once more before its verdict is shown.

    Short races vary, and a busy machine may become quiet. The runs so far took ``seconds`` and have this ``verdict``.
    """
    runs = verdict.runs
    if not runs:  # nothing can be compared, and another run would not change that
        return False
    doubted = verdict.kind in DOUBTED or not DOUBTS.isdisjoint(verdict.doubts)
    return runs < (MOST_RUNS if doubted else LEAST_RUNS) and seconds * (runs + 1) / runs <= RACE_SECONDS
