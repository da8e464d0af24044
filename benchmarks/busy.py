"""Races on a quiet machine and on a busy one: ``python -m benchmarks.busy 20``.

Runs so many races of the embedded pair as the page does, each until its verdict is clear, first alone and then beside
two processes that only count. Prints how often each kind of verdict came, the shares of their time in which the lanes
had a processor, and each verdict of the busy machine whose spread does not reach the speed-up of the quiet one.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from statistics import median
from typing import NamedTuple

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.events import Event
from specdec.lanes.race import race
from specdec.lanes.table import BASELINE, DEFAULT_KEYS, LOOP, turned
from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import compute_metrics
from specdec.measure.result import by_lane
from specdec.report.race_verdict import race_verdict
from specdec.report.verdict import Verdict, another_run

PROMPTS = ("Once upon a time", "def fibonacci(n):\n", "The weather today is")
TOKENS = 128


class Found(NamedTuple):
    """A race's kind of verdict, its lowest, median and highest speed-up, and the lowest share of each run."""

    kind: str
    spread: tuple[float, float, float]
    shares: list[float]


def raced(pair: specdec.Pair, prompt: str) -> Found:
    """A race that runs until its verdict is clear."""
    runs: list[dict[str, list[Event]]] = []
    verdict: Verdict | None = None
    began = time.perf_counter()
    while verdict is None or another_run(verdict, time.perf_counter() - began):
        params = specdec.SamplingParams(TOKENS, ignore_eos=True)
        batches = race(pair, prompt, params=params, lanes=turned(DEFAULT_KEYS, len(runs)))
        runs.append(by_lane(chain.from_iterable(batches), DEFAULT_KEYS))
        verdict = race_verdict(runs)
    sides = [
        RunMetrics(*(compute_metrics(run[key]) for key in (BASELINE.key, "speculative", LOOP.key))) for run in runs
    ]
    gains = sorted(side.gain or 0.0 for side in sides)
    return Found(verdict.kind, (gains[0], gains[(len(gains) - 1) // 2], gains[-1]), [min(s.cpu_shares) for s in sides])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processors busy."""
    others = [multiprocessing.Process(target=_count, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    yield
    for other in others:
        other.terminate()


def _count() -> None:
    while True:
        sum(range(100_000))


def main(times: int = 20) -> None:
    leave_a_core()
    pair = specdec.load_pair()
    quiet: dict[str, float] = {}
    for others in (0, 2):
        with busy(others):
            found = [(prompt, raced(pair, prompt)) for prompt in (PROMPTS * times)[:times]]
        shares = sorted(chain.from_iterable(each.shares for _, each in found))
        print(f"{others} other processes, {times} races: {dict(Counter(each.kind for _, each in found))}")
        print(f"lowest share of a run: {shares[0]:.2f}, median {median(shares):.2f}; runs {len(shares)}")
        if not others:
            quiet = {p: median(each.spread[1] for name, each in found if name == p) for p in PROMPTS}
            continue
        for prompt, (kind, (low, _, high), _) in found:
            if kind not in ("busy", "noisy") and not low <= quiet[prompt] <= high:
                print(f"contradicted: {kind} {low:.2f} to {high:.2f}x, {quiet[prompt]:.2f}x on the quiet machine")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
