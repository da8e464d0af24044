"""Tests the steps of engines with a fault: ``python -m benchmarks.step_faults [tries] [tokens]``.

Each try writes texts of ``tokens`` tokens together with the embedded pair, as the test of losslessness does, and tests
their steps. Prints for each engine how many tries found a difference, by which checks, and the seconds of a try.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import specdec
from specdec.drafters.autoregressive import ChainDraft
from specdec.measure.losslessness import PROMPT
from specdec.measure.step_test import step_test
from specdec.runtime import draws

verify = importlib.import_module("specdec.engine.verify")
TEXT = 128  # tokens of a text


class _Drawing:
    """A sampler that draws at another temperature than that of the probabilities."""

    def __init__(self, sampler: Any, temperature: float):
        self._sampler, self._temperature = sampler, temperature

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def draw(self, probabilities: torch.Tensor) -> torch.Tensor:
        warmed = probabilities ** (1 / self._temperature)
        return draws.draw(warmed / warmed.sum(-1, keepdim=True), self._sampler.rng)


def guesses_at(temperature: float) -> Any:
    """Guesses are drawn at ``temperature``, and q is that of temperature 1."""
    whole = ChainDraft._draft

    def draft(self: Any, *arguments: Any) -> Any:
        sampler = self._sampler
        self._sampler = _Drawing(sampler, temperature)
        try:
            return whole(self, *arguments)
        finally:
            self._sampler = sampler

    return patch.object(ChainDraft, "_draft", draft)


def ratios_times(factor: float) -> Any:
    """Guesses are accepted with min(1, factor * p/q)."""
    ratios = verify._ratios
    return patch.object(verify, "_ratios", lambda *arguments: factor * ratios(*arguments))


@contextmanager
def right() -> Iterator[None]:
    yield


ENGINES: dict[str, Callable[[], Any]] = {
    "right": right,
    "guesses drawn at temperature 1.3, q of 1": lambda: guesses_at(1.3),
    "guesses drawn at temperature 0.7, q of 1": lambda: guesses_at(0.7),
    "p/q times 1.1": lambda: ratios_times(1.1),
}


def main(tries: int = 20, tokens: int = 2000) -> None:
    pair = specdec.load_pair()
    for name, fault in ENGINES.items():
        found: Counter[str] = Counter()
        seconds = []
        for seed in range(tries):
            began = time.perf_counter()
            with fault():
                findings = step_test(pair, texts(pair, tokens, seed))
            seconds.append(time.perf_counter() - began)
            found.update(check.kind for check in findings.checks if check.differs)
            found["any"] += findings.differs
        by = ", ".join(f"{kind} {count}" for kind, count in found.items() if kind != "any") or "none"
        print(f"{name}: {found['any']} of {tries} tries ({by}); {median(seconds):.0f} s a try", flush=True)


def texts(pair: specdec.Pair, tokens: int, seed: int) -> list[list[specdec.Event]]:
    """Texts with ``tokens`` tokens together, without top-k and with top-k 3 in turns."""
    found: list[list[specdec.Event]] = []
    while (
        sum(len(event.committed_ids) for text in found for event in text if isinstance(event, specdec.Round)) < tokens
    ):
        top_k = 3 * (len(found) % 2)
        params = specdec.SamplingParams(TEXT, temperature=1.0, top_k=top_k, seed=1000 * seed + len(found))
        found.append(list(specdec.speculative(pair, PROMPT, gamma=2, params=params)))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
