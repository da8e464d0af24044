"""The queue of jobs: order, limits, Stop, leaving visitors, messages and the log."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest
from starlette.datastructures import Headers

from specdec.errors import DeviceLost, InvalidInput
from specdec.measure.task import Task
from specdec.ui.jobs.context import Cancelled, Job, JobContext, QueuedJob, Refused
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.submit import done
from specdec.ui.visitor import Visitor

WAIT = 20.0  # seconds: a busy machine is no reason to fail
SLOT = SimpleNamespace(pair="pair", loaded=True, facts={})


class Heard:
    """The messages that a visitor gets."""

    def __init__(self) -> None:
        self.values: list = []
        self.errors: list[Exception] = []
        self.over = threading.Event()

    def __call__(self, kind: str, value: object) -> None:
        if kind == "end":
            self.over.set()
        else:
            (self.values if kind == "value" else self.errors).append(value)

    def ended(self) -> bool:
        return self.over.wait(WAIT)


class Gate:
    """A job that reports its start and works until it is released or stopped."""

    def __init__(self, tokens: int = 0, kind: str = "race", device: bool = True):
        self.begun, self.go = threading.Event(), threading.Event()
        self.job = Job(kind, tokens, self._work, {"prompt": "secret"}, device)

    def _work(self, context: JobContext) -> Iterator[str]:
        self.begun.set()
        yield "begun"
        while not (self.go.wait(0.01) or context.stop.is_set()):
            yield "tick"
        context.counts["tokens"] = 3
        yield "stopped" if context.stop.is_set() else "done"


def quick(context: JobContext) -> Iterator[str]:
    yield f"on {context.pair}"


QUICK = Job("race", 0, quick)


@pytest.fixture
def made() -> Iterator[Callable[..., JobQueue]]:
    queues: list[JobQueue] = []

    def make(limits=LOCAL, **options) -> JobQueue:
        queues.append(JobQueue(SLOT, lambda task: task.run("pair"), limits, options.pop("journal", JobLog())))
        for name, value in options.items():
            setattr(queues[-1], name, value)
        return queues[-1]

    yield make
    for jobs in queues:
        assert jobs.close("over", WAIT)


def visitor(session: str, address: str = "") -> Visitor:
    return Visitor(session, address or f"address of {session}")


def asked(jobs: JobQueue, session: str, job: Job = QUICK, address: str = "") -> tuple[QueuedJob, Heard]:
    heard = Heard()
    return jobs.join(visitor(session, address), job, heard), heard


def test_jobs_run_one_at_a_time_in_the_order_they_came(made) -> None:
    jobs, gates = made(), [Gate() for _ in range(3)]
    told = [asked(jobs, str(number), gate.job)[1] for number, gate in enumerate(gates)]
    for number, gate in enumerate(gates):
        assert gate.begun.wait(WAIT) and not any(later.begun.is_set() for later in gates[number + 1 :])
        gate.go.set()
    assert all(heard.ended() and heard.values[-1] == "done" for heard in told)


def test_short_jobs_run_beside_the_one_that_has_the_device(made) -> None:
    """One short job runs at a time, in order. It waits for no device, and the page's own race goes on."""
    jobs, own, race = made(), Gate(), Gate()
    jobs.when_idle(own.job, Heard())
    assert own.begun.wait(WAIT)
    shorts = [Gate(kind="open", device=False) for _ in range(2)]
    told = [asked(jobs, str(number), gate.job) for number, gate in enumerate(shorts)]
    assert shorts[0].begun.wait(WAIT) and not shorts[1].begun.is_set()
    assert jobs.ahead(told[1][0]) == (1, None)
    asked(jobs, "a", race.job)
    assert race.begun.wait(WAIT) and jobs.health() == {"ok": True, "running": "race", "waiting": 1}
    for gate, (_, heard) in zip(shorts, told, strict=True):
        gate.go.set()
        assert heard.ended() and heard.values[-1] == "done"
    assert not race.go.is_set()
    race.go.set()


def test_what_is_ahead_counts_down(made) -> None:
    """The time is estimated from the seconds a token took in the latest job."""
    jobs, first = made(), Gate(tokens=100)
    asked(jobs, "a", first.job)
    assert first.begun.wait(WAIT)
    place, _ = asked(jobs, "b", Gate(tokens=100).job)
    assert jobs.ahead(place) == (1, None)
    jobs._seconds_per_token["race"] = 1.0
    ahead, seconds = jobs.ahead(place)
    assert ahead == 1 and 0 < seconds < 100
    time.sleep(0.2)
    assert jobs.ahead(place).seconds < seconds - 0.1
    behind, heard = asked(jobs, "c")
    assert jobs.ahead(behind).jobs == 2 and jobs.ahead(behind).seconds == pytest.approx(200, abs=WAIT)
    jobs.stop("b", "race")
    assert jobs.ahead(behind).jobs == 1
    first.go.set()
    assert heard.ended() and jobs.ahead(behind) is None


