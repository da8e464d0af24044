"""Drafting with a model that has a tokenizer of its own (Timor et al. 2502.05202).

In greedy decoding it writes in its own vocabulary, and the text is encoded again for the target. In sampling it draws
from its distribution over the tokens that both vocabularies hold, renormalised. So q is known for every id of the
target, and rejection sampling stays exact over the target's full vocabulary.
"""

from __future__ import annotations

import math
from itertools import takewhile

import torch

from specdec.drafters.base import DraftChoices, Drafter, Proposal, nothing
from specdec.drafters.translation import Translation
from specdec.events import MAX_GAMMA
from specdec.forward.model_info import context_length
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler, chance_of, up_to_unsure
from specdec.runtime.stopping import DraftStop, watch_of
from specdec.runtime.tokens import TokenBuffer


class TranslatedDraft(Drafter):
    """Drafts with a small model that reads and writes its own tokens."""

    watches = True

    def __init__(
        self, runner: Runner, translation: Translation, vocabulary: int, sampler: Sampler, context: TokenBuffer
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
        self._drafted: list[int] = []  # its own ids of the last draft that may count
        self._drafted_from: int | None = None  # the text's length at the last draft over shared tokens
        self._context = context

    def prefill(self, context: TokenBuffer) -> None:
        if self._ids and self._room() >= 0:
            self._forward(torch.tensor(self._ids), context)

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        self._catch_up(context.tokens)
        gamma = min(gamma, self._room())
        if gamma <= 0 or not self._ids or not (self._sampler.greedy or len(self._draft_ids)):
            return self._nothing
        draft = self._draft_text if self._sampler.greedy else self._draft_shared
        return draft(context, gamma, stop)

    def crop_to(self, length: int) -> None:
        """Note which draft tokens were kept. ``propose`` crops the cache, which holds other tokens than the target's.

        This needs the target's own ids, so only ids that were drafted over shared tokens can be noted.
        """
        if self._drafted_from is not None:
            kept = self._context.tokens[self._drafted_from : length]
            self._drafted = [self._translation.draft_id_of[token_id] for token_id in kept]
            self._drafted_from = None

    def take_seconds(self) -> float:
        return self._runner.take_seconds()

    def require_cache(self) -> None:
        self._runner.require_cache()

    def _draft_text(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        feed, watch = torch.tensor(self._ids[len(self._runner) :]), watch_of(stop, context.blocks_host)
        ids, neg_log_probs = [], []
        for _ in range(gamma):
            raw = self._forward(feed, context)
            feed = raw.argmax(-1)
            ids.append(feed)
            neg_log_probs.append(-raw.log_softmax(-1).gather(1, feed[:, None])[0])
            if watch and watch.ends(neg_log_probs[-1].neg().exp().item()):
                break
        # A tokenizer encodes the text on the host. This is the only wait of a round besides that for its outcome.
        drafted, sure = torch.stack([torch.cat(ids).double(), torch.cat(neg_log_probs).double()]).tolist()
        if stop and context.blocks_host:
            unsure = (i for i, value in enumerate(sure) if math.exp(-value) < stop.least_chance)
            sure = sure[: 1 + next(unsure, len(sure))]
        self._drafted = [int(token_id) for token_id in drafted[: len(sure)]]
        target_ids, target_neg_log_probs = self._translation.proposal(self._drafted, sure)
        target_ids = list(takewhile(lambda token_id: token_id < self._vocabulary, target_ids[:gamma]))
        if self._sampler.masks is not None:  # its own tokens do not obey; of the target's, those that do count
            target_ids = target_ids[: self._sampler.masks.obeyed(context.tokens, target_ids)]
        if not target_ids:
            return self._nothing
        context.write_host(target_ids)
        places = context.ids(context.length, context.length + len(target_ids))
        of_target = torch.tensor(target_neg_log_probs[: len(places)], device=context.device)
        return Proposal(places, None, DraftChoices(places, neg_log_probs=of_target))

    def _draft_shared(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        feed, watch = torch.tensor(self._ids[len(self._runner) :]), watch_of(stop, context.blocks_host)
        logits, q, ids = [], [], []
        for i in range(gamma):
            raw = self._forward(feed, context)
            shared = raw.new_full((1, self._vocabulary), float("-inf"))
            shared[:, self._target_ids] = raw[:, self._draft_ids]
            q.append(self._sampler.probabilities(self._sampler.process(shared, context, context.length + i)))
            ids.append(self._sampler.draw(q[-1]))
            context.write(i, ids[-1])
            feed = self._draft_id_of[ids[-1]]
            logits.append(shared)
            if watch and watch.ends(chance_of(shared, ids[-1]).item()):
                break
        self._drafted_from = context.length
        limit = None
        if stop and stop.least_chance and context.blocks_host:
            limit = up_to_unsure(chance_of(torch.cat(logits), torch.cat(ids)), stop.least_chance)
        joined = torch.cat(ids)
        return Proposal(joined, torch.cat(q), DraftChoices(joined, tuple(logits)), limit)

    def _catch_up(self, tokens: list[int]) -> None:
        """Bring the draft's ids up to the committed text, and crop the cache to the ids that are still right.

        Drafted ids whose text was kept stay; the rest of the text is split into draft ids. One id at least stays
        unread.
        """
        data = self._translation.target.join(tokens[self._read :])
        self._read = len(tokens)
        for token_id in self._drafted:
            text = self._translation.draft.bytes_of.get(token_id)
            if not text or not data.startswith(text):
                break
            self._ids.append(token_id)
            data = data[len(text) :]
        kept = len(self._ids)
        self._drafted = []
        self._ids += self._translation.draft.split(data)
        self._runner.crop_to(min(len(self._runner), kept, max(0, len(self._ids) - 1)))

    def _room(self) -> int:
        """How many ids the draft's context can hold after the committed text."""
        return self._bound - len(self._ids) if self._bound else MAX_GAMMA

    def _forward(self, ids: torch.Tensor, context: TokenBuffer) -> torch.Tensor:
        ids = torch.where(ids < self._rows, ids, torch.zeros_like(ids))  # a token without a row gets another one
        return self._runner.forward(ids, keep=1).to(context.device)
