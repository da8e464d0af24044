"""The points and the line of the chart of acceptance against cost."""

from __future__ import annotations

import pytest
from judged import drafting, loop, plain, trial

from specdec.closed_forms import expected_speedup
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.summary import summarise
from specdec.report.cost_map import FREE, break_even, measured_growth, point, points

FAST, SLOW = LaneConfig("speculative", 4), LaneConfig("speculative", 8)


def test_a_point_a_category_at_the_best_length_over_all_prompts() -> None:
    """Each category is a point at the overall best length. Its c is in target passes over one token, as in our loop."""
    found = []
    for category, kept in (("a", (4,)), ("b", (4, 1))):
        runs = [(BASELINE, plain(1.0)), (LOOP, loop(1.0)), (FAST, drafting(4, kept, 0.09, 1.8))]
        runs += [(SLOW, drafting(8, kept, 0.09, 1.8, 5.0))]
        found += [trial(0, config, events, category, category) for config, events in runs]
    one, other = points(found, one_pass=False)
    assert (one.label, other.label) == ("a", "b") and one.lane_config == other.lane_config == FAST
    assert one.c == pytest.approx(0.1) == other.c and one.alpha == 1 and other.alpha == pytest.approx(5 / 6, abs=0.02)
    assert one.speculation > other.speculation > 1
    assert measured_growth(found) == pytest.approx({4: 2.0, 8: 2.0}, abs=0.05)


def test_without_our_loop_there_is_no_point() -> None:
    """Without our loop there is no point, because a cost in tokens of plain generate is another figure."""
    found = [trial(0, BASELINE, plain(1.0)), trial(0, FAST, drafting(4, (4,), 0.09, 1.8))]
    assert points(found, one_pass=False) == [] and measured_growth(found) == {}
    assert points([], one_pass=False) == [] and measured_growth([]) == {}


def test_a_block_drafter_is_where_its_whole_pass_is() -> None:
    """At gamma 4 and at 8 it is in one column: c is the time of a draft. That of lookup is the time of a guess."""
    lanes = {gamma: drafting(gamma, (3,), 0.4 / gamma, 1.0) for gamma in (4, 8)}
    lookup = LaneConfig("prompt-lookup", 4)
    runs = [(BASELINE, plain(1.0)), (LOOP, loop(1.0)), (lookup, lanes[4])]
    runs += [(LaneConfig("speculative", gamma), events) for gamma, events in lanes.items()]
    places = {
        s.lane_config: point("a", s, one_pass=True) for s in summarise([trial(0, *run) for run in runs]) if s.gamma
    }
    found = {config.gamma: places[config] for config in (FAST, SLOW)}
    # Of a pass of 0.4 s, in passes of 0.9 s; the last drafts are shorter here, and take less.
    assert all(each.one_pass and each.c == pytest.approx(0.4 / 0.9, rel=0.07) for each in found.values())
    assert not places[lookup].one_pass and places[lookup].c == pytest.approx(0.1 / 0.9)


@pytest.mark.parametrize("one_pass", [False, True])
@pytest.mark.parametrize("growth", [FREE, dict.fromkeys(FREE, 1.4), {2: 1.1, 4: 1.2, 8: 2.5}])
def test_on_the_line_the_best_length_gains_nothing(growth: dict[int, float], one_pass: bool) -> None:
    line = break_even(growth, 0.5, one_pass)
    assert line[0][0] == 0 and line[-1][0] == 0.5
    for c, alpha in line[1:]:
        gains = [expected_speedup(alpha, g, c, v, one_pass) for g, v in growth.items()]
        assert max(gains) == pytest.approx(1, abs=1e-6)
    assert one_pass or break_even(growth, 3.0)[-1][0] <= 1, "beyond it no draft length pays"
    assert break_even({1: 2.1}, 0.5, one_pass) == [], "a check that costs more than it can yield"
