"""Drafting with a small model that shares the target's tokenizer."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from specdec.drafters.base import Proposal, nothing
from specdec.passes.context import Context
from specdec.passes.runner import Runner
from specdec.passes.sampling import Sampler


class ModelDraft:
    """A small model that drafts by itself, token by token."""

    def __init__(self, runner: Runner, vocabulary: int, sampler: Sampler, context: Context):
        self._runner = runner
        self._rows = runner.model.get_input_embeddings().weight.shape[0]
        self._vocabulary = vocabulary
        self._sampler = sampler
        self._missed: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._nothing = nothing(vocabulary, context.device)

    def prefill(self, context: Context) -> None:
        raw, processed = self._forward(context, context.length, keep=1)
        self._missed = [(raw, processed.argmax(-1))]

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
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
            # A look at the confidence is a wait for the device.
            if least_confidence and raw.softmax(-1)[0, context.place(i)].item() < least_confidence:
                break
        ids = context.place(0, len(logits))
        missed, self._missed = self._missed, []
        return Proposal(
            ids,
            torch.cat(q) if q else None,
            (*logits, *(raw for raw, _ in missed)),
            torch.cat([ids, *(choice for _, choice in missed)]) if missed else ids,
        )

    def crop_to(self, length: int) -> None:
        self._runner.crop_to(length)

    def take_seconds(self) -> float:
        return self._runner.take_seconds()

    def require_cache(self) -> None:
        self._runner.require_cache()

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
