"""What every drafter does, and what it hands to the target."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from specdec.passes.context import Context


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


class Drafter(Protocol):
    """What the loop asks of whoever proposes."""

    def prefill(self, context: Context) -> None:
        """Read the prompt, so that the first round drafts at the cost of any other."""

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        """Up to ``gamma`` tokens behind the committed ids, written into the context as well; the first whose raw
        probability is below ``least_confidence`` is the last."""

    def crop_to(self, length: int) -> None:
        """Forget all but the first ``length`` ids."""

    def take_seconds(self) -> float:
        """Seconds in forward passes of its own since the last call of this method."""

    def require_cache(self) -> None:
        """After the prefill: refuse a model that cannot be rolled back."""


class NoDraft:
    """Proposes nothing, so that plain decoding is the same loop (gamma 0)."""

    def __init__(self, vocabulary: int, context: Context):
        self._nothing = nothing(vocabulary, context.device)

    def prefill(self, context: Context) -> None: ...

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        return self._nothing

    def crop_to(self, length: int) -> None: ...

    def take_seconds(self) -> float:
        return 0.0

    def require_cache(self) -> None: ...
