"""Who proposes: a draft model, the target's own early layers, or the context itself. Trees and EAGLE-style heads are
out of scope.

A drafter never decides what is kept.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F

from specdec.drafters.base import Proposal, nothing
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.own_tokenizer import TranslatedDraft
from specdec.drafters.prompt_lookup import NgramIndex, PromptLookup
from specdec.models.pair import Pair
from specdec.passes.context import Context
from specdec.passes.runner import Runner
from specdec.passes.sampling import Sampler


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


def new_drafter(pair: Pair, drafting: bool, sampler: Sampler, context: Context, target: Runner) -> Drafter:
    """The drafter of one call."""
    if not drafting:
        return NoDraft(pair.vocabulary, context)
    if isinstance(pair.draft, PromptLookup):
        return LookupDraft(pair.draft, pair.vocabulary, sampler, context)
    if isinstance(pair.draft, EarlyExit):
        return EarlyExitDraft(target.sharing(pair.early), pair.vocabulary, sampler, context)
    if pair.translation is not None:
        return TranslatedDraft(pair, sampler, context)
    return ModelDraft(Runner(pair.draft), pair.vocabulary, sampler, context)


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


class LookupDraft(NoDraft):
    """Copies what followed the context's last tokens where they stood before (n-gram or prompt lookup).

    Its q is one-hot, so that rejection sampling stays exact.
    """

    def __init__(self, lookup: PromptLookup, vocabulary: int, sampler: Sampler, context: Context):
        super().__init__(vocabulary, context)
        self._index = NgramIndex(lookup)
        self._vocabulary = vocabulary
        self._greedy = sampler.greedy

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        copied = self._index.continuation(context.tokens, gamma)
        if not copied:
            return self._nothing
        ids = context.place(0, len(copied))
        ids.copy_(torch.tensor(copied))
        q = None if self._greedy else F.one_hot(ids, self._vocabulary).float()
        return Proposal(ids, q, (), ids, torch.zeros(len(ids), device=ids.device))


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


class EarlyExitDraft(ModelDraft):
    """The target's first layers with its final norm and head, drafting in the target's own cache.

    Drafting grows those layers only, so they are cropped before the target verifies: its pass must start at one length
    in all layers, and so computes these rows, of the same values, anew.
    """

    def prefill(self, context: Context) -> None:
        """The target reads the prompt for both."""

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        if gamma == 0:  # the prefill is one such round, whose cache is empty
            return self._nothing
        self._runner.follow(context.length - 1)
        proposal = super().propose(context, gamma, least_confidence)
        self._runner.crop_to(context.length - 1)
        return proposal

    def crop_to(self, length: int) -> None:
        """The target crops the layers that both share."""

    def require_cache(self) -> None:
        """The target's."""
