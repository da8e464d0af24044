"""The table of lanes: the name, the look, the needs and the start of each.

To add a lane, add one row to ``LANES``: the race, the benchmark, the command line and the page go through the table.
This module loads without torch, because reports take their labels from it. The functions that start a lane import the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from specdec.engine.policy import Fixed, Policy, policy_of
from specdec.errors import BadSetting, InvalidInput, quoted

if TYPE_CHECKING:
    from specdec.engine.acceptance import Acceptance
    from specdec.engine.request import Request
    from specdec.events import Event
    from specdec.models.pair import Pair

_Lane = TypeVar("_Lane")  # a config, or the key of one
FREE_DRAFT = "free-draft"  # the lane whose draft does not obey the call's grammar
ENGINE = "engine"  # the draft length of a server that does not tell it; also the acceptance rule of a server's lane


class LaneConfig(NamedTuple):
    """A config: a lane with its draft length. ``gamma`` is None where the lane has no draft length."""

    lane: str
    gamma: int | str | Policy | None = None

    @property
    def row(self) -> Lane:
        """Its row of ``LANES``: the row of this draft length, if there is one, else the row of the lane."""
        rows = [lane for lane in LANES if lane.name == self.lane]
        if not rows:
            raise InvalidInput(
                f"There is no lane {quoted(self.lane)}; choose from {', '.join(lane.key for lane in LANES)}."
            )
        # False equals 0 but is no length: the lane's own row refuses it.
        return next((lane for lane in rows if type(self.gamma) is int and lane.gamma == self.gamma), rows[0])

    @property
    def key(self) -> str:
        """Its row's key."""
        return self.row.key

    @property
    def label(self) -> str:
        """Its name with its draft length, as a person reads it."""
        row = self.row
        untold = row.gamma is not None or self.gamma in (None, ENGINE)
        return row.label if untold else f"{row.label}, \u03b3 {self.gamma}"


@dataclass(frozen=True)
class Lane:
    """One row of the table.

    name      the name in events and results
    label     its name on the page, in tables and at the end of its line
    choice    the same in a list to choose from
    start     ``start(request, gamma, acceptance)`` gives the lane's events
    lengths   which draft lengths it takes: "none", "fixed" (1 to 16) or "any" (0 to 16, "auto" and policies; at 0 it is
              our loop without a draft)
    gamma     the only draft length of this row; None for a row that takes the caller's
    refusal   why it cannot run with a pair, or None
    colour    of its marks in finished charts, a name in ``COLOURS`` of ui/charts/figures.py; a race tells lanes
              apart by dash and sign
    dash      the dashes of its line in the chart of a race
    sign      its mark, at its line's end and in finished charts; where it has none, a star there
    race      part of a race unless somebody chooses otherwise
    bench     part of a benchmark unless somebody chooses otherwise; None where it cannot be part of one
    """

    name: str
    label: str
    choice: str
    start: Callable[[Request, Any, Acceptance], Iterator[Event]]
    lengths: Literal["none", "fixed", "any"] = "any"
    gamma: int | None = None
    refusal: Callable[[Pair], str | None] = lambda pair: None
    colour: str = "grey"
    dash: str = "solid"
    sign: str | None = None
    race: bool = False
    bench: bool | None = False

    @property
    def key(self) -> str:
        """Its name in links, recordings and on the command line; unique among the lanes."""
        return self.name if self.gamma is None else f"{self.name}:{self.gamma}"

    def lane_config(self, gamma: int | str | Policy | None) -> LaneConfig:
        """The config of this row at the caller's draft length ``gamma``."""
        if self.lengths == "none":
            return LaneConfig(self.name)
        return LaneConfig(self.name, gamma if self.gamma is None else self.gamma)


def row_of(key: str) -> Lane:
    """The row with this key. Raises ``InvalidInput`` where there is none."""
    found = next((lane for lane in LANES if lane.key == key), None)
    if found is None:
        raise InvalidInput(f"There is no lane {quoted(key)}; choose from {', '.join(lane.key for lane in LANES)}.")
    return found


def race_configs(keys: Iterable[str], gamma: int | str | Policy) -> dict[str, LaneConfig]:
    """The configs of a race at ``gamma`` by key.

    At gamma 0 every lane that takes it is our loop without a draft. Only the first of them in the table runs. Raises
    ``InvalidInput`` if ``gamma`` is no draft length. ``ENGINE`` is that of a server that does not tell its own.
    """
    at_zero = gamma != ENGINE and policy_of(gamma) == Fixed(0)
    rows = {key: row_of(key) for key in keys}
    loops = [row.key for row in LANES if row.key in rows and (row.gamma == 0 or (at_zero and row.lengths == "any"))]
    return {key: row.lane_config(gamma) for key, row in rows.items() if key not in loops[1:]}


