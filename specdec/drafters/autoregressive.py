"""Drafting token by token: each guess is chosen from the logits after the guess before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from specdec.drafters.base import DraftChoices, Drafter, Proposal, nothing
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler, chance_of, up_to_unsure
from specdec.runtime.stopping import DraftStop, watch_of
from specdec.runtime.tokens import TokenBuffer


def spliced(held: torch.Tensor, rows: int, new: torch.Tensor, start: int) -> torch.Tensor:
    """Join ``held`` (n, H), whose first row is number ``rows``, and ``new`` (m, H), whose first is number ``start``.

    Rows of ``held`` from ``start`` on are out of date. Rows of ``new`` before ``rows`` were used already.
    """
    old, new = held[: max(0, start - rows)], new[max(0, rows - start) :]
    return torch.cat([old, new]) if len(old) else new


def chain(
    ids: torch.Tensor,
    logits: Sequence[torch.Tensor],
    q: torch.Tensor | None,
    missed: Sequence[tuple[torch.Tensor, torch.Tensor]],
    limit: torch.Tensor | None = None,
) -> Proposal:
    """The proposal of a chain of guesses ``ids`` (g,) with their raw ``logits``, g rows in all; see ``Proposal``.

    ``missed``: raw logits and choices at places that were not read before the target added its token.
    """
    choices = DraftChoices(
        ids=torch.cat([ids, *(choice for _, choice in missed)]) if missed else ids,
        logits=(*logits, *(raw for raw, _ in missed)),
    )
    return Proposal(ids, q, choices, limit)


class ChainDraft(Drafter):
    """The loop over the guesses of one draft, which a draft model and a head share."""

    watches = True

    def __init__(self, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        self._vocabulary = vocabulary
        self._sampler = sampler
        self._nothing = nothing(vocabulary, context.device, "nothing")

    @abstractmethod
    def _forward(self, context: TokenBuffer, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the unread ids up to ``end``. Returns raw and processed logits (n, V); the last row is at ``end``."""

    def _draft(
        self,
        context: TokenBuffer,
        gamma: int,
        stop: DraftStop | None,
        missed: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> Proposal:
        """Draft. ``missed``: raw logits and choices at places that were not read before the target added its token."""
        length, watch = context.length, watch_of(stop, context.blocks_host)
        ids, logits, q = [], [], []
        for i in range(gamma):
            raw, processed = self._forward(context, length + i)
            if len(raw) > 1:
                missed.append((raw[:-1], processed[:-1].argmax(-1)))
                raw, processed = raw[-1:], processed[-1:]
            if self._sampler.greedy:
                ids.append(self._choose(processed, context, i))
            else:
                q.append(self._sampler.probabilities(processed))
                ids.append(self._sampler.draw(q[-1]))
            context.write(i, ids[-1])
            logits.append(raw)
            if watch and watch.ends(chance_of(raw, ids[-1]).item()):
                break
        limit = None
        # To look at each token would wait for the device, so the draft is cut afterwards.
        if stop and stop.least_chance and context.blocks_host:
            limit = up_to_unsure(chance_of(torch.cat(logits), torch.cat(ids)), stop.least_chance)
        return chain(torch.cat(ids), logits, torch.cat(q) if q else None, missed, limit)

    def _choose(self, processed: torch.Tensor, context: TokenBuffer, offset: int) -> torch.Tensor:
        """The greedy guess (1,) by ``processed`` (1, V), at ``offset`` after the committed ids."""
        return processed.argmax(-1)


def rows_of(embedding: Any) -> int:
    """How many ids an embedding has a row for."""
    rows: int = embedding.weight.shape[0]
    return rows


def with_stand_ins(ids: torch.Tensor, rows: int) -> torch.Tensor:
    """``ids`` with another one in place of each that an embedding has no row for: only the guess after it suffers."""
    return torch.where(ids < rows, ids, torch.zeros_like(ids))


def embedder(embedding: torch.Tensor, target: Runner) -> Callable[[torch.Tensor], torch.Tensor]:
    """What turns ids (n,) that ``target`` reads into their rows (n, H) of ``embedding``, which may have fewer ids."""
    rows = len(embedding)
    if rows < rows_of(target.model.get_input_embeddings()):
        return lambda ids: F.embedding(with_stand_ins(ids, rows), embedding)
    return lambda ids: F.embedding(ids, embedding)
