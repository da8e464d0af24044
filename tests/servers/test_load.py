"""Servers under load: what is measured, and what is said of it."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import fields, replace
from statistics import median_low
from types import SimpleNamespace

import pytest
from servers.table_server import Table, TableServer, serving

from specdec.cli import load as command
from specdec.cli.parsers import parser_of
from specdec.errors import InvalidInput, ServerFailed
from specdec.events import SamplingParams
from specdec.report.load import load_rows, load_table, load_verdict, row_record
from specdec.servers import answer as answers
from specdec.servers.answer import Answer, Asked, Counts, Piece
from specdec.servers.lane import Server, connect
from specdec.servers.load import CALLS_EACH, LoadRun, levels_to, under_load
from specdec.servers.openai import OpenAI
from specdec.ui.charts.load import load_figure

BOTH = ("plain", "spec")


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
    rows = load_rows(runs, BOTH)
    said = load_verdict(rows, {"plain": 0, "spec": 5})
    assert said[0] == "spec pays up to 2 at once."
    assert said[1] == 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 3, 5], [4, 4, 0]]'
    table = load_table(rows, BOTH)
    assert [row[:2] for row in table.rows] == [[str(n), name] for n in (1, 2, 4) for name in BOTH]
    assert table.rows[1][3].startswith("2.00x") and table.rows[1][7] == "80\u00a0%"


def test_servers_with_other_numbers_of_guesses_are_chosen_by_load() -> None:
    runs = measured({"plain": {1: 50, 8: 200}, "k5": {1: 120, 8: 220}, "k2": {1: 90, 8: 260}})
    said = load_verdict(load_rows(runs, ("plain", "k5", "k2")), {"plain": 0, "k5": 5, "k2": 2})
    assert "k5 pays at every load that was measured, up to 8 at once." in said
    assert 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 8, 2]]' in said


def test_a_load_without_clear_difference_is_said() -> None:
    unclear = [run("spec", 2, number, rate) for number, rate in enumerate((80.0, 91.0, 105.0))]
    runs = [*measured({"plain": {1: 50, 2: 90}, "spec": {1: 100}}), *unclear]
    said = load_verdict(load_rows(runs, BOTH), {"plain": 0, "spec": None})
    assert said == ["spec pays up to 1 at once.", "spec: no clear difference at 2 at once."]
    said = load_verdict(load_rows(runs, BOTH), {"plain": 0, "spec": 5})
    assert 'For vLLM: "num_speculative_tokens_per_batch_size": [[1, 1, 5], [2, 2, 0]]' in said
    nothing = measured({"plain": {1: 50}, "spec": {1: 25}})
    assert load_verdict(load_rows(nothing, BOTH), {}) == ["spec does not pay at any load that was measured."]


@pytest.mark.parametrize("count", (1, 2, 3))
def test_a_load_with_few_runs_is_said(count) -> None:
    runs = [each for each in measured({"plain": {1: 50, 2: 90}, "spec": {1: 100, 2: 91}}) if each.run < count]
    said, *more = load_verdict(load_rows(runs, BOTH), {"plain": 0, "spec": None})
    assert said == "spec pays up to 1 at once." and more[0] == "spec: no clear difference at 2 at once."
    few = "spec: fewer than three runs at 1 at once, so its difference can be chance. Measure more."
    assert more[1:] == ([few] if count < 3 else [])


def test_a_load_that_pays_behind_one_that_does_not_is_named_alone() -> None:
    rates = measured({"plain": {1: 50, 2: 90, 4: 160}, "spec": {1: 40, 2: 180, 4: 320}})
    said = load_verdict(load_rows(rates, BOTH), {"plain": 0, "spec": None})
    assert said == ["spec pays at 2 and 4 at once."]
    unclear = [run("spec", 1, number, rate) for number, rate in enumerate((40.0, 50.0, 60.0))]
    runs = [*unclear, *measured({"plain": {1: 50, 2: 90}, "spec": {2: 180}})]
    said = load_verdict(load_rows(runs, BOTH), {"plain": 0, "spec": None})
    assert said == ["spec pays at 2 at once.", "spec: no clear difference at 1 at once."]


def test_two_figures_of_a_level_never_contradict() -> None:
    """Each speed over the plain server's is the speed-up beside it, in the table, the chart and the record."""
    rng = random.Random(4)
    for count in (1, 2, 3, 4):
        for names in (BOTH, ("plain", "k5", "k2")):
            runs = [run(name, 2, number, rng.uniform(50, 500)) for number in range(count) for name in names]
            rows = load_rows(runs, names)
            plain, *others = map(row_record, rows)
            assert {record["run"] for record in (plain, *others)} == {rows[0].shown.run}
            for record in others:
                assert record["tokens_per_second"] / plain["tokens_per_second"] == pytest.approx(record["speedup"])
                assert record["lowest_speedup"] <= record["speedup"] <= record["highest_speedup"]
            fastest = max(rows[1:], key=lambda row: median_low(row.gains))
            assert fastest.gain == median_low(fastest.gains)
            assert fastest.pays in (None, fastest.gain > 1)
            told = [
                [float(cell) for cell in (row[2], row[3].partition("x")[0] or 1)]
                for row in load_table(rows, names).rows
            ]
            assert all(rate / told[0][0] == pytest.approx(gain, abs=0.03) for rate, gain in told)
            assert [line.y[0] for line in load_figure(rows).data] == [row.rate for row in rows]


