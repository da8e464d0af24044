"""What a drafter hands to the target."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Proposal(NamedTuple):
    """One draft on the device; g tokens over the target's V ids.

    ``guesses`` are the g tokens and behind them the draft's choices at m positions that it read only now, because the
    target had added a token there before the draft could; ``logits`` are the raw ones of both, in parts as they came.
    A copied draft has none, nor has, in greedy, one made in another vocabulary. These say themselves how sure they
    were: ``nats`` are -log of their probability of each token.
    """

    ids: torch.Tensor  # (g,)
    q: torch.Tensor | None  # (g, V), the distribution each id was drawn from; None in greedy
    logits: tuple[torch.Tensor, ...]  # (g + m, V) together
    guesses: torch.Tensor  # (g + m,)
    nats: torch.Tensor | None = None  # (g,), where there are no ``logits``


def nothing(vocabulary: int, device: torch.device) -> Proposal:
    """A draft of no tokens."""
    ids = torch.empty(0, dtype=torch.long, device=device)
    return Proposal(ids, torch.empty(0, vocabulary, device=device), (), ids, torch.empty(0, device=device))