def test_stop_takes_a_job_off_the_line_at_once(made) -> None:
    jobs, first = made(), Gate()
    asked(jobs, "a", first.job)
    assert first.begun.wait(WAIT)
    place, heard = asked(jobs, "b")
    jobs.stop("b", "sweep")  # another kind of work
    jobs.stop("a nobody", "race")
    assert jobs.ahead(place) is not None
    jobs.stop("b", "race")
    assert heard.over.is_set() and isinstance(heard.errors[0], Cancelled) and not heard.values
    assert jobs.health()["waiting"] == 0
    first.go.set()


def test_stop_lets_what_runs_end_with_what_it_found(made) -> None:
    jobs, gate = made(), Gate()
    _, heard = asked(jobs, "a", gate.job)
    assert gate.begun.wait(WAIT)
    jobs.stop("a", "race")
    assert heard.ended() and heard.values[-1] == "stopped" and not heard.errors


@pytest.mark.parametrize("how", ["the handler is closed", "the stream is closed"])
def test_a_visitor_who_leaves_frees_the_machine(made, how: str) -> None:
    jobs, gate = made(), Gate()
    place, _ = asked(jobs, "a", gate.job)
    waiting, _ = asked(jobs, "a", Gate(kind="sweep").job)
    _, next_one = asked(jobs, "b")
    assert gate.begun.wait(WAIT)
    if how == "the handler is closed":
        jobs.leave(place)
        jobs.leave(waiting)
    else:
        jobs.left("a")
    assert next_one.ended() and next_one.values == ["on pair"]


def test_nothing_begins_that_nobody_listens_to(made, monkeypatch) -> None:
    """A job without a listener never begins. It keeps its place for a few seconds, and others pass it."""
    monkeypatch.setattr("specdec.ui.jobs.queue.GRACE", 0.5)
    heard_of = {"real"}
    jobs = made(listening=heard_of.__contains__)
    forged = Gate()
    _, nobody = asked(jobs, "forged", forged.job)
    _, real = asked(jobs, "real")
    assert real.ended() and real.values == ["on pair"]
    assert nobody.ended() and not forged.begun.is_set() and jobs.health()["waiting"] == 0


def test_a_stop_that_overtakes_its_job_cancels_it(made, monkeypatch) -> None:
    """Gradio's queue holds a job for a moment, and Stop does not wait there."""
    jobs = made()
    jobs.stop("a", "race")
    jobs.stop("a", "gamma")
    jobs.stop("b", "race")
    _, stopped = asked(jobs, "a")
    assert stopped.ended() and stopped.values == [] and "Cancelled. Nothing ran." in str(stopped.errors)
    _, another = asked(jobs, "a")
    assert another.ended() and another.values == ["on pair"], "it cancels one job"
    jobs.stop("a", "race")  # meant for the job that has just ended
    _, next_one = asked(jobs, "a")
    assert next_one.ended() and next_one.values == ["on pair"]
    gate = Gate()
    asked(jobs, "d", gate.job)
    assert gate.begun.wait(WAIT)
    _, waiting = asked(jobs, "a")
    for _ in range(2):  # pressed twice
        jobs.stop("a", "race")
    assert waiting.ended() and waiting.values == []
    gate.go.set()
    _, after = asked(jobs, "a")
    assert after.ended() and after.values == ["on pair"], "the second press was meant for the same job"
    monkeypatch.setattr("specdec.ui.jobs.queue.EARLY", 0.0)
    jobs.stop("c", "race")
    assert set(jobs._stops) == {("c", "race")}
    _, late = asked(jobs, "b")
    assert late.ended() and late.values == ["on pair"], "an old Stop is forgotten"


def test_a_visitor_has_few_places_in_the_queue(made) -> None:
    """Places are limited by session, by address and in total. A refused job takes none."""
    jobs, first = made(replace(PUBLIC, waiting=5, places=2, places_of_address=3)), Gate()
    asked(jobs, "a", first.job, "home")
    assert first.begun.wait(WAIT)
    asked(jobs, "a", address="home")
    with pytest.raises(Refused, match="You already have 2 jobs"):
        asked(jobs, "a", address="elsewhere")
    asked(jobs, "b", address="home")
    with pytest.raises(Refused, match="address already has 3 jobs"):
        asked(jobs, "c", address="home")
    for session in "def":
        asked(jobs, session)
    with pytest.raises(Refused, match="queue is full: 5 jobs are waiting"):
        asked(jobs, "g")
    first.go.set()


