"""The points and the line of the chart of acceptance against cost."""

from __future__ import annotations

import pytest
from judged import drafting, loop, plain, trial

from specdec.closed_forms import expected_speedup
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.report.cost_map import break_even, measured_growth, points

FAST, SLOW = LaneConfig("speculative", 4), LaneConfig("speculative", 8)


def test_a_point_a_category_at_the_best_length_over_all_prompts() -> None:
    """Each category is a point at the overall best length. Its c is in target passes over one token, as in our loop."""
    found = []
    for category, kept in (("a", (4,)), ("b", (4, 1))):
        runs = [(BASELINE, plain(1.0)), (LOOP, loop(1.0)), (FAST, drafting(4, kept, 0.09, 1.8))]
        runs += [(SLOW, drafting(8, kept, 0.09, 1.8, 5.0))]
        found += [trial(0, config, events, category, category) for config, events in runs]
    one, other = points(found)
    assert (one.label, other.label) == ("a", "b") and one.lane_config == other.lane_config == FAST
    assert one.c == pytest.approx(0.1) == other.c and one.alpha == 1 and other.alpha == pytest.approx(5 / 6, abs=0.02)
    assert one.speculation > other.speculation > 1
    assert measured_growth(found) == pytest.approx(2.0, abs=0.05)


def test_without_our_loop_there_is_no_point() -> None:
    """Without our loop there is no point, because a cost in tokens of plain generate is another figure."""
    found = [trial(0, BASELINE, plain(1.0)), trial(0, FAST, drafting(4, (4,), 0.09, 1.8))]
    assert points(found) == [] and measured_growth(found) is None
    assert points([]) == [] and measured_growth([]) is None


@pytest.mark.parametrize("v", [1.0, 1.4])
def test_on_the_line_the_best_length_gains_nothing(v: float) -> None:
    line = break_even(v, 0.5)
    assert line[0][0] == 0 and line[-1][0] == 0.5
    for c, alpha in line[1:]:
        assert max(expected_speedup(alpha, g, c, v) for g in range(1, 17)) == pytest.approx(1, abs=1e-6)
    assert break_even(v, 3.0)[-1][0] <= 1, "beyond it no draft length pays"
