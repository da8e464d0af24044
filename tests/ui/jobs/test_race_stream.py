"""The lines of a race that reach the page: all of them at the end, and parts of them before if there are many."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny

import specdec
from specdec.report import recording, verdict
from specdec.report.judge import Doubt, Kind
from specdec.report.verdict import Verdict
from specdec.ui.jobs import race_stream as module
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.jobs.race_settings import RaceSettings, from_recording


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 4, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())


def values(pair: specdec.Pair, **settings) -> list[list[dict]]:
    ask = RaceSettings(
        "Once upon a time", params=specdec.SamplingParams(max_new_tokens=100, ignore_eos=True), **settings
    )
    slot = SimpleNamespace(pair=pair, facts=pair.describe())
    context = JobContext(slot, lambda task: task.run(pair), threading.Event())
    texts = [step.text for step in module.stream(context, ask, limits=LOCAL)]
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


def test_a_recorded_run_that_this_page_does_not_take_is_refused_in_a_sentence() -> None:
    with pytest.raises(specdec.InvalidInput, match=r"This run's tokens 512 cannot be used here .above 256.\. Nothing"):
        from_recording({"prompt": "Once", "tokens": 512}, PUBLIC)
    assert from_recording({"prompt": "Once", "tokens": 512}, LOCAL).params.max_new_tokens == 512


def test_a_long_race_comes_in_parts_that_overlap_and_ends_whole(pair, monkeypatch) -> None:
    """Each value begins at a line that is not beyond the end of the value before; the last value holds all lines."""
    monkeypatch.setattr(module, "PART", 12_000)
    monkeypatch.setattr(module, "OVERLAP", 6_000)
    *middle, whole = values(pair)
    assert whole[0]["event"] == "begin" and whole[-1]["event"] == "verdict"
    reached, parts = 0, 0
    for value in middle:
        first = 0
        if value[0]["event"] == "part":
            assert value[0]["number"] == whole[0]["number"]
            first, parts = value.pop(0)["from"], parts + 1
        assert first <= reached and value == whole[first : first + len(value)]
        reached = first + len(value)
    assert parts and reached == len(whole) - 1


def test_a_short_race_grows_line_by_line(pair) -> None:
    """Below the size of a part each value extends the one before, so only new lines are sent."""
    before: list[dict] = []
    for value in values(pair):
        assert value[: len(before)] == before
        before = value
    events = list(recording.read_recording(json.dumps(record) for record in before))
    assert [event.lane for event in events if isinstance(event, specdec.Started)] == [
        "generate", "speculative", "speculative",
    ]  # fmt: skip


def test_a_race_runs_again_until_it_is_clear(pair, monkeypatch) -> None:
    """Three runs in rotating order with one seed, and one verdict on all of them; a race of the API runs once."""
    monkeypatch.setattr(verdict, "LEAST_RUNS", 3)
    monkeypatch.setattr(verdict, "MOST_RUNS", 3)
    monkeypatch.setattr(verdict, "RACE_SECONDS", 1000.0)  # the machine of a test may be busy
    *_, whole = values(pair, until_clear=True)
    started = [line for line in whole if line["event"] == "started"]
    names = [line["lane"] if line["gamma"] else "loop" for line in started]
    first = names[:3]
    assert names == [*first, *first[1:], first[0], first[2], *first[:2]]
    assert len({line["params"]["seed"] for line in started}) == 1
    assert [line["event"] for line in whole].count("verdict") == 1 and whole[-1]["runs"] == 3
    assert values(pair)[-1][-1]["runs"] == 1


@pytest.mark.parametrize("by", ["Stop", "the limit"])
def test_a_race_that_ends_before_its_first_event_says_why_and_is_no_failure(pair, by: str) -> None:
    """The log names such a job by what ended it: a Stop, a visitor who left, or the page's limit."""
    ask = RaceSettings("Once upon a time", params=specdec.SamplingParams(max_new_tokens=100))
    stop = threading.Event()
    if by == "Stop":
        stop.set()
    slot = SimpleNamespace(pair=pair, facts=pair.describe())
    context = JobContext(slot, lambda task: (batch for batch in [[]]), stop)  # a warm-up yields no events
    limits = LOCAL if by == "Stop" else replace(PUBLIC, seconds=0.0)
    *_, last = module.stream(context, ask, limits=limits)
    why = "Stopped" if by == "Stop" else "Stopped after 0\u00a0s, this page's limit,"
    assert last.problem == f"{why} before the first token." and context.problem is None
    assert json.loads(last.text.splitlines()[-1]) == {"event": "error", "message": last.problem}


@pytest.mark.parametrize(
    ("kind", "doubts", "runs", "seconds", "more"),
    [
        ("faster", (), 1, 2.0, True),
        ("faster", (), 3, 3.0, False),
        ("busy", ("busy",), 3, 3.0, True),
        ("noisy", ("luck",), 5, 6.0, False),
        ("faster", ("wide_spread",), 4, 6.0, True),
        ("faster", (), 1, 5.5, False),  # two runs would take 11 s
        ("busy", ("busy",), 4, 8.5, False),
        ("no_token", (), None, 1.0, False),
    ],
)
def test_when_a_race_runs_again(kind, doubts, runs, seconds: float, more: bool, monkeypatch) -> None:
    monkeypatch.setattr(verdict, "LEAST_RUNS", 3)
    monkeypatch.setattr(verdict, "MOST_RUNS", 5)
    doubts = tuple(map(Doubt, doubts))
    found = Verdict(kind=Kind(kind), doubts=doubts, runs=runs, sentence="", notes=(), stopped=False)
    assert verdict.another_run(found, seconds) == more