def test_short_jobs_have_places_like_others_and_their_own_line(made) -> None:
    jobs = made(replace(PUBLIC, waiting=1, waiting_short=2, places=2, places_of_address=9))
    gates = [Gate(), Gate(kind="open", device=False)]
    for session, gate in zip("ab", gates, strict=True):
        asked(jobs, session, gate.job)
        assert gate.begun.wait(WAIT)
    short = Gate(kind="open", device=False).job
    for session in "ac":
        asked(jobs, session, short)
    with pytest.raises(Refused, match="You already have 2 jobs"):
        asked(jobs, "a")
    with pytest.raises(Refused, match="queue is full: 2 jobs are waiting"):
        asked(jobs, "d", short)
    asked(jobs, "d")
    for gate in gates:
        gate.go.set()


def test_errors_reach_the_visitor_and_the_next_job_runs(made, caplog) -> None:
    jobs = made()

    def failing(error: Exception) -> Job:
        def work(context: JobContext) -> Iterator[str]:
            yield "begun"
            raise error

        return Job("race", 0, work)

    quota = gr.Error("Your quota is used up.")
    for error in (InvalidInput("Nothing ran."), quota, ZeroDivisionError("at /home/somebody/secret.py")):
        _, heard = asked(jobs, "a", failing(error))
        assert heard.ended()
        if isinstance(error, ZeroDivisionError):
            assert isinstance(heard.errors[0], Refused) and "secret" not in str(heard.errors[0])
            assert "secret.py" in caplog.text
        else:
            assert heard.errors == [error]
        _, after = asked(jobs, "a")
        assert after.ended() and after.values == ["on pair"]


def test_what_a_refused_job_has_read_is_freed_at_once(made) -> None:
    """Not with Python's next search for cycles, which may come after hundreds of large files."""

    class Read:
        pass

    jobs, kept = made(), []

    def work() -> None:
        read = Read()
        kept.append(weakref.ref(read))
        try:
            raise ValueError
        except ValueError as error:
            raise InvalidInput("It cannot be read.") from error

    async def ask() -> None:
        request = SimpleNamespace(session_hash="a", client=None, headers=Headers())
        with contextlib.suppress(InvalidInput):
            await done(jobs, request, "open", work)

    gc.disable()
    try:
        asyncio.run(ask())
        end = time.monotonic() + WAIT
        while kept[0]() is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert kept[0]() is None
    finally:
        gc.enable()


def test_the_line_goes_on_whatever_a_job_s_figures_are(made) -> None:
    jobs = made()
    _, heard = asked(jobs, "a", Job("race", 10**400, quick))
    assert heard.ended() and heard.values == ["on pair"]
    _, after = asked(jobs, "a")
    assert after.ended() and after.values == ["on pair"] and jobs.health()["ok"]


def test_the_wait_for_a_lent_device_is_not_the_job_s_time() -> None:
    def lent(task: Task) -> Iterator[str]:
        time.sleep(0.3)
        yield from task.run("pair")

    for is_lent in (False, True):
        context = JobContext(SLOT, lent, threading.Event(), is_lent)
        assert (context.seconds == 0) == is_lent
        for _ in context.run_task(Task(lambda pair: iter([1]), 1)):
            assert (context.seconds < 0.2) == is_lent


def test_the_page_s_own_job_gives_way_and_comes_again(made) -> None:
    jobs, own, mine = made(), Gate(), Heard()
    jobs.when_idle(own.job, mine)
    assert own.begun.wait(WAIT)
    place, heard = asked(jobs, "a")
    assert jobs.ahead(place) in (None, (0, 0)) and heard.ended()
    assert mine.over.is_set() and mine.values[-1] == "stopped"
    again = Heard()
    jobs.when_idle(own.job, again)
    own.go.set()
    assert again.ended() and again.values[-1] == "done"


def test_closing_tells_those_who_wait_and_ends_what_runs(made) -> None:
    jobs, gate = made(), Gate()
    _, running = asked(jobs, "a", gate.job)
    _, waiting = asked(jobs, "b")
    assert gate.begun.wait(WAIT) and jobs.health()["ok"]
    assert jobs.close("The page is being stopped.", WAIT)
    assert running.values[-1] == "stopped"
    assert str(waiting.errors[0]) == "The page is being stopped." and not waiting.values
    with pytest.raises(Refused, match="being stopped"):
        asked(jobs, "c")
    assert not jobs.health()["ok"]


