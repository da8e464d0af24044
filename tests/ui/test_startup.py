"""The start-up race runs when nobody wants the machine, gives way to every job, and greets whoever comes after it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny

import specdec
from specdec.ui import startup as module
from specdec.ui.journal import Journal
from specdec.ui.limits import LOCAL
from specdec.ui.machine import Job, Machine, Turn, Visitor
from specdec.ui.startup import StartupRace


@pytest.fixture
def machine(monkeypatch) -> Iterator[Machine]:
    monkeypatch.setattr(module, "TOKENS", 100)  # long enough to be interrupted
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())
    slot = SimpleNamespace(pair=pair, loaded=True, facts=pair.describe())
    machine = Machine(slot, lambda task: task.run(pair), LOCAL, Journal())
    yield machine
    assert machine.close("over", 20)


def greets(race: StartupRace) -> bool:
    """Whether a visitor who comes now is shown the whole race."""
    text = asyncio.run(race.lines())
    last = json.loads(text.splitlines()[-1]) if text else {}
    return last.get("event") == "verdict" and not last["stopped"]


def asked(machine: Machine, work) -> threading.Event:
    over = threading.Event()
    machine.join(Visitor("a", "b"), Job("race", 0, work), lambda kind, value: kind == "end" and over.set())
    return over


def nothing(turn: Turn) -> Iterator[None]:
    return iter(())


def failing(turn: Turn) -> Iterator[None]:
    raise RuntimeError("on purpose")


def test_it_greets(machine: Machine) -> None:
    assert greets(StartupRace(machine, "Once upon a time"))


@pytest.mark.parametrize("work", [nothing, failing], ids=["a job that ends", "a job that fails"])
def test_it_gives_way_and_runs_again(machine: Machine, work) -> None:
    race = StartupRace(machine, "Once upon a time")
    while machine.health()["running"] is None:
        pass
    assert asked(machine, work).wait(20)
    assert greets(race)


def test_while_a_job_runs_there_is_nothing_to_show(machine: Machine, monkeypatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.5)
    release = threading.Event()

    def busy(turn: Turn) -> Iterator[None]:
        release.wait(20)
        yield None

    over = asked(machine, busy)
    race = StartupRace(machine, "Once upon a time")
    assert asyncio.run(race.lines()) is None
    release.set()
    assert over.wait(20)


def test_a_race_of_a_pair_that_is_gone_is_forgotten(machine: Machine) -> None:
    race = StartupRace(machine, "Once upon a time")
    assert greets(race)
    race.forget()
    assert asyncio.run(race.lines()) is None
    race.begin()
    assert greets(race)
