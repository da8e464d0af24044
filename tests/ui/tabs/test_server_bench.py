"""A benchmark of two servers on the tab Your server: what it shows, refuses, keeps and offers, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from server_pages import context_of, pressed, race_of, served
from server_standins import PROMPT, Dying, StandIn

from specdec.errors import ServerFailed
from specdec.events import SamplingParams
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.results.format import Results, figures_only, read_results
from specdec.report.provenance import LINK
from specdec.report.sweep import overall
from specdec.servers.address import Address
from specdec.servers.bench import UNTOLD
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.jobs.server_bench import ServersCalls
from specdec.ui.tabs.benchmark_result import RESULTS, shown_benchmark
from specdec.ui.tabs.best_gamma import GammaTab
from specdec.ui.tabs.measurement import ResultPanel
from specdec.ui.tabs.server_bench import CONFIGS, ServerBench
from tests.load.web import Heard, Web, an_address

START = "sd-server-bench-start"
ITEMS = tuple(PromptItem(name, "prompt", f"{PROMPT} {name}") for name in ("one", "two"))


class Cut(StandIn):
    """Tells no ids, and sends two pieces of its text at a time."""

    def __init__(self) -> None:
        super().__init__("text")

    def events(self, body: dict[str, Any]):
        *pieces, last = super().events(body)
        for at in range(0, len(pieces), 2):
            text = "".join(each["choices"][0]["text"] for each in pieces[at : at + 2])
            yield {"choices": [pieces[min(at + 1, len(pieces) - 1)]["choices"][0] | {"text": text}]}
        yield last


def file_of(prompts: list[str]) -> dict[str, str]:
    return {"name": "own.jsonl", "text": "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)}


def files_in(heard: Heard) -> dict[str, str]:
    (found,) = [json.loads(value) for value in heard.last if isinstance(value, str) and value.startswith('{"bench')]
    return found


def measured(plain: StandIn, other: StandIn, runs: int = 2, stop: threading.Event | None = None) -> list[dict]:
    """What the fold of the tab shows of a benchmark, by the component's name."""
    params = SamplingParams(max_new_tokens=32)
    ask = race_of(plain, other, params=params)
    scripts = {"files": '"files.js"', "results": '"results.js"'}
    with gr.Blocks():
        bench = ServerBench(None, LOCAL, lambda *_: ask, [], gr.Number(32), scripts)  # type: ignore[arg-type]
    steps = bench._measure(context_of(stop), ServersCalls(ask, Plan(ITEMS, CONFIGS, params, runs)))
    shown = []
    with contextlib.suppress(ServerFailed):
        for step in steps:
            shown.append({part.elem_id: value for part, value in step.items()})
    return shown


def results_of(shown: list[dict]) -> tuple[Results, dict[str, str]]:
    files = json.loads(shown[-1]["sd-server-bench-files"])
    return read_results(files[RESULTS], RESULTS), files


def test_a_benchmark_has_the_verdict_a_row_for_each_prompt_and_files_that_open_again() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        page, address = served(LOCAL)
        servers = {"sd_server_plain": plain.url, "sd_server_spec": other.url}
        own = {"sd_server_bench_set": file_of(["Once upon", "One day"]), "sd_server_bench_runs": 2}
        asked: list[dict[str, Any]] = [
            {"sd_server_prompt": ""},  # it is not asked here
            {"sd_server_tokens": 31},
            {"sd_server_bench_runs": 0},
            {"sd_server_bench_first": "few"},
            {"sd_server_bench_set": {"name": "x", "text": "Dear diary"}},
            {"sd_server_spec": f"{plain.url}/v1"},
            {"sd_server_plain": other.url, "sd_server_spec": plain.url},
            {"sd_server_spec": "file:///etc/passwd"},
        ]

        async def visit() -> list[Heard]:
            async with Web(address) as web:
                return [await pressed(web, START, **servers | own | more) for more in asked]

        ran, short, none, few, diary, same, swapped, wrong = asyncio.run(visit())
        page.close()
        assert "the plain server" in ran.text and "sd-plainTable" in ran.text
        assert "A row for each prompt: its median run by the speed-up over the plain server" in ran.text
        assert "2 prompts of own.jsonl" in ran.text and "Measured from this machine, on running servers" in ran.text
        assert "too few to measure; give 32 or more" in short.text
        assert "give a whole number, 1 or more" in none.text and "not a whole number" in few.text
        assert "Line 1" in diary.text and "same address" in same.text and "it speculates" in swapped.text
        assert "cannot be used" in wrong.text and "passwd" not in wrong.text
        results = read_results(files_in(ran)[RESULTS], RESULTS)
        assert len(results.trials) == len(results.plan) == 8
        facts = results.about["pair"]["server"]
        assert (facts["engine"], facts["guesses"], facts["exact"], facts["ids"]) == ("vLLM", 4, "rounds", True)
        for text in (ran.text, *files_in(ran).values()):
            assert f":{plain.port}" not in text and f":{other.port}" not in text


