"""Servers under load: what is measured, and what is said of it."""

from __future__ import annotations

import pytest
from servers.table_server import Table, TableServer, serving

from specdec.cli import load as command
from specdec.cli.parsers import parser_of
from specdec.errors import InvalidInput
from specdec.events import SamplingParams
from specdec.report.load import load_rows, load_table, load_verdict
from specdec.servers.answer import Asked, Counts
from specdec.servers.lane import connect
from specdec.servers.load import CALLS_EACH, LoadRun, levels_to, under_load


def run(server: str, at_once: int, number: int, rate: float) -> LoadRun:
    return LoadRun(server, at_once, number, round(100 * rate), 100.0, (0.01, 0.02), (0.1,), Counts(10, 50, 40))


def measured(rates: dict[str, dict[int, float]]) -> list[LoadRun]:
    """Three runs of each server at each level, a percent apart."""
    return [
        run(server, level, number, rate * (1 + number / 100))
        for server, levels in rates.items()
        for level, rate in levels.items()
        for number in range(3)
    ]


def test_the_largest_load_at_which_speculation_pays_is_named() -> None:
    runs = measured({"plain": {1: 50, 2: 90, 4: 160}, "spec": {1: 100, 2: 120, 4: 100}})
    rows = load_rows(runs, "plain")
    said = load_verdict(rows, {"plain": 0, "spec": 5})
    assert said[0] == "spec pays up to 2 at once."
    assert said[1] == 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 3, 5], [4, 4, 0]]'
    table = load_table(rows, "plain")
    assert [row[:2] for row in table.rows] == [(str(n), name) for name in ("plain", "spec") for n in (1, 2, 4)]
    assert table.rows[3][3].startswith("2.00x") and table.rows[3][7] == "80\u00a0%"


def test_servers_with_other_numbers_of_guesses_are_chosen_by_load() -> None:
    runs = measured({"plain": {1: 50, 8: 200}, "k5": {1: 120, 8: 220}, "k2": {1: 90, 8: 260}})
    said = load_verdict(load_rows(runs, "plain"), {"plain": 0, "k5": 5, "k2": 2})
    assert "k5 pays at every load that was measured, up to 8 at once." in said
    assert 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 8, 2]]' in said


def test_a_load_without_clear_difference_is_said() -> None:
    unclear = [run("spec", 2, number, rate) for number, rate in enumerate((80.0, 91.0, 105.0))]
    runs = [*measured({"plain": {1: 50, 2: 90}, "spec": {1: 100}}), *unclear]
    said = load_verdict(load_rows(runs, "plain"), {"plain": 0, "spec": None})
    assert said == ["spec pays up to 1 at once.", "spec: no clear difference at 2 at once."]
    said = load_verdict(load_rows(runs, "plain"), {"plain": 0, "spec": 5})
    assert 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 1, 5], [2, 2, 0]]' in said
    nothing = measured({"plain": {1: 50}, "spec": {1: 25}})
    assert load_verdict(load_rows(nothing, "plain"), {}) == ["spec does not pay at any load that was measured."]


def test_a_load_that_pays_behind_one_that_does_not_is_named_alone() -> None:
    rates = measured({"plain": {1: 50, 2: 90, 4: 160}, "spec": {1: 40, 2: 180, 4: 320}})
    said = load_verdict(load_rows(rates, "plain"), {"plain": 0, "spec": None})
    assert said == ["spec pays at 2 and 4 at once."]
    unclear = [run("spec", 1, number, rate) for number, rate in enumerate((40.0, 50.0, 60.0))]
    runs = [*unclear, *measured({"plain": {1: 50, 2: 90}, "spec": {2: 180}})]
    said = load_verdict(load_rows(runs, "plain"), {"plain": 0, "spec": None})
    assert said == ["spec pays at 2 at once.", "spec: no clear difference at 1 at once."]


def test_every_worker_calls_again_and_the_counters_are_read() -> None:
    asked = [Asked(text, SamplingParams(max_new_tokens=16, ignore_eos=True), 20.0) for text in "abc"]
    with serving(TableServer(Table()), TableServer(Table(), 3)) as (plain, spec):
        servers = [connect("plain", plain), connect("spec", spec)]
        found = list(under_load(servers, asked, [1, 2], runs=2))
        for server in servers:
            server.client.close()
    assert [(each.at_once, each.run, each.server) for each in found] == [
        (1, 0, "plain"), (1, 0, "spec"), (1, 1, "spec"), (1, 1, "plain"),
        (2, 0, "plain"), (2, 0, "spec"), (2, 1, "spec"), (2, 1, "plain"),
    ]  # fmt: skip
    assert all(len(each.first_seconds) == CALLS_EACH * each.at_once for each in found)
    for each in found:
        assert (each.counts is None) == (each.server == "plain")
        assert each.counts is None or 0 < each.counts.accepted <= each.counts.drafted == 3 * each.counts.steps


def test_levels_double_up_to_the_most() -> None:
    assert levels_to(1) == [1] and levels_to(8) == [1, 2, 4, 8] and levels_to(6) == [1, 2, 4, 6]
    with pytest.raises(InvalidInput, match="give 1 to 256"):
        levels_to(0)


def test_the_command_exports_the_chart_of_the_servers(tmp_path, capsys) -> None:
    page = tmp_path / "load.html"
    with serving(TableServer(Table()), TableServer(Table(), 3)) as (plain, spec):
        words = [f"plain={plain}", f"spec={spec}", "a", "--tokens", "16", "--at-once", "1", "--runs", "1"]
        command.main(parser_of("load").parse_args([*words, "--export", str(page)]))
    text = page.read_text()
    assert "<h1>Servers under load</h1>" in text and "Tokens per second," in text and "at the client" in text
    assert "Tokens per second of all calls together" in capsys.readouterr().out
