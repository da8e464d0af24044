"""Whose turn it is: how many races stand before a visitor's, and about how long they take."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

MOMENT = 0.5  # seconds: what took less was refused


class Turns:
    """Who asked for a race that has not ended, and how many seconds the latest one took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._seconds: float | None = None

    def wait(self, visitor: str) -> str:
        """Note a visitor's race; say what is ahead of it, or nothing."""
        with self._lock:
            ahead = len(self._waiting - {visitor})
            self._waiting.add(visitor)
        if not ahead:
            return ""
        about = "" if self._seconds is None else f", about {ahead * self._seconds:.0f}\u00a0s"
        return f"Waiting: {ahead} ahead{about}."

    def forget(self, visitor: str) -> None:
        """A visitor left."""
        with self._lock:
            self._waiting.discard(visitor)

    @contextlib.contextmanager
    def running(self, visitor: str, stop: threading.Event) -> Iterator[None]:
        """A visitor's race, from its first moment to its end; how long a stopped one took says nothing."""
        began = time.monotonic()
        try:
            yield
        finally:
            if (took := time.monotonic() - began) > MOMENT and not stop.is_set():
                self._seconds = took
            self.forget(visitor)
