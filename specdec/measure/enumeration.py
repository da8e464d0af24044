"""Go through every outcome of each random choice that the engine makes, with its chance.

The engine draws by the two functions of ``specdec.runtime.draws``. Here they ask a ``Script`` instead, which takes one
outcome and notes what it left out. Run again and again from the start, the same code walks every path, and the chances
of all paths add up to the exact distribution of what it writes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

from specdec.runtime import draws

CLOSE = 1e-6  # chances are computed in float32 by the engine and in float64 here


class Script:
    """The outcomes of one run's choices, and which path comes next.

    ``chance`` is that of the path walked so far. With ``every`` false, an accept test after a rejection is not
    branched: a round ignores its outcome, as the test of ``verify`` shows.
    """

    def __init__(self, every: bool = False):
        self.chance = 1.0
        self.every = every
        self._path: list[list[tuple[int, float]]] = []  # what is left of each choice; the first is the one taken
        self._depth = 0

    def choose(self, chances: Sequence[float]) -> int:
        """The index of the outcome that this path takes. An outcome of probability 0 is never taken."""
        options = [(i, p) for i, p in enumerate(chances) if p > 0]
        if self._depth == len(self._path):
            self._path.append(options)
        taken = self._path[self._depth][0]
        assert taken in options, "the same path meets another choice: the engine depends on more than its draws"
        self._depth += 1
        self.chance *= taken[1]
        return taken[0]

    def next(self) -> bool:
        """Turn to the next path; False where all were walked."""
        assert self._depth == len(self._path), "the same path ends earlier: the engine depends on more than its draws"
        while self._path and len(self._path[-1]) == 1:
            self._path.pop()
        if self._path:
            self._path[-1].pop(0)
        self._depth, self.chance = 0, 1.0
        return bool(self._path)

    def draw(self, probabilities: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        """Stands in for ``draws.draw``."""
        rows = probabilities.double()
        rows = rows / rows.sum(-1, keepdim=True)
        return torch.tensor([self.choose(row) for row in rows.tolist()], device=probabilities.device)

    def uniform(self, count: int, rng: torch.Generator, like: torch.Tensor) -> torch.Tensor:
        """Stands in for ``draws.uniform``."""
        numbers: Undecided = like.new_full((count,), math.nan).as_subclass(Undecided)
        numbers.script = self
        return numbers


class Undecided(torch.Tensor):
    """Uniform numbers that are chosen when they are compared: below a bound, or not."""

    script: Script

    def __lt__(self, bounds: Any) -> torch.Tensor:
        below: list[bool] = []
        for i, bound in enumerate(bounds.double().clamp(0, 1).tolist()):
            if self.script.every or all(below):
                below.append(self.script.choose([bound, 1 - bound]) == 0)
            else:
                below.append(bound > 0)
            self[i] = bound / 2 if below[-1] else (1 + bound) / 2
        return torch.tensor(below, dtype=torch.bool, device=self.device)


def distribution(write: Callable[[], object], every: bool = False) -> tuple[dict[Any, float], int]:
    """The chance of each value that ``write`` returns, and how many paths lead there."""
    script, paths = Script(every), 0
    chances: defaultdict[Any, float] = defaultdict(float)
    with mock.patch.multiple(draws, draw=script.draw, uniform=script.uniform):
        while True:
            value = write()
            chances[value] += script.chance
            paths += 1
            if not script.next():
                return dict(chances), paths


def distance(ours: dict[Any, float], exact: dict[Any, float]) -> float:
    """The largest difference between the chances of one outcome."""
    return max(abs(ours.get(outcome, 0.0) - exact.get(outcome, 0.0)) for outcome in ours.keys() | exact.keys())
