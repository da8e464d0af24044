"""Who proposes: today a draft model. Trees and EAGLE-style heads are out of scope.

A drafter has ``prefill(context)``, ``propose(context, gamma)``, ``crop_to(length)``, ``take_seconds()`` and
``require_croppable()``. It never decides what is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from specdec.context import Context
from specdec.runner import Runner
from specdec.sampling import Sampler


class Proposal(NamedTuple):
    """One draft on the device; g tokens over the target's V ids.

    ``guesses`` are the g tokens and behind them the draft's choices at m positions that it read only now, because the
    target had added a token there before the draft could; ``logits`` are the raw ones of both.
    """

    ids: torch.Tensor  # (g,)
    q: torch.Tensor | None  # (g, V), the distribution each id was drawn from; None in greedy
    logits: torch.Tensor  # (g + m, V) raw
    guesses: torch.Tensor  # (g + m,)


class ModelDraft:
    """A small model that drafts by itself, token by token."""

    def __init__(self, model: PreTrainedModel, vocabulary: int, sampler: Sampler, context: Context):
        self._runner = Runner(model)
        self._rows = model.get_input_embeddings().weight.shape[0]
        self._vocabulary = vocabulary
        self._sampler = sampler
        self._missed: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._nothing = nothing(vocabulary, context.device)

    def prefill(self, context: Context) -> None:
        """Read the prompt, so that the first round drafts at the cost of any other."""
        raw, processed = self._forward(context, context.length, keep=1)
        self._missed = [(raw, processed.argmax(-1))]

    def propose(self, context: Context, gamma: int) -> Proposal:
        """Draft ``gamma`` tokens behind the committed ids and write them into the context."""
        if gamma == 0:
            return self._nothing
        logits, q = [], []
        for i in range(gamma):
            # The first pass feeds everything committed since this cache was last fed: after a full acceptance that
            # is the last draft token too, which was proposed but never read. Later passes feed the token just drafted.
            raw, processed = self._forward(context, context.length + i)
            if len(raw) > 1:
                self._missed.append((raw[:-1], processed[:-1].argmax(-1)))
                raw, processed = raw[-1:], processed[-1:]
            if self._sampler.greedy:
                torch.argmax(processed, -1, out=context.place(i))
            else:
                q.append(self._sampler.probabilities(processed))
                context.place(i).copy_(self._sampler.draw(q[-1]))
            logits.append(raw)
        ids = context.ids(context.length, context.length + gamma)
        missed, self._missed = self._missed, []
        return Proposal(
            ids,
            torch.cat(q) if q else None,
            torch.cat([*logits, *(raw for raw, _ in missed)]),
            torch.cat([ids, *(choice for _, choice in missed)]) if missed else ids,
        )

    def crop_to(self, length: int) -> None:
        self._runner.crop_to(length)

    def take_seconds(self) -> float:
        return self._runner.take_seconds()

    def require_croppable(self) -> None:
        self._runner.require_croppable()

    def _forward(self, context: Context, end: int, keep: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the ids up to ``end`` that are not cached; raw and processed logits over the target's ids."""
        ids = context.ids(len(self._runner), end)
        if self._rows < self._vocabulary:
            # The target may have written an id the draft has no row for; any stand-in will do, as only the guess
            # behind it suffers.
            ids = torch.where(ids < self._rows, ids, torch.zeros_like(ids))
        raw = self._runner.forward(ids, keep).to(context.device)
        if raw.shape[-1] != self._vocabulary:
            # Ids beyond the target's rows cannot be proposed; ids beyond the draft's have probability zero.
            raw = raw[:, : self._vocabulary]
            raw = F.pad(raw, (0, self._vocabulary - raw.shape[-1]), value=float("-inf"))
        return raw, self._sampler.process(raw, context, end)


class NoDraft:
    """Proposes nothing, so that plain decoding is the same loop (gamma 0)."""

    def __init__(self, vocabulary: int, context: Context):
        self._nothing = nothing(vocabulary, context.device)

    def prefill(self, context: Context) -> None: ...

    def propose(self, context: Context, gamma: int) -> Proposal:
        return self._nothing

    def crop_to(self, length: int) -> None: ...

    def take_seconds(self) -> float:
        return 0.0

    def require_croppable(self) -> None: ...


def nothing(vocabulary: int, device: torch.device) -> Proposal:
    """A draft of no tokens."""
    rows = torch.empty(0, vocabulary, device=device)
    ids = torch.empty(0, dtype=torch.long, device=device)
    return Proposal(ids, rows, rows, ids)
