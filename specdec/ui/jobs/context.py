"""A job, its place in the queue, and what it gets while it runs."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdec.errors import SpecdecError
from specdec.measure.task import Task, TaskRunner
from specdec.models.pair import Pair
from specdec.models.pair_slot import Slot
from specdec.ui.visitor import Visitor

OnResult = Callable[[str, Any], None]
"""Called with what a job yields: ("value", v) for each value, ("error", e) if it fails, at last ("end", None)."""


class Refused(SpecdecError):
    """The queue did not accept or did not run a job, or the job failed."""


class Cancelled(Refused):
    """A job left the queue before it ran."""


@dataclass
class JobContext:
    """What a job gets while it runs.

    ``counts`` are values for the log besides the job's settings. ``problem`` is an error that the job showed its
    visitor itself. ``token_seconds`` is the time that its lanes took for a token.
    """

    slot: Slot
    runner: TaskRunner
    stop: threading.Event
    lent: bool = False  # the device is lent for each task, and the visitor has little time on it
    counts: dict[str, Any] = field(default_factory=dict)
    problem: Exception | None = None
    token_seconds: float | None = None
    began: float | None = None

    def __post_init__(self) -> None:
        self.began = None if self.lent else time.monotonic()

    @property
    def pair(self) -> Pair:
        return self.slot.pair

    @property
    def seconds(self) -> float:
        """Seconds for which the job has had the device. Waiting for a lent device does not count."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    def run_task(self, task: Task[Any]) -> Generator[Any, None, None]:
        """Run a task on the device and yield its steps.

        On most machines that is ``Task.run`` with the loaded pair, on this thread. On ZeroGPU another process has it.
        """
        with closing(self.runner(task)) as steps:
            for step in steps:
                self.began = self.began or time.monotonic()
                yield step


@dataclass(frozen=True)
class Job:
    """A piece of work for a visitor.

    ``work(context)`` yields values for the visitor, and ends soon after ``context.stop`` is set. ``tokens`` is how many
    new tokens it writes, without the runs that are added until a verdict is clear; the waiting time of other jobs is
    estimated from it. A job that
    does not need the ``device`` is short, and runs beside those that do.
    """

    kind: str
    tokens: int
    work: Callable[[JobContext], Iterator[Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    device: bool = True


class QueuePosition(NamedTuple):
    """What a job waits for: the number of jobs, and about how many seconds; None if not known."""

    jobs: int
    seconds: float | None


@dataclass(eq=False)
class QueuedJob:
    """A job's place in the queue, or on the machine after it ``began``."""

    visitor: Visitor | None  # None for the page's own jobs
    job: Job
    tell: OnResult
    stop: threading.Event = field(default_factory=threading.Event)
    request_context: contextvars.Context = field(default_factory=contextvars.copy_context)  # the visitor's
    joined: float = field(default_factory=time.monotonic)
    began: float | None = None
    left: bool = False
