"""The queue of jobs, and the threads that run them.

What takes time is a job: races, measurements, calls by programs, loading a pair, reading results and files. One thread
runs the jobs that need the device, one after another, and a second thread runs the others. The web server's event
loop only reads the form and passes on answers. When a visitor leaves, a flag is set, and nothing waits for the job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, TypeAlias

import gradio as gr

from specdec.errors import DeviceLost, SpecdecError
from specdec.measure.task import Task, TaskRunner
from specdec.models.pair_slot import Slot
from specdec.ui.jobs.context import Cancelled, Job, JobContext, OnResult, QueuedJob, QueuePosition, Refused
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.visitor import Visitor

LOG = logging.getLogger(__name__)

LOOK = 0.02  # seconds between two checks if the session of the next job listens
GRACE = 5.0  # seconds for a visitor's browser to start listening after it asked for a job
EARLY = 3.0  # seconds for which a Stop that came before its job is remembered
LATE = 1.0  # seconds after the end of a job in which a Stop was meant for that job

CANCELLED = "Cancelled. Nothing ran."
Owner: TypeAlias = tuple[str, str]  # a session, and a kind of job


class JobQueue:
    """Runs jobs in the order in which they came: one that needs the device at a time, and beside it one that does not.

    ``listening(session)`` says whether a session listens for its answers; its jobs do not begin before that. ``lent``:
    another process lends the device for each task. ``proxies`` are those of ``address_of``.
    """

    def __init__(
        self,
        slot: Slot,
        runner: TaskRunner,
        limits: Limits,
        journal: JobLog,
        *,
        lent: bool = False,
        proxies: int | None = 0,
    ):
        self.slot, self.limits, self.journal = slot, limits, journal
        self.lent, self.proxies = lent, proxies
        self.listening: Callable[[str], bool] = lambda session: True  # ``server.launch`` sets both
        self.on_lost: Callable[[], None] = lambda: None  # the device is lost
        self._runner = runner
        self._changed = threading.Condition()
        self._line: list[QueuedJob] = []
        self._running: dict[bool, QueuedJob | None] = {True: None, False: None}  # by whether the job needs the device
        self._idle: QueuedJob | None = None
        self._closed: str | None = None
        self._lost = False
        self._stops: dict[Owner, float] = {}  # when somebody stopped a job that had not come yet
        self._ends: dict[Owner, float] = {}  # when jobs ended; of both only the latest seconds are kept
        self._seconds_per_token: dict[str, float] = {}  # of the latest job of each kind
        self._token_seconds: float | None = None  # of the lanes of the latest race, without other work
        self._threads = [
            threading.Thread(target=self._serve, args=(device,), name=name, daemon=True)
            for device, name in ((True, "specdec-jobs"), (False, "specdec-reading"))
        ]
        for thread in self._threads:
            thread.start()

    def join(self, visitor: Visitor, job: Job, tell: OnResult) -> QueuedJob:
        """Take a place at the end of the queue. Raises ``Refused`` with the reason if there is none."""
        place = QueuedJob(visitor, job, tell)
        with self._changed:
            stopped = time.monotonic() - self._stops.pop((visitor.session, job.kind), float("-inf")) < EARLY
            if (why := self._closed or self._no_place(visitor, job.device)) is not None:
                self.journal.wrote(place, "refused", why)
                raise Refused(why)
            if not stopped:
                self._line.append(place)
                running = self._running[job.device]
                if running is not None and running.visitor is None:
                    running.stop.set()  # the page's own race stops for it
                self._changed.notify_all()
        if stopped:
            self._cancel(place, Cancelled(CANCELLED))
        return place

    def when_idle(self, job: Job, tell: OnResult) -> None:
        """Run a job of the page itself when nobody waits. It is stopped when a visitor's job comes."""
        with self._changed:
            self._idle = QueuedJob(None, job, tell)
            self._changed.notify_all()

    def stop(self, session: str, kind: str, *others: str) -> None:
        """Stop a visitor's jobs of a kind, and of ``others`` that the same button stops.

        A waiting one leaves the queue at once, a running one ends with its findings so far. A Stop may overtake its
        job, which Gradio's queue holds for a moment. Then the job is cancelled when it comes.
        """
        owner, now = (session, kind), time.monotonic()
        with self._changed:
            places = [p for p in self._places() if p.visitor and p.visitor.session == session]
            mine = [place for place in places if place.job.kind in (kind, *others)]
            if not mine and now - self._ends.get(owner, float("-inf")) > LATE:
                _remember(self._stops, owner)
        for place in mine:
            self._withdraw(place, Cancelled(CANCELLED))

    def leave(self, place: QueuedJob) -> None:
        """End a job for which nobody waits any more."""
        place.left = True
        self._withdraw(place, Cancelled("The browser did not wait for the answer, so nothing ran. Try again."))

    def left(self, session: str) -> None:
        """End the jobs of a session whose browser no longer listens."""
        with self._changed:
            mine = [p for p in self._places() if p.visitor and p.visitor.session == session]
        for place in mine:
            self.leave(place)

    def ahead(self, place: QueuedJob) -> QueuePosition | None:
        """What ``place`` waits for; None when it has left the queue."""
        with self._changed:
            if place not in self._line:
                return None
            earlier = self._line[: self._line.index(place)]
            same = [p for p in earlier if p.job.device == place.job.device]
            before = [p for p in (self._running[place.job.device], *same) if p and p.visitor]
            if not place.job.device:
                return QueuePosition(len(before), None)
        left = [self._seconds_left(p) for p in before]
        return QueuePosition(len(before), None if None in left else sum(s for s in left if s is not None))

    def expected(self, kind: str, tokens: int, by_race: bool) -> float | None:
        """About how many seconds a job takes; None if not known.

        The estimate is from the latest job of its kind or, with ``by_race``, from the lanes of the latest race.
        """
        with self._changed:
            rate = self._seconds_per_token.get(kind, self._token_seconds if by_race else None)
        return None if rate is None else rate * tokens

    def forget_speeds(self) -> None:
        """Forget the speeds of a pair that is being replaced."""
        with self._changed:
            self._seconds_per_token.clear()
            self._token_seconds = None

    def close(self, why: str, seconds: float = 0.0) -> bool:
        """Accept no more jobs, tell waiting jobs why, stop the running one, and give it ``seconds`` to end.

        Returns whether it has ended.
        """
        with self._changed:
            self._closed, self._idle, waiting = why, None, list(self._line)
            for running in filter(None, self._running.values()):
                running.stop.set()
            self._changed.notify_all()
        for place in waiting:
            self._withdraw(place, Refused(why))
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def health(self) -> dict[str, Any]:
        """For monitors: ``ok``, the kind of job that runs, and how many wait."""
        alive = all(thread.is_alive() for thread in self._threads)
        return {
            "ok": self._closed is None and not self._lost and alive and self.slot.loaded,
            "running": next((place.job.kind for place in self._running.values() if place), None),
            "waiting": len(self._line),
        }

    def _places(self) -> list[QueuedJob]:
        return [*self._line, *filter(None, self._running.values())]

    def _no_place(self, visitor: Visitor, device: bool) -> str | None:
        limits, mine = self.limits, [p.visitor for p in self._places() if p.visitor]
        waiting = sum(place.job.device == device for place in self._line)
        most = limits.waiting if device else limits.waiting_short
        if most is not None and waiting >= most:
            return f"The queue is full: {waiting} jobs are waiting. Try again in a minute. Nothing ran."
        if limits.places is None:
            return None
        if (held := sum(one.session == visitor.session for one in mine)) >= limits.places:
            return f"You already have {held} jobs in the queue. Wait until one ends, or stop one. Nothing ran."
        if (held := sum(one.address == visitor.address for one in mine)) >= limits.places_of_address:
            return f"Your network address already has {held} jobs in the queue. Try again later. Nothing ran."
        return None

    def _withdraw(self, place: QueuedJob, error: Refused) -> None:
        place.stop.set()
        with self._changed:
            if place not in self._line:
                return  # it runs and will notice the flag, or it has ended
            self._line.remove(place)
        self._cancel(place, error)

    def _cancel(self, place: QueuedJob, error: Refused) -> None:
        """End a job that did not begin."""
        self._note_end(place)
        self.journal.wrote(place, "left" if place.left else "cancelled")
        place.tell("error", error)
        place.tell("end", None)

    def _note_end(self, place: QueuedJob) -> None:
        """A Stop that comes soon after this was meant for this job, and for no later one."""
        if place.visitor is not None:
            with self._changed:
                _remember(self._ends, (place.visitor.session, place.job.kind))

    def _seconds_left(self, place: QueuedJob) -> float | None:
        known = self._seconds_per_token
        rate = known.get(place.job.kind, next(reversed(known.values()), None))
        if rate is None:
            return None
        gone = 0.0 if place.began is None else time.monotonic() - place.began
        return max(0.0, place.job.tokens * rate - gone)

    def _serve(self, device: bool) -> None:
        while (place := self._next(device)) is not None:
            place.request_context.run(self._work, place)
            if self._lost:
                self.on_lost()

    def _next(self, device: bool) -> QueuedJob | None:
        """Wait for the next job that needs the device, or that does not; None when the queue closes."""
        with self._changed:
            while self._closed is None:
                line = [place for place in self._line if place.job.device == device]
                place = next((p for p in line if p.visitor and self.listening(p.visitor.session)), None)
                if place is not None:
                    self._line.remove(place)
                elif device and not line:
                    place, self._idle = self._idle, None
                if place is not None:
                    self._running[device], place.began = place, time.monotonic()
                    return place
                for place in [p for p in line if time.monotonic() - p.joined > GRACE]:
                    self.leave(place)  # nobody came to listen for its answer
                self._changed.wait(LOOK if line else None)
        return None

    def _work(self, place: QueuedJob) -> None:
        context = JobContext(self.slot, self._watched, place.stop, self.lent)
        try:
            for value in place.job.work(context):
                if not place.left:
                    place.tell("value", value)
        except (SpecdecError, gr.Error) as error:
            # Its frames hold what the job read, and in a cycle with the error they would stay for a long time.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            context.problem = error
            place.tell("error", error)
        except Exception as error:
            LOG.exception("A job of the kind %s failed.", place.job.kind)
            context.problem = error
            place.tell("error", Refused("The job failed. The log of the program gives the reason."))
        try:
            self._note(place, context)
        except Exception:
            LOG.exception("A job of the kind %s could not be noted.", place.job.kind)
        self._note_end(place)
        with self._changed:
            self._running[place.job.device] = None
            self._changed.notify_all()
        place.tell("end", None)

    def _note(self, place: QueuedJob, context: JobContext) -> None:
        """Remember how fast the job was, and write its line in the log."""
        with self._changed:
            self._token_seconds = context.token_seconds or self._token_seconds
        if place.visitor is None:
            return
        took, job = time.monotonic() - (place.began or 0.0), place.job
        whole = context.problem is None and not place.stop.is_set()
        outcome = type(context.problem).__name__ if context.problem else "left" if place.left else "stopped"
        if whole and job.tokens:
            with self._changed:
                self._seconds_per_token.pop(job.kind, None)  # so that the latest kind comes last
                self._seconds_per_token[job.kind] = took / job.tokens
        self.journal.wrote(place, "done" if whole else outcome, context.problem, took, context.counts)

    def _watched(self, task: Task[Any]) -> Generator[Any, None, None]:
        """Run a task, and notice a lost device, whatever the job does with the error."""
        try:
            with closing(self._runner(task)) as steps:
                yield from steps
        except DeviceLost:
            self._lost = True
            raise


def _remember(times: dict[Owner, float], owner: Owner) -> None:
    """Note this moment, and forget what is older than ``EARLY``."""
    now = time.monotonic()
    for old in [one for one, at in times.items() if now - at > EARLY]:
        del times[old]
    times[owner] = now
