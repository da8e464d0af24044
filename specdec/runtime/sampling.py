"""From logits to a token: one route for target and draft, built from transformers' logits processors.

Rejection sampling is exact only if ``q`` is the very distribution that the draft token was drawn from. So both models
go through the same processors, in the order of ``generate`` and in float32.
"""

from __future__ import annotations

import torch
from transformers import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdec.events import SamplingParams
from specdec.runtime import draws
from specdec.runtime.grammar import Masks
from specdec.runtime.tokens import TokenBuffer


class Sampler:
    """Applies one call's ``SamplingParams`` to rows of logits and draws from them with the call's one generator.

    ``masks``: those of the call's grammar, if it has one; a draft that need not obey it has none.
    """

    def __init__(self, params: SamplingParams, rng: torch.Generator, masks: Masks | None = None):
        self.greedy = params.greedy
        self.rng = rng
        self.masks = masks
        self.reads_ids = params.repetition_penalty != 1.0 or masks is not None  # a row depends on the ids before it
        self.takes_largest = params.greedy and not self.reads_ids  # of the raw logits
        self._penalty = None
        if params.repetition_penalty != 1.0:
            self._penalty = RepetitionPenaltyLogitsProcessor(float(params.repetition_penalty))
        self._warpers: list[LogitsProcessor] = []  # these work row by row and do not need the ids
        if not params.greedy:
            if params.temperature != 1.0:
                self._warpers.append(TemperatureLogitsWarper(float(params.temperature)))
            if params.top_k > 0:
                self._warpers.append(TopKLogitsWarper(params.top_k))
            if params.top_p < 1.0:
                self._warpers.append(TopPLogitsWarper(float(params.top_p)))
            if params.min_p > 0.0:
                self._warpers.append(MinPLogitsWarper(float(params.min_p)))

    def process(self, logits: torch.Tensor, context: TokenBuffer, end: int) -> torch.Tensor:
        """Processed logits (n, V) from raw logits (n, V).

        The last row was computed from the context's first ``end`` ids, and each earlier row from one id less. A
        repetition penalty and a grammar must not see the draft tokens after their own position.
        """
        if self._penalty is not None:
            ends = range(end - len(logits) + 1, end + 1)
            rows = [self._penalty(context.ids_before(n)[None], logits[i : i + 1].clone()) for i, n in enumerate(ends)]
            logits = torch.cat(rows)
        if self.masks is not None:
            drafted = context.ids(context.length, end).tolist() if end > context.length else []
            logits = self.masks.apply(logits, [*context.tokens[:end], *drafted])
        for warper in self._warpers:  # transformers' list class reads their signatures at every call
            logits = warper(None, logits)
        return logits

    def probabilities(self, processed: torch.Tensor) -> torch.Tensor:
        """The rows as distributions, (n, V) in float32."""
        return processed.softmax(-1, dtype=torch.float32)

    def draw(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Draw one token id from each row, (n,)."""
        return draws.draw(probabilities, self.rng)


def settings_of(params: SamplingParams) -> tuple[float, ...]:
    """The settings on which the operators of a ``Sampler`` depend."""
    return params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty


def chance_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The probability of ``ids`` (n,) by the softmax of raw logits (n, V), (n,)."""
    return logits.softmax(-1).gather(1, ids[:, None])[:, 0]


def up_to_unsure(chances: torch.Tensor, least: float) -> torch.Tensor:
    """How many of ``chances`` (n,) there are up to and including the first that is below ``least``, ()."""
    unsure = chances < least
    return (unsure.cumsum(0) - unsure.long() == 0).sum()