@pytest.mark.parametrize("kind", ["vllm", "text"])
def test_results_of_servers_keep_their_words_wherever_they_are_opened(kind) -> None:
    """From a file and from a link, on the tabs Benchmark and Best gamma: no word of a pair on this machine."""
    with StandIn("plain") as plain, StandIn(kind) as other:
        results, files = results_of(measured(plain, other))
    linked = read_results(figures_only(results), "It")
    assert linked.about["pair"]["server"] == results.about["pair"]["server"]
    with gr.Blocks():
        panel = ResultPanel("bench")
    opened = {part.elem_id: value for part, value in shown_benchmark(panel, linked, LINK).items()}
    chart = opened["sd-bench-plot"]["value"]
    shown = json.dumps([opened["sd-bench-verdict"], opened["sd-bench-table"], chart.plot])
    assert "the plain server" in shown and "plain server, 1x" in shown
    sweep = GammaTab._shown(SimpleNamespace(_findings=panel), linked, LINK)  # type: ignore[arg-type]
    drawn = [value["value"].plot for value in sweep.values() if isinstance(value, dict) and value.get("value")]
    assert bool(drawn) == (kind == "vllm"), "a draft length that is not told has no place on an axis"
    shown += json.dumps([*(value for value in sweep.values() if isinstance(value, str)), *drawn])
    for text in (shown, files["benchmark.md"], files["benchmark.csv"]):
        assert "plain generate" not in text and "our loop" not in text.lower() and "\u03b3 engine" not in text


@pytest.mark.parametrize("other", [StandIn("text"), Cut()], ids=["a token a piece", "two tokens a piece"])
def test_a_server_that_tells_nothing_is_compared_by_its_letters(other) -> None:
    """Its draft length is not told, and the pieces of its text are no tokens of the plain server's."""
    with StandIn("plain") as plain, other:
        results, files = results_of(measured(plain, other))
    assert results.plan.configs == CONFIGS
    rows = json.loads(files["benchmark.json"])["rows"]
    assert [(row["same_text"], row["compared"]) for row in rows if row["lane"] == "speculative server"] == [(4, 4)]
    found = overall(results.trials, results.plan, on_servers=True)
    assert "engine" not in found.headline and "other server" in found.headline.lower()
    assert not any(t.metrics.mean_acceptance_length for t in results.trials if t.lane_config == UNTOLD), "not told"
    assert "| not told |" in files["benchmark.md"] and "\u03b3 engine" not in files["benchmark.md"]
    assert "\u03b3" not in files["benchmark.md"].splitlines()[4]


def test_two_engines_are_named_and_those_of_one_are_not() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other, StandIn("text") as unknown:
        told = [measured(plain, server, 1)[-2]["sd-server-bench-verdict"] for server in (other, unknown)]
    assert "different engines" not in told[0] and "run different engines (vLLM 0.32.0 and " in told[1]


def test_stop_keeps_what_was_measured() -> None:
    stop = threading.Event()

    class Stopping(StandIn):
        def events(self, body: dict[str, Any]):
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 5:  # the first one warms it up
                stop.set()
            return super().events(body)

    with StandIn("plain") as plain, Stopping("vllm") as other:
        shown = measured(plain, other, 50, stop)
    said = [step["sd-server-bench-status"] for step in shown if step.get("sd-server-bench-status")][-1]
    results, _ = results_of(shown)
    assert len(results.trials) in (6, 8) and f"Stopped: {len(results.trials)} of 200 calls done" in said


def test_what_was_measured_before_a_server_died_is_shown_and_saved() -> None:
    with StandIn("plain") as plain, Dying(4) as other:
        shown = measured(plain, other, 9)
    results, _ = results_of(shown)
    assert 6 <= len(results.trials) < 36 and "sd-plainTable" in shown[-1]["sd-server-bench-table"]


def test_strangers_measure_the_named_servers_on_few_prompts() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        page, address = served(PUBLIC, Address("plain", plain.url), Address("fast", other.url))
        many = {"sd_server_bench_set": file_of([f"Once upon {number}" for number in range(21)])}
        long = {"sd_server_bench_set": file_of(["x" * (8 * 512 + 1)])}
        few = {"sd_server_bench_runs": 1, "sd_server_bench_first": "1", "sd_server_tokens": 32}

        async def visit() -> list[Heard]:
            async with Web(address) as web:
                return [
                    await pressed(web, START, an_address(), **few | more)
                    for more in ({}, many | {"sd_server_bench_first": ""}, long, {"sd_server_bench_runs": 6})
                ]

        ran, too_many, too_long, too_often = asyncio.run(visit())
        page.close()
        assert "the plain server" in ran.text and "6 prompts of the examples" in ran.text
        assert "this page allows at most 20" in too_many.text and "takes at most 4096" in too_long.text
        assert "this page allows at most 5" in too_often.text
        for heard in (ran, too_many, too_long, too_often):
            assert f":{plain.port}" not in heard.text and f":{other.port}" not in heard.text
