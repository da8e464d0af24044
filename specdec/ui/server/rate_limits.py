"""Counts how often each address sends requests, and knows which sessions listen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from specdec.ui.server.request_checks import Refusal

ADDRESSES = 10_000  # with a bucket; the ones unused for longest are dropped
HANDOVER = 1.0  # seconds for which a session's next stream waits until the one before has closed

log = logging.getLogger(__name__)


class Rate(NamedTuple):
    """How often an address may send requests: ``burst`` times at once, and ``per_second`` in the long run."""

    burst: float
    per_second: float


class Buckets:
    """A token bucket for each address: a request takes tokens, and ``rate`` refills the bucket."""

    def __init__(self, rate: Rate):
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # tokens, and the time when they were counted

    def take(self, address: str, amount: float = 1) -> float:
        """Take so many tokens. Returns 0, or the seconds until there are enough, and takes none."""
        now = time.monotonic()
        tokens, counted = self._buckets.pop(address, (self._rate.burst, now))
        tokens = min(self._rate.burst, tokens + (now - counted) * self._rate.per_second)
        enough = tokens >= amount
        self._buckets[address] = (tokens - amount * enough, now)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if enough else (amount - tokens) / self._rate.per_second

    def put_back(self, address: str) -> None:
        """Put back a token that was taken."""
        if address in self._buckets:
            tokens, counted = self._buckets[address]
            self._buckets[address] = (tokens + 1, counted)


class OpenStreams:
    """The open streams: how many each address has, and which sessions listen for answers.

    ``on_left(session)`` is called when the stream of a session closes, on the event loop's thread, so it must not wait.
    ``of_address`` and ``in_all`` limit the streams. An open page has one that says only that
    it is there, and one more while it waits for an answer. A session has at most one stream for answers, because Gradio
    would send each answer to only one of two.
    """

    def __init__(self, on_left: Callable[[str], None] = lambda session: None, of_address: int = 60, in_all: int = 1000):
        self.on_left = on_left
        self._of_address, self._in_all = of_address, in_all
        self._addresses: Counter[str] = Counter()
        self._sessions: set[str] = set()

    def listening(self, session: str) -> bool:
        return session in self._sessions

    async def closed(self, session: str) -> None:
        """Wait until a session has no stream, but not for long: a page opens its next one as it closes the last."""
        for _ in range(20):
            if session not in self._sessions:
                return
            await asyncio.sleep(HANDOVER / 20)

    def opened(self, address: str, session: str | None = None) -> ExitStack:
        """Count an open stream, which carries the answers of ``session`` if one is named.

        Raises ``Refusal`` at a cap, and if the session has such a stream already. Closing the result ends the count;
        closing it again does nothing.
        """
        if session in self._sessions:
            raise Refusal(409, "Another open stream gets the answers of this session. Close that one first.")
        if self._addresses[address] >= self._of_address:
            raise Refusal(429, "Too many pages are open at your address. Close one.", **{"Retry-After": "10"})
        if self._addresses.total() >= self._in_all:
            raise Refusal(503, "Too many visitors have this page open. Try again later.", **{"Retry-After": "60"})
        stream = ExitStack()
        self._addresses[address] += 1
        stream.callback(_count_out, self._addresses, address)
        if session is not None:
            self._sessions.add(session)
            stream.callback(self._closed, session)
        return stream

    def _closed(self, session: str) -> None:
        self._sessions.discard(session)
        try:
            self.on_left(session)
        except Exception:
            log.exception("The callback for a session that left failed.")  # the stream must end all the same


def _count_out(counter: Counter[str], key: str) -> None:
    """Count one less, and drop the key at zero."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
