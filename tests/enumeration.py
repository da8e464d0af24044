"""Go through every outcome of each random choice that the engine makes, with its chance.

The engine draws by the two functions of ``specdec.runtime.draws``. Here they ask a ``Script`` instead, which takes one
outcome and notes what it left out. Run again and again from the start, the same code walks every path, and the chances
of all paths add up to the exact distribution of what it writes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from unittest import mock

import torch

import specdec
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
        numbers = like.new_full((count,), math.nan).as_subclass(Undecided)
        numbers.script = self
        return numbers


class Undecided(torch.Tensor):
    """Uniform numbers that are chosen when they are compared: below a bound, or not."""

    def __lt__(self, bounds: torch.Tensor) -> torch.Tensor:
        below: list[bool] = []
        for i, bound in enumerate(bounds.double().clamp(0, 1).tolist()):
            if self.script.every or all(below):
                below.append(self.script.choose([bound, 1 - bound]) == 0)
            else:
                below.append(bound > 0)
            self[i] = bound / 2 if below[-1] else (1 + bound) / 2
        return torch.tensor(below, dtype=torch.bool, device=self.device)


def distribution(write: Callable[[], object], every: bool = False) -> tuple[dict, int]:
    """The chance of each value that ``write`` returns, and how many paths lead there."""
    script, chances, paths = Script(every), defaultdict(float), 0
    with mock.patch.multiple(draws, draw=script.draw, uniform=script.uniform):
        while True:
            value = write()
            chances[value] += script.chance
            paths += 1
            if not script.next():
                return dict(chances), paths


def processed(logits: torch.Tensor, params: specdec.SamplingParams, before: Sequence[int] = ()) -> torch.Tensor:
    """The distribution that the settings ask for after the ids ``before``, by their definitions, in float64."""
    logits = logits.double().clone()
    seen = torch.tensor(sorted(set(before)), dtype=torch.long)
    penalty = params.repetition_penalty
    logits[seen] = torch.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    logits = logits / params.temperature
    if params.top_k:
        logits[logits < logits.topk(min(params.top_k, len(logits))).values[-1]] = -math.inf
    p = logits.softmax(-1)
    ordered, index = p.sort(descending=True)
    p[index[ordered.cumsum(0) - ordered >= params.top_p]] = 0
    p[p < params.min_p * p.max()] = 0
    return p / p.sum()


class Target:
    """What a table writes alone: after each text the chance of the next token, until EOS or the length."""

    def __init__(self, table: torch.Tensor, prompt: Sequence[int], params: specdec.SamplingParams, eos=frozenset()):
        self.table, self.prompt, self.params, self.eos = table, tuple(prompt), params, eos
        self._rows: dict[tuple[int, ...], list[float]] = {}

    def ended(self, text: tuple[int, ...]) -> bool:
        return len(text) == self.params.max_new_tokens or bool(text) and text[-1] in self.eos

    def next(self, text: tuple[int, ...]) -> list[float]:
        """The chance of each token after ``text``."""
        if text not in self._rows:
            ids = (*self.prompt, *text)
            order = self.table.dim() - 1
            logits = self.table[ids[-order:]]
            self._rows[text] = processed(logits, self.params, ids).tolist()
        return self._rows[text]

    def completed(self, chances: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
        """The chance of each whole text where ``chances`` are those of its beginnings."""
        whole, todo = defaultdict(float), list(chances.items())
        while todo:
            text, p = todo.pop()
            if self.ended(text):
                whole[text] += p
            else:
                todo += [((*text, i), p * q) for i, q in enumerate(self.next(text)) if q > 0]
        return dict(whole)


class OfModel(Target):
    """What a model of few ids writes alone."""

    def __init__(self, model, prompt: Sequence[int], params: specdec.SamplingParams):
        super().__init__(torch.zeros(1, 1), prompt, params)
        self.model = model

    @torch.inference_mode()
    def next(self, text: tuple[int, ...]) -> list[float]:
        if text not in self._rows:
            ids = (*self.prompt, *text)
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, -1]
            self._rows[text] = processed(logits, self.params, ids).tolist()
        return self._rows[text]


def distance(ours: dict, exact: dict) -> float:
    """The largest difference between the chances of one outcome."""
    return max(abs(ours.get(outcome, 0.0) - exact.get(outcome, 0.0)) for outcome in ours.keys() | exact.keys())
