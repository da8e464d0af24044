"""The one machine and its visitors: who may use it, how their work is stopped, and what gives way to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr

from specdec.models.pair import Pair
from specdec.models.slot import Slot
from specdec.ui.startup import StartupRace
from specdec.ui.turns import Turns

INTERNAL: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}  # a listener of the page alone


class Work:
    """The jobs of all visitors, and the pair as it is when a job begins."""

    def __init__(self, slot: Slot, startup: StartupRace):
        self.slot, self.startup, self.turns = slot, startup, Turns()
        self._jobs: list[Job] = []

    @contextlib.contextmanager
    def machine(self) -> Iterator[Pair]:
        """The loaded pair, for work that needs the machine. The start-up race gives way to it and, if that interrupted
        the race, runs again afterwards, however the work ends: visitors who come later are greeted by it."""
        self.startup.give_way()
        try:
            yield self.slot.pair
        finally:
            if self.slot.loaded:
                self.startup.catch_up(self.slot.pair)

    def job(self) -> Job:
        self._jobs.append(Job(self))
        return self._jobs[-1]

    def leave(self, request: gr.Request) -> None:
        """A visitor left: what still runs ends too, as nobody is there to see it."""
        for job in self._jobs:
            job.leave(request)


class Job:
    """One kind of work a page can ask for, the race or a tab's measurement, with a Stop of its own. A visitor asks for
    one at a time."""

    def __init__(self, work: Work):
        self._work = work
        self._flags: dict[str, threading.Event] = {}
        self._running: set[str] = set()

    def arm(self, request: gr.Request) -> str:
        """Before the queue: a fresh stop flag; says what is ahead, or nothing."""
        self._flags[request.session_hash] = threading.Event()
        return self._work.turns.wait((self, request.session_hash))

    @contextlib.contextmanager
    def turn(self, request: gr.Request) -> Iterator[tuple[Pair, threading.Event]]:
        """The loaded pair and the visitor's flag, while the machine is theirs."""
        visitor = request.session_hash
        stop = self._flags.setdefault(visitor, threading.Event())
        self._running.add(visitor)
        try:
            with self._work.turns.running((self, visitor), stop), self._work.machine() as pair:
                yield pair, stop
        finally:
            self._running.discard(visitor)

    def stop(self, request: gr.Request) -> bool:
        """End it if it runs. Returns whether it still waits: then the page withdraws it from Gradio's queue."""
        if flag := self._flags.get(request.session_hash):
            flag.set()
        return flag is not None and request.session_hash not in self._running

    def refused(self, request: gr.Request) -> None:
        """Note that the job will not run."""
        self._work.turns.forget((self, request.session_hash))

    def stopped(self, request: gr.Request) -> bool:
        """Whether its visitor stopped it."""
        flag = self._flags.get(request.session_hash)
        return flag is not None and flag.is_set()

    def leave(self, request: gr.Request) -> None:
        self.stop(request)
        self._flags.pop(request.session_hash, None)
        self.refused(request)
