"""Drafting with a model that has a tokenizer of its own (Timor et al. 2502.05202).

Greedy: it writes in its own vocabulary, and the text is encoded anew for the target. Sampling: it draws from its
distribution over the tokens that both vocabularies hold, renormalised, so that q is known at every target id and
rejection sampling stays exact over the target's full vocabulary.
"""

from __future__ import annotations

from itertools import takewhile

import torch

from specdec.drafters.base import Proposal, nothing
from specdec.drafters.translation import Translation
from specdec.events import MAX_GAMMA
from specdec.passes.context import Context
from specdec.passes.facts import context_length
from specdec.passes.runner import Runner
from specdec.passes.sampling import Sampler


class TranslatedDraft:
    """A small model that reads the committed text in its own tokens and drafts in them."""

    def __init__(
        self, runner: Runner, translation: Translation, vocabulary: int, sampler: Sampler, context: Context
    ) -> None:
        self._runner = runner
        self._translation = translation
        self._sampler = sampler
        self._vocabulary = vocabulary
        self._rows = runner.model.get_output_embeddings().weight.shape[0]
        shared = self._translation.shared
        shared = shared[(shared[:, 0] < self._rows) & (shared[:, 1] < self._vocabulary)].to(context.device)
        self._draft_ids, self._target_ids = shared.unbind(1)
        self._draft_id_of = torch.zeros(self._vocabulary, dtype=torch.long, device=context.device)
        self._draft_id_of[self._target_ids] = self._draft_ids
        self._bound = context_length(runner.model.config)
        self._nothing = nothing(self._vocabulary, context.device)
        self._ids = self._translation.prompt(context.tokens)  # the committed text in the draft's ids
        self._read = len(context.tokens)
        self._drafted: torch.Tensor | None = None  # its own ids of the last draft

    def prefill(self, context: Context) -> None:
        if self._ids and self._room() >= 0:
            self._forward(torch.tensor(self._ids), context)

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        self._catch_up(context.tokens)
        gamma = min(gamma, self._room())
        if gamma <= 0 or not self._ids or not (self._sampler.greedy or len(self._draft_ids)):
            return self._nothing
        draft = self._draft_text if self._sampler.greedy else self._draft_shared
        return draft(context, gamma, least_confidence)

    def crop_to(self, length: int) -> None:
        """The cache holds other tokens than the target's; ``propose`` crops it to the text that was kept."""

    def take_seconds(self) -> float:
        return self._runner.take_seconds()

    def require_cache(self) -> None:
        self._runner.require_cache()

    def _draft_text(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        feed = torch.tensor(self._ids[len(self._runner) :])
        ids, nats = [], []
        for _ in range(gamma):
            raw = self._forward(feed, context)
            feed = raw.argmax(-1)
            ids.append(feed)
            nats.append(-raw.log_softmax(-1).gather(1, feed[:, None])[0])
            if least_confidence and nats[-1].neg().exp().item() < least_confidence:
                break
        self._drafted = torch.cat(ids)
        target_ids, target_nats = self._translation.proposal(self._drafted.tolist(), torch.cat(nats).tolist())
        target_ids = list(takewhile(lambda token_id: token_id < self._vocabulary, target_ids))
        if not target_ids:
            return self._nothing
        places = context.place(0, min(gamma, len(target_ids)))
        places.copy_(torch.tensor(target_ids[:gamma]))
        return Proposal(places, None, (), places, torch.tensor(target_nats[: len(places)], device=context.device))

    def _draft_shared(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        feed = torch.tensor(self._ids[len(self._runner) :])
        logits, q, ids = [], [], []
        for i in range(gamma):
            raw = self._forward(feed, context)
            shared = raw.new_full((1, self._vocabulary), float("-inf"))
            shared[:, self._target_ids] = raw[:, self._draft_ids]
            q.append(self._sampler.probabilities(self._sampler.process(shared, context, context.length + i)))
            context.place(i).copy_(self._sampler.draw(q[-1]))
            feed = self._draft_id_of[context.place(i)]
            logits.append(shared)
            ids.append(feed)
            if least_confidence and shared.softmax(-1)[0, context.place(i)].item() < least_confidence:
                break
        self._drafted = torch.cat(ids)
        places = context.place(0, len(ids))
        return Proposal(places, torch.cat(q), tuple(logits), places)

    def _catch_up(self, tokens: list[int]) -> None:
        """Read what was committed since: keep the drafted ids whose text stands, write the rest in draft ids, and
        crop the cache to what is left. At least one id stays to be fed."""
        data = self._translation.target.join(tokens[self._read :])
        self._read = len(tokens)
        for token_id in [] if self._drafted is None else self._drafted.tolist():
            text = self._translation.draft.bytes_of.get(token_id)
            if not text or not data.startswith(text):
                break
            self._ids.append(token_id)
            data = data[len(text) :]
        kept = len(self._ids)
        self._drafted = None
        self._ids += self._translation.draft.split(data)
        self._runner.crop_to(min(len(self._runner), kept, max(0, len(self._ids) - 1)))

    def _room(self) -> int:
        """Ids that the draft's own context still holds behind the committed text."""
        return self._bound - len(self._ids) if self._bound else MAX_GAMMA

    def _forward(self, ids: torch.Tensor, context: Context) -> torch.Tensor:
        ids = torch.where(ids < self._rows, ids, torch.zeros_like(ids))  # a token without a row has any stand-in
        return self._runner.forward(ids, keep=1).to(context.device)
