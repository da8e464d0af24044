"""The start-up race gives way to every kind of work and greets whoever comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import gradio as gr
import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny

import specdec
from specdec.ui import startup as module
from specdec.ui.api import add_endpoints
from specdec.ui.limits import LOCAL
from specdec.ui.startup import StartupRace
from specdec.ui.work import Work

VISITOR = SimpleNamespace(session_hash="a")


@pytest.fixture
def work(monkeypatch) -> Iterator[Work]:
    """A page's work whose start-up race is long enough to be interrupted."""
    monkeypatch.setattr(module, "TOKENS", 100)
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())
    slot = SimpleNamespace(pair=pair, loaded=True)
    work = Work(slot, StartupRace(pair, "Once upon a time"))
    yield work
    work.startup.give_way()


def greets(work: Work) -> bool:
    """Whether a visitor who comes now is shown the whole race."""
    text = work.startup.lines()
    return text is not None and '"event":"verdict"' in text


def endpoints(work: Work) -> dict:
    with gr.Blocks() as demo:
        add_endpoints(work, LOCAL)
    return {fn.api_name: fn.fn for fn in demo.fns.values()}


def test_after_a_job_that_fails(work: Work) -> None:
    with pytest.raises(RuntimeError), work.job().turn(VISITOR):
        raise RuntimeError
    assert greets(work)


def test_a_job_without_a_pair_leaves_the_queue(work: Work) -> None:
    """Nobody is told that it stands ahead of them."""

    class Empty:
        loaded = False

        @property
        def pair(self):
            raise specdec.LoadFailed("No pair is loaded; load one first.")

    work.slot = Empty()
    job = work.job()
    job.arm(VISITOR)
    with pytest.raises(specdec.LoadFailed), job.turn(VISITOR):
        pass
    assert job.arm(SimpleNamespace(session_hash="b")) == ""


def test_after_a_visitor_who_leaves_in_the_middle(work: Work) -> None:
    job = work.job()

    def run():
        with job.turn(VISITOR):
            while True:
                yield

    running = run()
    next(running)
    running.close()
    assert greets(work)


@pytest.mark.parametrize("name", ["decode", "race"])
@pytest.mark.parametrize("left", [False, True], ids=["ended", "left"])
def test_after_a_call_of_a_program(work: Work, name: str, left: bool) -> None:
    steps = endpoints(work)[name]("Once", max_new_tokens=4)
    next(steps)
    if left:
        steps.close()
    else:
        list(steps)
    assert greets(work)


@pytest.mark.parametrize("name", ["decode", "race"])
def test_after_a_call_that_is_refused(work: Work, name: str) -> None:
    with pytest.raises(gr.Error):
        list(endpoints(work)[name]("Once", gamma=99))
    assert greets(work)


def test_it_gave_way(work: Work) -> None:
    """The tests above interrupt it: while a job runs there is no race to show."""
    with work.machine():
        assert work.startup.lines() is None
