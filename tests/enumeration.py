"""The exact distribution of what a target writes alone, by the definitions of the settings, and how far a call's is."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from comparison import FULL
from fakes import rounds_of

import specdec
from specdec.measure.enumeration import distance, distribution
from specdec.runtime import draws


def processed(
    logits: torch.Tensor, params: specdec.SamplingParams, before: Sequence[int] = (), text: Sequence[int] = ()
) -> torch.Tensor:
    """The distribution that the settings ask for after the ids ``before``, by their definitions, in float64.

    ``text`` are the new ones among them, which a grammar (here a function) is about.
    """
    logits = logits.double().clone()
    if params.grammar is not None:
        allowed = list(params.grammar.allowed(tuple(text)))  # type: ignore[attr-defined]
        logits = torch.full_like(logits, -math.inf).index_copy_(0, torch.tensor(allowed), logits[allowed])
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
            self._rows[text] = processed(logits, self.params, ids, text).tolist()
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
            self._rows[text] = processed(logits, self.params, ids, text).tolist()
        return self._rows[text]


def sampled_apart(
    pair: specdec.Pair,
    acceptance: str = "lossless",
    tokens: int = 4,
    gamma: Any = 2,
    prompt: Sequence[int] = (1, 2, 1),
    **settings: Any,
) -> tuple[float, int]:
    """How far the distribution of sampled texts is from the target's own, and how many paths there are.

    Every outcome of every draw, over rounds that follow each other. The target draws the first token before any draft,
    so all texts begin with the token 1, and their chances are those given that; with ``--full`` they begin with any.
    """
    params = specdec.SamplingParams(temperature=1.5, max_new_tokens=tokens, seed=0, **settings)

    def text() -> tuple[int, ...]:
        lane = specdec.speculative(pair, torch.tensor(prompt), gamma=gamma, params=params, acceptance=acceptance)
        return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(list(lane))))

    def text_after_one() -> tuple[int, ...]:
        draw, first = draws.draw, [torch.tensor([1])]
        with mock.patch.object(draws, "draw", lambda *given: first.pop() if first else draw(*given)):
            return text()

    texts, paths = distribution(text if FULL else text_after_one, every=acceptance == "block")
    exact = OfModel(pair.target, prompt, params).completed({() if FULL else (1,): 1.0})
    return distance(texts, exact), paths
