"""Results of several pairs, machines and settings in one table."""

from __future__ import annotations

import copy

import pytest
from judged import PAIR, drafting, loop, plain, trial

import specdec
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.plan import Plan
from specdec.measure.prompts import Choice, PromptItem
from specdec.measure.results.format import Results
from specdec.report.compare import COLUMNS, compare_results, comparison_cells, records

FAST, SLOW, LOOKUP = LaneConfig("speculative", 4), LaneConfig("speculative", 8), LaneConfig("prompt-lookup", 4)
ABOUT = {
    "version": 4, "at": 0.0, "pair": PAIR, "machine": {"cpu": "A CPU", "cores": 2, "threads": 1, "device": "cpu"},
    "versions": {"specdec": "1", "torch": "2"},
}  # fmt: skip


def results(
    prompts: tuple[str, ...] = ("a",), tokens: int = 64, temperature: float = 0.0, runs: int = 1, **about
) -> Results:
    ran = {
        BASELINE: plain(2.0), LOOP: loop(1.0), FAST: drafting(4, (4,), 0.09, 1.0), SLOW: drafting(8, (4,), 0.2, 2.0),
        LOOKUP: drafting(4, (1,), 0.001, 1.0),
    }  # fmt: skip
    items = tuple(PromptItem(name, "c", name) for name in prompts)
    params = specdec.SamplingParams(tokens, temperature=temperature, seed=0)
    asked = Plan(items, tuple(ran), params, runs, Choice("a set"))
    found = [trial(0, config, events, name) for name in prompts for config, events in ran.items()]
    return Results(ABOUT | about, asked, found)


def test_a_row_a_lane_at_its_best_length_plain_first() -> None:
    found = compare_results([results()])
    assert [row.summary.lane_config for row in found.rows] == [BASELINE, LOOP, FAST, LOOKUP]
    assert found.sentence == "" and {row.differs for row in found.rows} == {""}
    first, told = (dict(zip(COLUMNS, comparison_cells(found.rows[at]), strict=True)) for at in (0, 2))
    assert told["Pair"] == told["Machine"] == "", "said once"
    assert told["File"] == "1" and told["Lane"] == "Speculative, \u03b3 4" and told["acceptance"] == "100\u00a0%"
    assert "target (2 layers)" in first["Pair"] and first["Machine"].startswith("A CPU \u00b7 2 cores, 1 thread used")
    assert told["speed-up"] == comparison_cells(found.rows[2])[4] != "1" == comparison_cells(found.rows[0])[4]


def test_the_speeds_of_a_file_are_those_of_their_rows_run() -> None:
    first = results(runs=2)
    more = {BASELINE: plain(1.0), FAST: drafting(4, (4,), 0.09, 1.0)}
    trials = [one for one in first.trials if one.lane_config in more]
    trials += [trial(1, config, events) for config, events in more.items()]
    compared = compare_results([Results(first.about, first.plan, trials)])
    before, ours = records(compared, ["x"])
    assert ours["tokens_per_second"] / ours["plain_tokens_per_second"] == pytest.approx(ours["speedup"])
    assert comparison_cells(compared.rows[0])[5] == "0.5\u20131.0" and before["tokens_per_second"] is None


def test_other_pairs_and_machines_compare_one_to_one() -> None:
    pair = copy.deepcopy(PAIR)
    pair["target"]["layers"] = 40
    other = results(pair=pair, machine={"cpu": "x", "gpu": "A GPU", "cores": 8, "threads": 7, "device": "cuda:0"})
    found = compare_results([results(), other])
    assert found.sentence.startswith("All files have the same prompts")
    assert [row.file for row in found.rows] == [1] * 4 + [2] * 4
    assert "40 layers" in found.rows[4].pair and "A GPU" in found.rows[4].machine and not found.rows[4].differs


@pytest.mark.parametrize(
    ("change", "named", "told"),
    [
        ({"tokens": 128}, "new tokens", ("64 new tokens", "128 new tokens")),
        ({"temperature": 0.7}, "temperature", ("temperature 0", "temperature 0.7")),
        ({"prompts": ("a", "b")}, "prompts", ("1 prompt of a set", "2 prompts of a set")),
        ({"prompts": ("b",)}, "prompts", ("1 prompt of a set", "1 prompt of a set")),
        ({"tokens": 128, "temperature": 0.7}, "new tokens and temperature", ("64 new", "0.7")),
    ],
)
def test_where_the_work_differs_the_rows_do_not_compare(change: dict, named: str, told: tuple[str, str]) -> None:
    found = compare_results([results(), results(**change)])
    assert found.sentence == f"These rows cannot be compared directly: they differ in {named}."
    assert told[0] in found.rows[0].differs and told[1] in found.rows[4].differs


def test_runs_and_versions_that_differ_are_named_only() -> None:
    """Different runs and versions are named only, as people may want to compare versions."""
    found = compare_results([results(), results(runs=3, versions={"specdec": "1", "torch": "3"})])
    assert found.sentence.startswith("All files")
    assert found.rows[0].differs == "1 run, torch 2"
    assert found.rows[4].differs == "3 runs, torch 3, 5 of 15 calls", "and how much of it was measured"


def test_the_points_of_all_files_have_the_numbers_of_their_rows() -> None:
    found = compare_results([results(), results()]).points
    assert [(point.label, point.lane_config) for point in found] == [
        ("1", FAST), ("1", LOOKUP), ("2", FAST), ("2", LOOKUP),
    ]  # fmt: skip


def test_files_that_differ_in_temperature_alone_are_ordered_by_it() -> None:
    """Files that differ in temperature alone give the chart over temperature. Other differences give no chart."""
    found = compare_results([results(temperature=0.7), results(), results(temperature=1.2)]).by_temperature
    assert [(at, summary.lane_config) for at, summary in found] == [
        (at, config) for at in (0.0, 0.7, 1.2) for config in (FAST, LOOKUP)
    ]
    pair = copy.deepcopy(PAIR)
    pair["target"]["layers"] = 40
    for other in ({"temperature": 0.0}, {"temperature": 0.7, "tokens": 128}, {"temperature": 0.7, "pair": pair}):
        assert compare_results([results(), results(**other)]).by_temperature == []


def test_results_without_plain_generate_have_no_speed_up_to_compare() -> None:
    """Results that were stopped before plain ran have rates only, and no row is invented for them."""
    bare = results()
    found = compare_results([Results(bare.about, bare.plan, [t for t in bare.trials if t.lane_config != BASELINE])])
    assert found.rows == [] and found.points == [] and found.sentence.startswith("There is nothing to compare")
