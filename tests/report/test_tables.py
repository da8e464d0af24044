"""Acceptance by position and tokens a pass, compared with counts by hand."""

from __future__ import annotations

from dataclasses import replace

import specdec
from specdec.lanes.table import LaneConfig
from specdec.measure import metrics
from specdec.measure.costs import RowCost
from specdec.report.definitions import DEFINITIONS
from specdec.report.tables import EXPECTED, by_place, checks_table, passes_table, places_table


def lane_of(*drafts: str) -> metrics.Metrics:
    """A lane whose rounds have these guesses: "a" accepted, "r" rejected, "d" discarded."""
    names = {"a": "accepted", "r": "rejected", "d": "discarded"}
    rounds = [specdec.Round(0, (), 1, "target", (1,), 0.0, 1.0, 1.0)]
    for at, draft in enumerate(drafts, start=1):
        tokens = tuple(specdec.DraftToken(7, names[s], None, None, None, None, None, None) for s in draft)
        kept = draft.count("a")
        ids = (7,) * kept + (1,)
        rounds.append(specdec.Round(at, tokens, 1, "correction", ids, 0.1, 1.0, 1.0 + at))
    return metrics.compute_metrics(rounds)


def test_places_and_passes() -> None:
    """Three drafts of three: all kept, one kept, none kept."""
    lane = lane_of("aaa", "ard", "rdd")
    assert (lane.tested_at, lane.kept_at) == ((3, 2, 1), (2, 1, 1))
    rows = places_table(lane, 1)["rows"]
    assert [row[:2] for row in rows] == [["guess 1", "3"], ["guess 2", "2"], ["guess 3", "1"]]
    assert [row[2].split()[0] for row in rows] == ["67", "50", "100"]  # of those tested
    assert [row[3].split()[0] for row in rows] == ["67", "33", "33"]  # of all drafts
    passes = passes_table(lane, 1)["rows"]
    assert [row[:2] for row in passes] == [["1 token", "1"], ["2 tokens", "1"], ["4 tokens", "1"]]


def test_a_sampled_lane_tells_what_was_to_be_expected() -> None:
    lane = replace(lane_of("aaa", "ard", "rdd"), overlap_at=(2.1, 1.0, 0.5))
    found = places_table(lane, 1)
    assert found["columns"][3] == EXPECTED in DEFINITIONS
    assert [row[3].split()[0] for row in found["rows"]] == ["70", "50", "50"]
    assert abs(lane.overlap - 3.6 / 6) < 1e-9
    assert metrics.pool([lane, lane]).overlap_at == (4.2, 2.0, 1.0)
    assert metrics.pool([lane, lane_of("aaa")]).overlap_at == ()  # it is unknown for one of them


def test_runs_are_added_place_by_place() -> None:
    pooled = metrics.pool([lane_of("aa"), lane_of("rdd", "aaa")])
    assert (pooled.tested_at, pooled.kept_at) == ((3, 2, 1), (2, 2, 1))
    assert sum(pooled.passes_of) == 3


def test_v_stands_at_each_number_of_rows_that_was_measured() -> None:
    """In passes over one row. Without such a pass there is no v, and with no other it is 1."""
    one, six, nine = RowCost(1, 40, 0.002), RowCost(6, 12, 0.0026), RowCost(9, 3, 0.004)
    found = checks_table([one, six, nine])
    assert found["columns"][-1] == DEFINITIONS["verify growth"].name
    assert found["rows"] == [
        ["1 row", "40", "2.00", "1.00"], ["6 rows", "12", "2.60", "1.30"], ["9 rows", "3", "4.00", "2.00"],
    ]  # fmt: skip
    assert checks_table([six, nine]) is None and checks_table([one]) is None and checks_table([]) is None
    many = checks_table([RowCost(rows, 2, 0.1) for rows in range(1, 40)])
    assert len(many["rows"]) == 17, "as many as a recording may have"


def test_a_lane_without_guesses_has_no_table() -> None:
    plain = lane_of("", "")
    assert places_table(plain, 1) is None and passes_table(plain, 1)["rows"][0][:2] == ["1 token", "2"]
    assert by_place([(LaneConfig("speculative", 0), plain)]) is None


def test_lanes_side_by_side() -> None:
    lanes = [(LaneConfig("speculative", 3), lane_of("aaa")), (LaneConfig("speculative", 2), lane_of("rd"))]
    found = by_place(lanes)
    assert found.columns[2:] == ["guess 1", "guess 2", "guess 3"]
    assert [len(row) for row in found.rows] == [5, 5] and found.rows[1][3:] == ["", ""]
