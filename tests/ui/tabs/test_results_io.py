"""The measuring tabs' first content, and their texts before and during a measurement."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest
from judged import loop, plain, plan, trial

from specdec.errors import InvalidInput
from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.kept import Begun
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.results.format import figures_only, read_results
from specdec.measure.results.losslessness import losslessness_text, read_losslessness
from specdec.measure.summary import share_of
from specdec.measure.sweep import CONFIGS
from specdec.report import sentences
from specdec.report.sweep import overall
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import LOCAL
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.tabs import benchmark, best_gamma
from specdec.ui.tabs.measurement import Buttons, Measurement
from specdec.ui.tabs.results_io import MOST_OF_LINK, RECORDED, Greeting, kept_results, text_of_link

KEPT = kept_results("bench")


def test_the_recorded_results_are_whole_and_of_the_page_s_examples() -> None:
    found = {key: read_results((RECORDED / f"recorded_{key}.jsonl").read_text(), key) for key in ("sweep", "bench")}
    examples = [item.name for item in read_prompts(EXAMPLES)]
    assert [item.name for item in found["sweep"].plan.prompts] == examples[:1]
    assert found["sweep"].plan.configs == CONFIGS
    assert [item.name for item in found["bench"].plan.prompts] == examples
    for results in found.values():
        assert share_of(results.trials, results.plan).whole and len(results.trials) == len(results.plan)
        assert results.about["pair"]["name"] == "embedded"
        assert overall(results.trials, results.plan).factor
    record = read_losslessness((RECORDED / "recorded_lossless.json").read_text(), "recorded")
    assert record["about"]["pair"]["name"] == "embedded"
    assert record["findings"].verdict == "lossless" and record["findings"].common


def _heads(change: dict) -> str:
    """The recorded sweep with another first line."""
    head, rest = (RECORDED / "recorded_sweep.jsonl").read_text().split("\n", 1)
    return json.dumps({"results": json.loads(head)["results"] | change}) + "\n" + rest


@pytest.mark.parametrize(
    "value, words",
    [
        ({"problem": "The link is damaged: a part of it may be missing."}, "The link is damaged"),
        ({"text": _heads({"runs": 1000})}, "It cannot be opened: it plans more than 500 calls."),
        ({"text": _heads({"version": 2})}, "its version is 2"),
        ({"text": "x" * (MOST_OF_LINK + 1)}, "It cannot be read."),
        ({"text": "my diary\ud800"}, "It has no results of this program."),
        *((value, "It cannot be read.") for value in ("x", None, 5, [], {}, {"text": 5}, {"problem": ["<b>"]})),
    ],
)  # fmt: skip
def test_a_forged_link_is_refused_in_a_sentence(value, words: str) -> None:
    """The browser unpacks a link; whatever is sent instead is refused before it is shown."""
    with pytest.raises(InvalidInput, match=words):
        KEPT.linked(text_of_link(value), "It")


def test_a_link_has_the_figures_of_what_it_shows() -> None:
    found = KEPT.linked(text_of_link({"text": (RECORDED / "recorded_bench.jsonl").read_text()}), "It")
    assert KEPT.text(found) == figures_only(found)
    assert KEPT.text(replace(found, plan=replace(found.plan, runs=100))) == ""


RECORD = json.loads((RECORDED / "recorded_lossless.json").read_text())


def changed(place: str, value: object) -> str:
    """The recorded test of losslessness with another value at a place such as "findings.draws"."""
    record = json.loads(json.dumps(RECORD))
    *path, last = place.split(".")
    part = record
    for name in path:
        part = part[int(name) if isinstance(part, list) else name]
    part[last] = value
    return json.dumps(record)


def test_a_test_of_losslessness_comes_back_from_its_text() -> None:
    record = read_losslessness(json.dumps(RECORD), "It")
    assert read_losslessness(losslessness_text(record), "It") == record
    assert len(losslessness_text(record)) < 4096  # a link holds it


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("findings.draws", 0), ("findings.draws", 1e300), ("findings.draws", -5), ("findings.lane", "generate"),
        ("findings.lane", "<b>"), ("findings.lossless.p_value", 2.0), ("findings.lossless.p_value", float("nan")),
        ("findings.lossy.total_variation", -0.1), ("findings.common.0.plain", 10**6),
        ("findings.common.0.text", "x" * 2000), ("about.at", 1e11), ("about.pair.target.name", "x" * 2000),
        ("findings.common", RECORD["findings"]["common"] * 9), ("findings.steps.checks.0.kind", "other"),
        ("findings.steps.checks", RECORD["findings"]["steps"]["checks"] * 9),
        ("findings.params.temperature", float("inf")),
        ("about.pair", 5), ("about.at", "soon"), ("findings", None),
    ],
)  # fmt: skip
def test_a_forged_test_of_losslessness_is_refused_in_a_sentence(place: str, value: object) -> None:
    with pytest.raises(InvalidInput, match="It (is no result of the test of losslessness|has a value that no test)"):
        read_losslessness(changed(place, value), "It")


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", "{", '{"about": {}}', "\ud800"])
def test_what_is_no_test_of_losslessness_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="It is no result of the test of losslessness"):
        read_losslessness(text.encode(errors="replace").decode(), "It")


def test_a_tab_greets_until_it_has_a_result_and_every_visitor_alike() -> None:
    """Every visitor gets the same greeting. Gradio empties the updates it sends, so each needs a copy."""
    with gr.Blocks(), gr.Tab("x") as tab:
        greeting, table = Greeting("recorded_sweep.jsonl"), gr.HTML()
        shown = []
        greeting.wire(tab, [table], lambda text: shown.append(text) or {table: {"value": "one", "visible": True}})
    for _ in range(2):
        values = greeting._greet(False)
        assert values[table].pop("value") == "one" and values[greeting.filled] is True
    assert len(shown) == 1 and table not in greeting._greet(True)


def test_what_a_measurement_takes_is_said_in_words() -> None:
    assert sentences.work_ahead(sentences.calls(57, 64), None) == "57 calls of 64 tokens."
    assert sentences.work_ahead(sentences.calls(57, 64), 40.4) == "About 40\u00a0s: 57 calls of 64 tokens."
    long = sentences.work_ahead(sentences.calls(7200, 1), 11654)
    assert long == "About 3\u00a0h 14\u00a0min: 7,200 calls of 1 tokens."
    assert sentences.calls_left(0, 7200, 1.625) == "0 of 7,200 calls, about 3\u00a0h 15\u00a0min left."
    assert sentences.calls_left(1, 57, None) == "1 of 57 calls."


def test_what_there_is_to_do_follows_the_fields() -> None:
    assert best_gamma._size(["Story", "Digits"], 64, 3, "") == ("114 calls of 64 tokens", 19 * 2 * 3, 64)
    assert benchmark._size(["a", "a", "b"], [], "3 5", 64, 3, "", "") == ("36 calls of 64 tokens", 3 * 4 * 3, 64)
    assert benchmark._size(["a", "a", "b"], [], "3 5", 64, 3, "1", "") == ("24 calls of 64 tokens", 2 * 4 * 3, 64)
    for fields in (
        (["a"], [], "soon", 64, 3, "", ""),
        (["a"], [], "3", None, 3, "", ""),
        (["a"], [], "3", 64, 0.5, "", ""),
    ):
        with pytest.raises(InvalidInput):
            benchmark._size(*fields)


@pytest.mark.parametrize("every, told", [(0.0, [2, 3, 4, 5, 6]), (1000.0, [2])])
def test_status_and_results_of_a_measurement_are_of_the_same_calls(monkeypatch, every: float, told: list[int]) -> None:
    """They are shown together, from the second call on, not too often, and always at the end."""
    monkeypatch.setattr("specdec.ui.tabs.measurement.CHART_EVERY", every)
    asked = plan((BASELINE, LOOP), runs=3)
    made = [trial(run, e, plain(0.01) if e == BASELINE else loop(0.01)) for run in range(3) for e in asked.configs]
    context = SimpleNamespace(seconds=1.0, counts={}, stop=threading.Event())
    steps = list(Measurement(context, _steps(asked, made), len(asked), LOCAL).steps())
    assert [results for _, results in steps[:2]] == [None, None]
    assert "1 of 6 calls." in steps[1][0] and "left" in steps[2][0]
    *growing, (text, whole) = [(text, len(results.trials)) for text, results in steps if results]
    assert [calls for _, calls in growing] == told and (text, whole) == ("", 6)
    assert all(f"{calls} of 6 calls" in text for text, calls in growing)


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_answer_of_a_measurement_names_the_loaded_pair(fails: bool) -> None:
    """Its first findings, or its refusal, come with the header, because another visitor may have changed the pair."""

    def work(context: JobContext) -> Iterator[dict[gr.HTML, str]]:
        if fails:
            raise InvalidInput("This pair cannot do it.")
        yield {found: "first"}
        yield {found: "second"}

    with gr.Blocks() as demo:
        header, found, buttons = gr.HTML(), gr.HTML(), Buttons("Start", "gamma")
        jobs = JobQueue(SimpleNamespace(pair=None, loaded=True), lambda task: iter(()), LOCAL, JobLog())
        buttons.wire(jobs, lambda: Job("gamma", 0, work), [], {found: ""}, lambda: {header: "the pair of now"})
    run = next(block.fn for block in demo.fns.values() if getattr(block.fn, "__name__", "") == "run")

    async def answers() -> list[dict[gr.HTML, str]]:
        request = SimpleNamespace(session_hash="one", client=None, headers={})
        return [shown async for shown in run(request) if shown != {buttons.status: ""}]

    shown = asyncio.run(answers())
    jobs.close("over")
    assert [step.get(header) for step in shown] == ["the pair of now", *[None] * (len(shown) - 1)]
    assert ("cannot do it" in shown[0][buttons.status]) if fails else [s[found] for s in shown] == ["first", "second"]


def _steps(asked, made):
    yield Begun(SimpleNamespace(about={}, plan=asked), [])
    yield from made