def key_of(lane: str, gamma: int | str, keys: Collection[str]) -> str:
    """The key of the config whose ``Started`` has this ``lane`` and ``gamma``, among the ``keys`` of a race."""
    key = LaneConfig(lane, gamma).key
    return key if key in keys else lane


def require_runs(runs: Any) -> None:
    """Raise ``BadSetting`` unless ``runs`` is a whole number, 1 or more."""
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise BadSetting(f"runs is {runs!r}; give a whole number, 1 or more.")


def turned(lanes: Sequence[_Lane], made: int) -> tuple[_Lane, ...]:
    """The order of the lanes in one more run after ``made`` ones. Another lane is first in each."""
    first = made % len(lanes)
    return (*lanes[first:], *lanes[:first])


def lane_configs(keys: Sequence[str], gammas: Sequence[int | str]) -> tuple[LaneConfig, ...]:
    """The lanes of ``keys``, each with all draft lengths that it can run at.

    Gamma 0 is our own loop without a draft, whichever lane asks for it.
    """
    found: list[LaneConfig] = []
    for row in map(row_of, keys):
        if row.lengths == "none" or row.gamma is not None:
            found.append(row.lane_config(None))
        else:
            found += [
                LaneConfig(row.name, g) for g in gammas if g != 0 and (row.lengths == "any" or isinstance(g, int))
            ]
    return tuple(dict.fromkeys([*found, LOOP] if 0 in gammas else found))


# The functions below import the lanes when they are called, so that reading labels needs no torch.


def _generate(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.lanes.hf_generate import generate_lane

    return generate_lane(request)


def _assisted(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.lanes.hf_generate import assisted_lane

    return assisted_lane(request, gamma)


def _speculative(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.engine.decode import decode

    return decode(request, gamma, acceptance)


def _loop(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.engine.decode import decode

    return decode(request, 0)


def _prompt_lookup(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.drafters.prompt_lookup import PromptLookup
    from specdec.engine.decode import decode

    return decode(request.drafting_with(PromptLookup()), gamma, acceptance)


def _their_lookup(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.drafters.prompt_lookup import PromptLookup
    from specdec.lanes.hf_generate import assisted_lane

    return assisted_lane(request.drafting_with(PromptLookup()), gamma, "transformers-lookup")


def _draft_alone(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.lanes.hf_generate import draft_alone_lane

    return draft_alone_lane(request)


def _cannot_assist(pair: Pair) -> str | None:
    from specdec.lanes.hf_assistants import cannot_assist

    return cannot_assist(pair)


def _no_lookup(pair: Pair) -> str | None:
    from dataclasses import replace

    from specdec.drafters.prompt_lookup import PromptLookup

    return _cannot_assist(replace(pair, draft=PromptLookup(), draft_tokenizer=None))


def _no_draft_alone(pair: Pair) -> str | None:
    from specdec.lanes.hf_generate import cannot_draft_alone

    return cannot_draft_alone(pair)


def _free_draft(request: Request, gamma: Any, acceptance: Acceptance) -> Iterator[Event]:
    from specdec.engine.decode import decode

    if request.params.grammar is None:
        raise BadSetting("The lane free-draft is for calls with a grammar, and this one has none; leave the lane out.")
    return decode(request.with_params(draft_mask=False), gamma, acceptance)


LANES: list[Lane] = [
    Lane(
        "generate", "Plain", "transformers' plain generate", _generate,
        lengths="none", dash="6px,3px", race=True, bench=True,
    ),
    Lane("speculative", "Speculative", "speculative decoding", _speculative, colour="blue", race=True, bench=True),
    Lane(
        "speculative", "Our loop, no draft", "our loop without a draft (\u03b3 0)", _loop,
        gamma=0, sign="square", race=True, bench=True,
    ),
    Lane(
        "assisted", "transformers assisted", "transformers' assisted generation", _assisted,
        lengths="fixed", refusal=_cannot_assist, colour="orange", sign="circle", bench=True,
    ),
    Lane("prompt-lookup", "Prompt lookup", "prompt lookup", _prompt_lookup, colour="teal", sign="triangle-up"),
    Lane(
        "transformers-lookup", "transformers lookup", "transformers' prompt lookup", _their_lookup,
        lengths="fixed", refusal=_no_lookup, colour="orange", sign="triangle-down",
    ),
    Lane(
        "draft-alone", "Draft alone", "the draft alone", _draft_alone,
        lengths="none", refusal=_no_draft_alone, sign="diamond", bench=None,
    ),
    Lane(
        FREE_DRAFT, "Draft without grammar", "speculative decoding whose draft does not obey the grammar", _free_draft,
        colour="blue", sign="cross",
    ),
]  # fmt: skip

BASELINE = LaneConfig("generate")
LOOP = LaneConfig("speculative", 0)
DEFAULT_KEYS = tuple(lane.key for lane in LANES if lane.race)
