"""Limits what Gradio's queue keeps about its sessions.

Gradio 6.31 keeps all messages of the latest 2,000 sessions, whether or not anybody reads them. When it drops a session
that still waits, its queue ends with a KeyError, and no job runs any more. It keeps the numbers of ended jobs for ever,
and computes statistics of 10,000 jobs at the end of each job.
"""

from __future__ import annotations

import time
from asyncio import Queue as AsyncQueue
from collections.abc import Callable
from typing import Any

from gradio.queueing import EventMessage, Queue
from gradio.server_messages import EstimationMessage
from gradio.utils import LRUCache

from specdec.ui.web_private import compute_no_statistics, jobs_of, look_less_often, replace_messages

SESSIONS = 2000
UNHEARD = 60.0  # seconds for which a session without a listener is kept
REST = 0.02  # seconds between two looks; Gradio's 0.001 costs an idle page 8 % of a core, and runs beside the lanes
FIRST = 500  # messages that wait for the first listener of a session
ESTIMATES = 20  # of these, behind which no further estimate is kept; a later one replaces it


class _Mail(AsyncQueue[EventMessage]):
    """The messages that wait for a session. Further messages are discarded, because its browser does not read them.

    ``since`` is the time of the latest message. A job's first one comes before its browser listens.
    """

    def __init__(self, heard: Callable[[], bool], most: int):
        super().__init__()
        self._heard, self._most, self.since = heard, most, time.monotonic()

    def put_nowait(self, item: EventMessage) -> None:
        self.since = time.monotonic()
        # Each job's start and end tell all waiting jobs their place anew. Many of these would fill a mail that nobody
        # reads yet, and the ends of jobs would be lost, for which a browser waits.
        unheard = ESTIMATES if isinstance(item, EstimationMessage) else FIRST
        if self.qsize() < (self._most if self._heard() else unheard):
            super().put_nowait(item)


class _Messages(LRUCache):
    """The messages of each session. Sessions with unfinished jobs are dropped last.

    Messages to an unknown session are discarded.
    """

    def __init__(self, queue: Queue, listening: Callable[[str], bool], most: int):
        super().__init__(SESSIONS)
        self._jobs, self._listening, self._most = jobs_of(queue), listening, most

    def __setitem__(self, session: str, messages: Any) -> None:
        """Put a bounded queue in place of Gradio's empty one."""
        if session not in self:
            before = time.monotonic() - UNHEARD
            for one in [one for one, mail in self.items() if mail.since < before and not self._listening(one)]:
                del self[one]
            if len(self) >= self.max_size:
                del self[next((one for one in self if not self._jobs.get(one)), next(iter(self)))]
        super().__setitem__(session, _Mail(lambda: self._listening(session), self._most))

    def __delitem__(self, session: str) -> None:
        """Drop a session, also one that Gradio drops while a job of it runs."""
        super().__delitem__(session)
        self._jobs.pop(session, None)

    def __missing__(self, session: str) -> AsyncQueue[EventMessage]:
        return AsyncQueue()


def bound_sessions(queue: Queue, listening: Callable[[str], bool], most: int) -> None:
    """Limit what a queue keeps: ``most`` messages for each session for which ``listening`` is true.

    It also looks for new events less often. Call it before the queue starts.
    """
    look_less_often(queue, REST)
    replace_messages(queue, _Messages(queue, listening, most))
    compute_no_statistics(queue)
