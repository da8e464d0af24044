"""The map of acceptance against the cost of a draft pass: measured points, and the line where speculation breaks even.

The line is Theorem 3.8 of Leviathan et al. at the draft length that gains most. Above it speculation pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.closed_forms import least_alpha
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, best_lengths, fastest, find, summarise
from specdec.report.judge import judge

STEPS = 60  # parts of the line


@dataclass(frozen=True)
class Point:
    """A lane on some prompts: measured cost coefficient, acceptance rate, and gain over our loop without a draft."""

    label: str
    lane_config: LaneConfig
    c: float
    alpha: float
    speculation: float


def point(label: str, summary: Summary) -> Point | None:
    """The place of a lane on the map; None if its costs were not measured in target passes."""
    found = judge(summary.sides, summary.gamma)
    if found.c is None or found.alpha is None or found.speculation is None:
        return None
    return Point(label, summary.lane_config, found.c, found.alpha, found.speculation)


def points(trials: Sequence[Trial]) -> list[Point]:
    """A point for each category and lane, each lane at its best draft length over all prompts."""
    lanes = [s.lane_config for s in best_lengths(summarise(trials)) if s.lane_config != LOOP]
    found = []
    for category in dict.fromkeys(trial.category for trial in trials):
        summaries = summarise([trial for trial in trials if trial.category == category])
        here = [summary for config in lanes if (summary := find(summaries, config)) and summary.gains]
        found += [point(category, summary) for summary in here]
    return [each for each in found if each]


def measured_growth(trials: Sequence[Trial]) -> float | None:
    """The v of our fastest draft length, over all prompts; None if it was not measured."""
    best = fastest([s for s in summarise(trials) if s.lane_config != LOOP])
    return judge(best.sides, best.gamma).v if best else None


def break_even(v: float, most: float) -> list[tuple[float, float]]:
    """The line: acceptance rates over cost coefficients from 0 to ``most``. It ends where no draft length pays."""
    line = [(c, least_alpha(c, v)) for c in (most * step / STEPS for step in range(STEPS + 1))]
    return [(c, alpha) for c, alpha in line if alpha is not None]
