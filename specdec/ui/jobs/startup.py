"""Runs a race when a pair is loaded, so that the page is never empty and the models are warm for the first visitor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

from specdec.events import SamplingParams
from specdec.report.recording import shown_alone
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_settings import RaceSettings
from specdec.ui.jobs.race_stream import RaceStep, stream
from specdec.ui.jobs.recorded import recorded_race

TOKENS, RUNS = 64, 3
SECONDS = 60.0
LOOK = 0.2  # seconds between two checks if the race is over


class StartupRace:
    """A short race that runs when nobody else needs the machine, until it has ended once."""

    def __init__(self, jobs: JobQueue, prompt: str):
        self._jobs, self._prompt = jobs, prompt
        self._text: str | None = None
        self._job: Job | None = None
        self._last, self._gave_way = RaceStep(""), False
        self._over = threading.Event()
        self.begin()

    def begin(self) -> None:
        """Race with the loaded pair, and forget an earlier race."""
        ask = RaceSettings(self._prompt, params=SamplingParams(max_new_tokens=TOKENS), runs=RUNS)
        limits = Limits(seconds=SECONDS)
        self._text, self._over = None, threading.Event()
        self._job = job = Job("start-up race", 0, partial(self._steps, ask=ask, limits=limits))
        self._jobs.when_idle(job, partial(self._take, job))

    def forget(self) -> None:
        """Drop the race, because its pair is being replaced."""
        self._text, self._job = None, None
        self._jobs.forget_speeds()
        self._over.set()

    async def lines(self) -> AsyncIterator[str]:
        """The JSON lines that a new visitor sees: the recorded race, then this race when it is over.

        If that takes longer than a minute, or the race fails, nothing follows the recorded race.
        """
        if self._text is None:
            yield recorded_race()
        for _ in range(int(SECONDS / LOOK)):
            if self._over.is_set():
                break
            await asyncio.sleep(LOOK)
        if self._text is not None:
            yield self._text

    def _steps(self, context: JobContext, ask: RaceSettings, limits: Limits) -> Iterator[RaceStep]:
        yield from stream(context, ask, limits=limits, origin="startup")
        self._gave_way = context.stop.is_set()

    def _take(self, job: Job, kind: str, value: Any) -> None:
        if job is not self._job:
            return  # the race of a replaced pair
        if kind == "value":
            self._last = value
        elif kind == "end" and self._gave_way:
            self._jobs.when_idle(job, partial(self._take, job))
        elif kind == "end":
            last, self._last = self._last, RaceStep("")
            shown = last.verdict and last.verdict.figures  # a failed race is not shown
            self._text = shown_alone(last.text) if shown else None
            self._over.set()