def test_a_run_that_one_server_lacks_does_not_count() -> None:
    """While a level is measured the servers do not have the same runs."""
    runs = [run("plain", 1, 0, 50), run("spec", 1, 0, 60), run("spec", 1, 1, 600), run("plain", 2, 0, 90)]
    rows = load_rows(runs, BOTH)
    assert [(row.at_once, row.server, row.rates) for row in rows] == [(1, "plain", (50,)), (1, "spec", (60,))]
    assert load_rows(runs[:1], BOTH) == []


def test_a_load_without_a_speed_is_said() -> None:
    """Answers of one token have none, and an unclear load is no load at which speculation does not pay."""
    runs = measured({"plain": {1: 0, 2: 90}, "spec": {1: 0, 2: 91}})
    rows = load_rows(runs, BOTH)
    assert load_table(rows, BOTH).rows[1][2:4] == ["\u2013", ""] and row_record(rows[1])["speedup"] is None
    assert load_verdict(rows, {"plain": 0, "spec": 5}) == [
        "spec: no clear difference at 2 at once.", "spec: too few tokens to compare at 1 at once.",
    ]  # fmt: skip
    losing = measured({"plain": {1: 50, 2: 90}, "spec": {1: 25, 2: 91}})
    assert load_verdict(load_rows(losing, BOTH), {}) == [
        "spec clearly pays at no load that was measured.", "spec: no clear difference at 2 at once.",
    ]  # fmt: skip


def test_a_load_that_could_not_be_compared_is_no_load_that_pays() -> None:
    rows = load_rows(measured({"plain": {1: 50, 2: 0}, "spec": {1: 100, 2: 0}}), BOTH)
    assert load_verdict(rows, {}) == [
        "spec pays at every load that could be compared, up to 1 at once.",
        "spec: too few tokens to compare at 2 at once.",
    ]


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


def test_no_worker_calls_again_after_another_one_failed() -> None:
    prompts = [Asked(text, SamplingParams(max_new_tokens=16, ignore_eos=True), 20.0) for text in "ab"]
    called, began = [], threading.Event()

    class Failing(Server):
        def ask(self, asked: Asked) -> Answer:
            called.append(asked.prompt)
            if asked.prompt == "b":  # that of the second worker
                began.wait()
                raise ServerFailed("It died.")
            began.set()
            time.sleep(0.1)
            return found

    with serving(TableServer(Table())) as (url,):
        server = connect("plain", url)
        found = server.ask(prompts[0])
        failing = Failing(**{field.name: getattr(server, field.name) for field in fields(server)})
        with server.client, pytest.raises(ServerFailed, match="died"):
            list(under_load([failing], prompts, [2], 1))
    assert called.count("a") < CALLS_EACH and called.count("b") == 1


def test_threads_that_cannot_start_end_in_a_sentence(monkeypatch) -> None:
    """Those that did start wait for the others, and must not wait for ever."""
    begin, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("ThreadPoolExecutor"):
            started.append(thread)
            if len(started) == 3:
                raise RuntimeError("can't start new thread")
        begin(thread)

    asked = Asked("a", SamplingParams(max_new_tokens=4, ignore_eos=True), 20.0)
    with serving(TableServer(Table())) as (url,):
        server = connect("plain", url)
        monkeypatch.setattr(threading.Thread, "start", start)
        with server.client, pytest.raises(InvalidInput, match="cannot make 4 calls at once .*; ask for fewer"):
            list(under_load([server], [asked], [4], 1))


HELD_SECONDS = answers.HELD_SECONDS  # other tests have a longer one, because this machine may be busy


def loaded(monkeypatch, *turns: list[Piece]) -> list[LoadRun]:
    """One call after another on a server that answers with these pieces, each after a second."""
    monkeypatch.setattr(answers, "HELD_SECONDS", HELD_SECONDS)
    clock, left = [0.0], iter(turns)

    class Ready(Server):
        def ask(self, asked: Asked) -> Answer:
            clock[0] += 1.0
            return Answer((), tuple(next(left)), "length", 1.0, tokens=9, began=clock[0] - 1.0)

    client = SimpleNamespace(name="plain", text=lambda *_: "")
    server = Ready(client, OpenAI(), "m", None, False)  # type: ignore[arg-type]
    return list(under_load([server], [Asked("a", SamplingParams(max_new_tokens=9))], [1], 1))


LATE = [Piece(0.3, " w", None) for _ in range(9)]
USUAL = [Piece(0.1 * at, " w", None) for at in range(1, 10)]


def test_a_call_that_was_held_back_counts_in_the_rate_and_in_no_time_of_a_token(monkeypatch) -> None:
    """Two of three calls of a busy machine come at one moment: the third tells the seconds of a token."""
    (found,) = loaded(monkeypatch, USUAL, LATE, LATE)
    assert found.tokens == 8 + 9 + 9 and found.seconds == pytest.approx(2.9)
    assert found.first_seconds == (0.1,) and found.token_seconds == pytest.approx((0.1,))


def test_a_level_of_which_every_call_was_held_back_has_a_rate_and_no_time_of_a_token(monkeypatch) -> None:
    """A small model writes a whole text before a busy machine reads it. The other levels are worth having."""
    (held,) = loaded(monkeypatch, LATE, LATE, LATE)
    assert held.rate > 0 and not held.first_seconds and not held.token_seconds
    in_time = replace(held, server="spec", first_seconds=(0.1,), token_seconds=(0.1,))
    rows = load_rows([held, in_time], ["plain", "spec"])
    assert row_record(rows[0])["first_token_seconds"] is None and row_record(rows[0])["seconds_per_token"] is None
    assert [cells[6] for cells in load_table(rows, ["plain", "spec"]).rows] == ["", "0.100\u00a0s"]
    assert any(said.startswith("Each text of plain came at one moment at 1 at once") for said in load_verdict(rows, {}))
