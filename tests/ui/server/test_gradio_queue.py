"""Gradio's queue stores a bounded amount for sessions, whoever joins and whether or not anybody reads."""

from __future__ import annotations

from asyncio import Queue as AsyncQueue
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio.queueing import Queue
from gradio.server_messages import EstimationMessage

from specdec.ui.server import gradio_queue

MOST = 800


@pytest.fixture
def heard() -> set[str]:
    """The sessions with a listener."""
    return set()


@pytest.fixture
def queue(heard: set[str]) -> Queue:
    queue = gr.Blocks()._queue
    gradio_queue.bound_sessions(queue, heard.__contains__, MOST)
    return queue


def join(queue: Queue, session: str) -> None:
    """Join as Gradio accepts a job, which reports at once how many are ahead."""
    if session not in queue.pending_messages_per_session:
        queue.pending_messages_per_session[session] = AsyncQueue()
    queue.pending_event_ids_session.setdefault(session, set()).add("a job")
    queue.pending_messages_per_session[session].put_nowait("estimation")


def test_messages_that_nobody_reads_are_bounded(queue, heard) -> None:
    join(queue, "a")
    mail = queue.pending_messages_per_session["a"]
    mail.get_nowait()
    for number in range(1000):
        mail.put_nowait(number)
    assert mail.qsize() == gradio_queue.FIRST
    heard.add("a")
    for number in range(1000):
        mail.put_nowait(number)
    assert mail.qsize() == MOST and mail.get_nowait() == 0


def test_many_estimates_leave_room_for_the_ends_of_jobs(queue, heard) -> None:
    """Jobs that wait in one session are all told their place at each start and end, also before anybody listens."""
    join(queue, "a")
    mail = queue.pending_messages_per_session["a"]
    for number in range(100):
        for _ in range(number):
            mail.put_nowait(EstimationMessage(queue_size=number))
        mail.put_nowait(f"the end of job {number}")
    waiting = [mail.get_nowait() for _ in range(mail.qsize())]
    assert [each for each in waiting if str(each).startswith("the end")] == [f"the end of job {n}" for n in range(100)]
    assert len(waiting) <= 101 + gradio_queue.ESTIMATES
    heard.add("a")
    mail.put_nowait(EstimationMessage(queue_size=1))
    assert mail.qsize() == 1


def test_a_session_without_a_listener_is_dropped(queue, heard, monkeypatch) -> None:
    heard.add("heard")
    for session in ("heard", "unheard"):
        join(queue, session)
    monkeypatch.setattr(gradio_queue, "UNHEARD", 0.0)
    join(queue, "next")
    assert set(queue.pending_messages_per_session) == {"heard", "next"} == set(queue.pending_event_ids_session)


def test_a_job_after_a_pause_is_heard(queue, heard, monkeypatch) -> None:
    """A job is heard even if another session joins before its browser opens the stream."""
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(gradio_queue, "time", clock)
    now = 0.0
    join(queue, "a")
    now = 1000.0
    join(queue, "a")
    join(queue, "b")
    assert set(queue.pending_messages_per_session) == {"a", "b"}
    now += gradio_queue.UNHEARD + 1
    join(queue, "c")
    assert set(queue.pending_messages_per_session) == {"c"}


def test_waiting_sessions_are_dropped_last(queue, monkeypatch) -> None:
    for number in range(gradio_queue.SESSIONS):
        join(queue, f"{number}")
    queue.pending_event_ids_session["7"].clear()
    join(queue, "one more")
    assert "7" not in queue.pending_messages_per_session and "0" in queue.pending_messages_per_session
    join(queue, "and one")
    assert (
        "0" not in queue.pending_messages_per_session and len(queue.pending_event_ids_session) == gradio_queue.SESSIONS
    )
    queue.pending_messages_per_session["0"].put_nowait("lost")


def test_a_visitor_who_leaves_leaves_nothing_behind(queue) -> None:
    """A visitor who leaves leaves nothing behind. Gradio alone would keep the running job's number for ever."""
    join(queue, "a")
    del queue.pending_messages_per_session["a"]
    assert not queue.pending_event_ids_session
