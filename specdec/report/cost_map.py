"""The map of acceptance against the cost of a draft pass: measured points, and the line where speculation breaks even.

The line is Theorem 3.8 of Leviathan et al. at the draft length that gains most. Above it speculation pays. That of a
block drafter, whose drafts take one pass at any length, is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.closed_forms import least_alpha
from specdec.events import MAX_GAMMA
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, best_lengths, find, summarise
from specdec.report.judge import LOSING, NOISE, judge

STEPS = 60  # parts of the line
FREE = dict.fromkeys(range(1, MAX_GAMMA + 1), 1.0)  # the v of the papers: checking more tokens takes no longer


@dataclass(frozen=True)
class Point:
    """A lane on some prompts: measured cost coefficient, acceptance rate, and gain over our loop without a draft.

    ``one_pass``: a draft takes one pass, whatever its length.
    ``loses``: speculation is clearly slower than that loop. A tie is not.
    """

    label: str
    lane_config: LaneConfig
    c: float
    alpha: float
    speculation: float
    one_pass: bool = False
    loses: bool = False


def point(label: str, summary: Summary, one_pass: bool) -> Point | None:
    """The place of a lane on the map; None if its costs were not measured in target passes.

    ``one_pass``: a draft of the pair takes one pass. Other lanes than ours draft in their own ways.
    """
    one_pass = one_pass and summary.lane == LOOP.lane
    found = judge(summary.sides, summary.gamma, one_pass=one_pass)
    if found.c is None or found.alpha is None or found.speculation is None:
        return None
    loses = found.kind in LOSING or (found.kind in NOISE and found.lost)
    return Point(label, summary.lane_config, found.c, found.alpha, found.speculation, one_pass, loses)


def points(trials: Sequence[Trial], one_pass: bool) -> list[Point]:
    """A point for each category and lane, each lane at its best draft length over all prompts."""
    lanes = [s.lane_config for s in best_lengths(summarise(trials)) if s.lane_config != LOOP]
    found = []
    for category in dict.fromkeys(trial.category for trial in trials):
        summaries = summarise([trial for trial in trials if trial.category == category])
        here = [summary for config in lanes if (summary := find(summaries, config)) and summary.gains]
        found += [point(category, summary, one_pass) for summary in here]
    return [each for each in found if each]


def measured_growth(trials: Sequence[Trial]) -> dict[int, float]:
    """The v of each fixed draft length of ours above 0, over all prompts; empty if none was measured."""
    ours = [s for s in summarise(trials) if s.lane == LOOP.lane and isinstance(s.gamma, int) and s.gamma]
    found = {s.gamma: judge(s.sides, s.gamma).v for s in ours}
    return {gamma: v for gamma, v in found.items() if isinstance(gamma, int) and v is not None}


def line_growth(growth: Mapping[int, float]) -> Mapping[int, float]:
    """The v of each draft length that the line takes: the measured ``growth``, or that of the papers.

    It is the papers' where no measured v is larger than 1, and where with the measured ones no length could pay.
    """
    larger = any(round(v, 2) > 1 for v in growth.values())
    return growth if larger and least_alpha(0.0, growth) is not None else FREE


def break_even(growth: Mapping[int, float], most: float, one_pass: bool = False) -> list[tuple[float, float]]:
    """The line: acceptance rates over cost coefficients from 0 to ``most``. It ends where no draft length pays.

    ``growth`` has the v of each draft length that counts.
    """
    line = [(c, least_alpha(c, growth, one_pass)) for c in (most * step / STEPS for step in range(STEPS + 1))]
    return [(c, alpha) for c, alpha in line if alpha is not None]
