"""The race as a pair comes in: the page is never empty, and the first visitor meets warm models."""

from __future__ import annotations

import json
import threading

from specdec.events import SamplingParams
from specdec.models.pair import Pair
from specdec.ui.ask import Ask
from specdec.ui.limits import Limits
from specdec.ui.stream import stream

TOKENS = 64
SECONDS = 60.0


class StartupRace:
    """Runs one short race in the background; ``lines`` waits for it and gives its JSON lines, or None."""

    def __init__(self, pair: Pair, prompt: str):
        self._prompt = prompt
        self.begin(pair)

    def begin(self, pair: Pair) -> None:
        """Race with this pair; an earlier race must have given way."""
        self._stop, self._done = threading.Event(), threading.Event()
        self._text: str | None = None
        threading.Thread(target=self._run, args=(pair,), daemon=True).start()

    def lines(self) -> str | None:
        self._done.wait(SECONDS)
        return self._text

    def give_way(self) -> None:
        """End the race, if it still runs: somebody wants the machine."""
        if self._done.is_set():
            return
        self._stop.set()
        self._done.wait(SECONDS)

    def catch_up(self, pair: Pair) -> None:
        """Race after all, if it had to give way."""
        if self._stop.is_set() and self._text is None:
            self.begin(pair)

    def forget(self) -> None:
        """End the race and drop what it found: its pair is being replaced."""
        self.give_way()
        self._text = None

    def _run(self, pair: Pair) -> None:
        text, stop, done = "", self._stop, self._done
        ask, limits = Ask(self._prompt, params=SamplingParams(max_new_tokens=TOKENS)), Limits(seconds=SECONDS)
        try:
            for text in stream(pair, ask, limits=limits, stop=stop, origin="startup"):
                pass
        finally:
            # Half a race, or one that failed, is nothing to greet a visitor with.
            last = json.loads(text.splitlines()[-1]) if text else {}
            if "figures" in last and not last["stopped"] and stop is self._stop:
                self._text = text
            done.set()
