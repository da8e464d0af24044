"""Compare greedy texts token by token. A difference is excused only where rounding decides between two logits.

``FULL`` and ``HOURS`` say how much of the suite was asked for: ``--full`` and ``--hours`` of tests/conftest.py.
"""

from __future__ import annotations

import os

import torch
from transformers import RepetitionPenaltyLogitsProcessor

FULL, HOURS = (name in os.environ for name in ("SPECDEC_FULL", "SPECDEC_HOURS"))
TIE = 1e-4
POSITIONS_PER_TIE = 5_000


class Comparison:
    """Compares texts and counts the near-ties that it excused."""

    def __init__(self) -> None:
        self.positions = 0
        self.ties: list[str] = []

    def require_same(self, target, prompt_ids, ours, reference, repetition_penalty: float = 1.0) -> None:
        position = first_difference(ours, reference)
        self.positions += len(reference) if position is None else position
        if position is None:
            return
        assert position < min(len(ours), len(reference)), f"{len(ours)} tokens instead of {len(reference)}"
        gap = top_two_gap(target, torch.cat([prompt_ids, torch.tensor(reference[:position])]), repetition_penalty)
        where = f"token {position}: {ours[position]} instead of {reference[position]}, gap {gap:.1e} of the logit range"
        assert gap < TIE, where
        self.ties.append(where)

    def require_few_ties(self) -> None:
        """At most one in 5,000 positions; with fewer than that, none."""
        assert len(self.ties) * POSITIONS_PER_TIE <= self.positions, self.ties


def first_difference(ours: tuple[int, ...], reference: tuple[int, ...]) -> int | None:
    if ours == reference:
        return None
    pairs = enumerate(zip(ours, reference, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(reference)))


def top_two_gap(target, ids: torch.Tensor, repetition_penalty: float) -> float:
    """The gap of the target's best two logits after ``ids``, as a share of the range of all logits."""
    with torch.inference_mode():
        logits = target(input_ids=ids[None].long()).logits[0, -1:]
    if repetition_penalty != 1.0:
        logits = RepetitionPenaltyLogitsProcessor(repetition_penalty)(ids[None].long(), logits)
    best = logits[0].topk(2).values
    return float((best[0] - best[1]) / (logits.max() - logits.min()))
