"""The race at start-up: the page is never empty, and the first visitor meets warm models."""

from __future__ import annotations

import json
import threading
from typing import Any

from specdec.events import SamplingParams
from specdec.ui.ask import Ask
from specdec.ui.limits import Limits
from specdec.ui.stream import stream

TOKENS = 64
SECONDS = 60.0


class StartupRace:
    """Runs one short race in the background; ``lines`` waits for it."""

    def __init__(self, pair: Any, prompt: str):
        self.facts = pair.describe()
        self._stop = threading.Event()
        self._done = threading.Event()
        self._text: str | None = None
        self._work = threading.Thread(target=self._run, args=(pair, prompt), daemon=True)
        self._work.start()

    def lines(self, facts: dict[str, Any]) -> str | None:
        """What was measured, if it was with the pair of these ``facts``."""
        self._done.wait(SECONDS)
        return self._text if facts == self.facts else None

    def give_way(self) -> None:
        """End the race, if it still runs: somebody wants the machine."""
        self._stop.set()
        self._done.wait(SECONDS)

    def _run(self, pair: Any, prompt: str) -> None:
        text = ""
        ask, limits = Ask(prompt, params=SamplingParams(max_new_tokens=TOKENS)), Limits(seconds=SECONDS)
        try:
            for text in stream(pair, ask, limits=limits, stop=self._stop, origin="startup"):
                pass
        finally:
            # Half a race, or one that failed, is nothing to greet a visitor with.
            last = json.loads(text.splitlines()[-1]) if text else {}
            if "figures" in last and not last["stopped"]:
                self._text = text
            self._done.set()