@pytest.mark.parametrize("prompts", [False, True])
def test_the_log_has_a_line_for_each_job(made, caplog, prompts: bool) -> None:
    """Each job has a line in the log: request, end and time, no address, and a prompt only if asked."""
    caplog.set_level(logging.INFO, "specdec.jobs")
    jobs, gate = made(journal=JobLog(prompts)), Gate()
    _, heard = asked(jobs, "a", gate.job, "192.0.2.7")
    assert gate.begun.wait(WAIT)
    _, cancelled = asked(jobs, "b", Gate().job, "192.0.2.7")
    jobs.stop("b", "race")
    gate.go.set()
    assert heard.ended() and cancelled.ended()
    lines = [json.loads(record.message) for record in caplog.records if record.name == "specdec.jobs"]
    assert [line["outcome"] for line in lines] == ["cancelled", "done"]
    done = lines[1]
    assert done["job"] == "race" and done["counts"] == {"tokens": 3} and done["seconds"] >= 0
    assert lines[0]["visitor"] == done["visitor"] and "192.0.2.7" not in caplog.text
    assert ("secret" in caplog.text) == prompts
    assert done["settings"] == ({"prompt": "secret"} if prompts else {"prompt_characters": 6})


@pytest.mark.parametrize("prompts", [False, True])
def test_a_line_of_the_log_is_short_whatever_a_visitor_asked_for(made, caplog, prompts: bool) -> None:
    """Names and values are cut, and it is written how much was left out. A prompt is whole if that was asked for."""
    caplog.set_level(logging.INFO, "specdec.jobs")
    jobs = made(journal=JobLog(prompts))
    long = "x" * 100_000
    values = {
        "prompt": "p" * 5000, "gamma": long, "seed": 7**5000, "lanes": [long] * 50, "kept": ["a", 1.5, None, True, 2],
        "deep": {"a": {"b": [{"c": long}]}}, "odd": SimpleNamespace(text=long), "escaped": "\n\0" * 200, long: long,
    }  # fmt: skip

    def fail(context: JobContext) -> Iterator[str]:
        context.counts["tokens"] = {long: long}
        raise InvalidInput(long)
        yield

    for settings in (values, values | {f"setting {number}": long for number in range(1000)}):
        assert asked(jobs, "a", Job("race", 0, fail, settings))[1].ended()
    few, many = (json.loads(record.message) for record in caplog.records)
    for line in (few, many):
        assert prompts or line["settings"].pop("prompt_characters") == 5000
        assert line["settings"].pop("prompt", None) == (values["prompt"] if prompts else None)
    cut = f"{'x' * 80}... (99920 characters left out)"
    assert few["settings"].pop("odd").startswith("namespace(text='xxx") and few["settings"][cut] == cut
    assert few["settings"].pop("escaped") == "\n\0" * 40 + "... (320 characters left out)"
    assert few["settings"] == {
        "gamma": cut, "seed": "a number of 14037 bits", "lanes": [cut] * 30 + ["20 values left out"],
        "kept": ["a", 1.5, None, True, 2], "deep": {"a": {"b": f"[{{'c': '{'x' * 72}... (99931 characters left out)"}},
        cut: cut,
    }  # fmt: skip
    assert few["counts"] == {"tokens": {cut: cut}}
    assert few.get("why", "")[:80] == ("x" * 80 if prompts else "") and len(few.get("why", "")) < 600
    assert many["settings"].keys() == {"left_out"} and max(len(record.message) for record in caplog.records) < 20_000


def test_a_task_runs_with_the_runner_of_the_page(made) -> None:
    jobs = made()

    def work(context: JobContext) -> Iterator[str]:
        yield from context.run_task(Task(lambda pair: (f"ran on {one}" for one in [pair]), 1))

    _, heard = asked(jobs, "a", Job("race", 0, work))
    assert heard.ended() and heard.values == ["ran on pair"]


def test_a_lost_device_ends_the_page(made) -> None:
    """After a lost device its visitor is told, the page's owner is called, and the page is no longer healthy."""
    ended = threading.Event()
    jobs = made(on_lost=ended.set)

    def lose(pair: str) -> Iterator[None]:
        yield None
        raise DeviceLost("CUDA error: device-side assert triggered")

    def work(context: JobContext) -> Iterator[str]:
        yield from context.run_task(Task(lose, 1))

    _, heard = asked(jobs, "a", Job("race", 0, work))
    assert ended.wait(WAIT) and heard.ended()
    assert isinstance(heard.errors[0], DeviceLost) and not jobs.health()["ok"]
