"""The one machine and its visitors: whose turn it is, how their work is stopped, and what gives way to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import gradio as gr

from specdec.models import Pair
from specdec.slot import Slot
from specdec.ui.startup import StartupRace
from specdec.ui.turns import Turns


class Work:
    """A stop flag for each visitor, a queue to tell of, and the pair as it is when a visitor's turn comes."""

    def __init__(self, slot: Slot, startup: StartupRace):
        self._slot, self._startup, self._turns = slot, startup, Turns()
        self._flags: dict[str, threading.Event] = {}
        self._running: dict[str, threading.Event] = {}  # another tab of the page may have asked for more meanwhile

    def arm(self, request: gr.Request) -> str:
        """Before the queue: a fresh flag; says what is ahead, or nothing."""
        self._flags[request.session_hash] = threading.Event()
        return self._turns.wait(request.session_hash)

    @contextlib.contextmanager
    def turn(self, request: gr.Request) -> Iterator[tuple[Pair, threading.Event]]:
        """The loaded pair and the visitor's flag, while the machine is theirs."""
        visitor = request.session_hash
        stop = self._running[visitor] = self._flags.setdefault(visitor, threading.Event())
        self._startup.give_way()
        try:
            with self._turns.running(visitor, stop):
                pair = self._slot.pair
                yield pair, stop
        finally:
            self._running.pop(visitor, None)
        self._startup.catch_up(pair)

    def stop(self, request: gr.Request) -> None:
        """End what runs and what waits."""
        for flags in (self._flags, self._running):
            if flag := flags.get(request.session_hash):
                flag.set()

    def done(self, request: gr.Request) -> None:
        """What a visitor asked for has ended, or never came to its turn."""
        self._turns.forget(request.session_hash)

    def leave(self, request: gr.Request) -> None:
        """A visitor left: what still runs ends too, as nobody is there to see it."""
        self.stop(request)
        self._flags.pop(request.session_hash, None)
        self.done(request)
