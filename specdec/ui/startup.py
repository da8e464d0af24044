"""The race that runs once a pair is loaded, so that the page is never empty and the first visitor finds warm models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

from specdec.events import SamplingParams
from specdec.report.recording import shown_alone
from specdec.ui.ask import Ask
from specdec.ui.limits import Limits
from specdec.ui.machine import Job, Machine, Turn
from specdec.ui.recorded import recorded_race
from specdec.ui.stream import stream

TOKENS, RUNS = 64, 3
SECONDS = 60.0
LOOK = 0.2  # seconds between two checks whether the race is over


class StartupRace:
    """A short race that runs while nobody else wants the machine, until it has run to its end once."""

    def __init__(self, machine: Machine, prompt: str):
        self._machine, self._prompt = machine, prompt
        self._text: str | None = None
        self._job: Job | None = None
        self._last, self._gave_way = "", False
        self._over = threading.Event()
        self.begin()

    def begin(self) -> None:
        """Race with the pair that is loaded, and forget what an earlier race found."""
        ask = Ask(self._prompt, params=SamplingParams(max_new_tokens=TOKENS), runs=RUNS)
        limits = Limits(seconds=SECONDS)
        self._text, self._over = None, threading.Event()
        self._job = job = Job("start-up race", 0, partial(self._lines, ask=ask, limits=limits))
        self._machine.when_idle(job, partial(self._take, job))

    def forget(self) -> None:
        """Drop what the race found: its pair is being replaced."""
        self._text, self._job = None, None
        self._machine.forget_speeds()
        self._over.set()

    async def lines(self) -> AsyncIterator[str]:
        """What greets a visitor: the JSON lines of the race. Until it is over, the recorded race stands in for it;
        where that takes longer than a minute, or the race fails, nothing follows."""
        if self._text is None:
            yield recorded_race()
        for _ in range(int(SECONDS / LOOK)):
            if self._over.is_set():
                break
            await asyncio.sleep(LOOK)
        if self._text is not None:
            yield self._text

    def _lines(self, turn: Turn, ask: Ask, limits: Limits) -> Iterator[str]:
        yield from stream(turn, ask, limits=limits, origin="startup")
        self._gave_way = turn.stop.is_set()

    def _take(self, job: Job, kind: str, value: Any) -> None:
        if job is not self._job:
            return  # a race of a pair that was replaced
        if kind == "value":
            self._last = value
        elif kind == "end" and self._gave_way:
            self._machine.when_idle(job, partial(self._take, job))
        elif kind == "end":
            # A race that failed is not shown.
            whole = "figures" in json.loads((self._last.splitlines() or ["{}"])[-1])
            self._text = shown_alone(self._last) if whole else None
            self._over.set()
