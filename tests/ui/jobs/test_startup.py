"""The start-up race runs while the machine is idle, gives way to every job, and greets later visitors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny

import specdec
from specdec.lanes.table import DEFAULT_KEYS, key_of
from specdec.report.recording import lanes, line, token_bytes
from specdec.ui.jobs import startup as module
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import LOCAL
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.recorded import recorded_race
from specdec.ui.jobs.startup import StartupRace
from specdec.ui.visitor import Visitor


@pytest.fixture
def jobs(monkeypatch) -> Iterator[JobQueue]:
    monkeypatch.setattr(module, "TOKENS", 40)  # long enough to be interrupted
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())
    slot = SimpleNamespace(pair=pair, loaded=True, facts=pair.describe())
    jobs = JobQueue(slot, lambda task: task.run(pair), LOCAL, JobLog())
    yield jobs
    assert jobs.close("over", 20)


def greets(race: StartupRace) -> bool:
    """Whether a visitor who comes now finally sees the whole race."""
    begin, *_, last = map(json.loads, told(race)[-1].splitlines())
    return (begin["origin"], last["event"], last["stopped"]) == ("startup", "verdict", False)


def told(race: StartupRace) -> list[str]:
    """Everything that the page of a new visitor receives."""

    async def values() -> list[str]:
        return [text async for text in race.lines()]

    return asyncio.run(values())


def asked(jobs: JobQueue, work) -> threading.Event:
    over = threading.Event()
    jobs.join(Visitor("a", "b"), Job("race", 0, work), lambda kind, value: kind == "end" and over.set())
    return over


def nothing(context: JobContext) -> Iterator[None]:
    return iter(())


def failing(context: JobContext) -> Iterator[None]:
    raise RuntimeError("on purpose")


def test_a_new_visitor_sees_the_start_up_race(jobs: JobQueue) -> None:
    """A visitor before its end sees the recorded race first; a later one sees this race at once."""
    race = StartupRace(jobs, "Once upon a time")
    recorded, own = told(race)
    assert recorded == recorded_race()
    assert told(race) == [own]


def test_the_start_up_race_shows_one_run_of_three(jobs: JobQueue) -> None:
    race = StartupRace(jobs, "Once upon a time")
    lines = told(race)[-1].splitlines()
    begin, verdict = json.loads(lines[0]), json.loads(lines[-1])
    assert (begin["runs"], verdict["runs"], verdict["shown"]) == (3, 3, 0)
    assert {key_of(lane[0].lane, lane[0].gamma, DEFAULT_KEYS) for lane in lanes(lines)} == set(DEFAULT_KEYS)
    assert len(lanes(lines)) == 3
    written = {token for lane in lanes(lines) for event in lane for token in getattr(event, "committed_ids", ())}
    assert written <= token_bytes(lines).keys()


FAILED = {"event": "error", "message": "no"}


def test_a_race_that_fails_leaves_the_recorded_one(jobs: JobQueue, monkeypatch) -> None:
    monkeypatch.setattr(
        module, "stream", lambda context, ask, **more: iter([module.RaceStep(line(FAILED), problem="no")])
    )
    race = StartupRace(jobs, "Once upon a time")
    assert told(race) == told(race) == [recorded_race()]


@pytest.mark.parametrize("work", [nothing, failing], ids=["a job that ends", "a job that fails"])
def test_the_start_up_race_stops_for_a_visitor_and_runs_again(jobs: JobQueue, work) -> None:
    race = StartupRace(jobs, "Once upon a time")
    while jobs.health()["running"] is None:
        pass
    assert asked(jobs, work).wait(20)
    assert greets(race)


def test_while_a_job_runs_the_recorded_race_is_shown(jobs: JobQueue, monkeypatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.5)
    release = threading.Event()

    def busy(context: JobContext) -> Iterator[None]:
        release.wait(20)
        yield None

    over = asked(jobs, busy)
    race = StartupRace(jobs, "Once upon a time")
    assert told(race) == [recorded_race()]
    release.set()
    assert over.wait(20)


def test_a_race_of_a_replaced_pair_is_forgotten(jobs: JobQueue) -> None:
    race = StartupRace(jobs, "Once upon a time")
    assert greets(race)
    race.forget()
    assert told(race) == [recorded_race()]
    race.begin()
    assert greets(race)
