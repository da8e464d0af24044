"""Counts the jobs that wait for the machine: how many stand before a visitor's, and about how long they take."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Hashable, Iterator

MOMENT = 0.5  # seconds: what took less was refused


class Turns:
    """The jobs that have not ended, and how many seconds the latest one took. A ticket stands for a visitor's job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Hashable] = set()
        self._seconds: float | None = None

    def wait(self, ticket: Hashable) -> str:
        """Note a job; say what is ahead of it, or nothing."""
        with self._lock:
            ahead = len(self._waiting - {ticket})
            self._waiting.add(ticket)
        if not ahead:
            return ""
        about = "" if self._seconds is None else f", about {ahead * self._seconds:.0f}\u00a0s"
        return f"Waiting: {ahead} ahead{about}."

    def forget(self, ticket: Hashable) -> None:
        """Take a job off the count."""
        with self._lock:
            self._waiting.discard(ticket)

    @contextlib.contextmanager
    def running(self, ticket: Hashable, stop: threading.Event) -> Iterator[None]:
        """Time a job and take it off the count at its end. The time of a stopped one is not kept."""
        began = time.monotonic()
        try:
            yield
        finally:
            if (took := time.monotonic() - began) > MOMENT and not stop.is_set():
                self._seconds = took
            self.forget(ticket)
