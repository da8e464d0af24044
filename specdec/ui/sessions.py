"""Bounds on what Gradio's queue keeps about its sessions.

Gradio 6.31 keeps the messages of the 2,000 sessions that came last. When it drops one that still waits, its queue ends
with a KeyError and no job runs any more. It keeps the numbers of ended jobs for ever, and computes statistics of 10,000
jobs at the end of each.
"""

from __future__ import annotations

from asyncio import Queue as AsyncQueue
from typing import Any

from gradio.queueing import EventMessage, Queue
from gradio.utils import LRUCache

SESSIONS = 2000


class _Messages(LRUCache):
    """The messages of each session. Sessions with unfinished jobs are dropped last, and messages to a session that is
    not there are discarded."""

    def __init__(self, queue: Queue):
        super().__init__(SESSIONS)
        self._jobs = queue.pending_event_ids_session

    def __setitem__(self, session: str, messages: Any) -> None:
        if session not in self and len(self) >= self.max_size:
            oldest = next((one for one in self if not self._jobs.get(one)), next(iter(self)))
            del self[oldest]
            self._jobs.pop(oldest, None)
        super().__setitem__(session, messages)

    def __missing__(self, session: str) -> AsyncQueue[EventMessage]:
        return AsyncQueue()


def bound_sessions(queue: Queue) -> None:
    """Bound what a queue keeps. To be called before it starts."""
    queue.pending_messages_per_session = _Messages(queue)
    queue.ANALYTICS_MAX_EVENTS = 1
    queue.ANAYLTICS_CACHE_FREQUENCY = 10**9  # never compute the statistics: nothing shows them
