"""A block drafter of tables: all guesses of a draft come from the last two tokens of the text, in one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from fakes import random_table, table_model

import specdec
from specdec.drafters.autoregressive import chain
from specdec.drafters.base import DraftMethod, Finding, NoDraft, Planned, Proposal
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

BLOCK = 7  # the most guesses of a draft


@dataclass(frozen=True)
class BlockTable(DraftMethod):
    """``tables[i, before, last]`` are the logits of guess number i, (places, V, V, V)."""

    kind: ClassVar[str] = "block-table"
    tables: torch.Tensor = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> None:
        return None

    def describe(self) -> DraftFacts:
        most = len(self.tables)
        facts: DraftFacts = {"kind": self.kind, "text": self.kind, "python": "BlockTable(tables)"}
        return {**facts, "depends_on_start": True, "one_pass": True, "most_guesses": most}

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield from ()

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> BlockDraft:
        return BlockDraft(self.tables, vocabulary, sampler, context)


class BlockDraft(NoDraft):
    def __init__(self, tables: torch.Tensor, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(vocabulary, context)
        self._tables, self._sampler = tables, sampler

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        before, last = context.tokens[-2:]
        raw = self._tables[: min(gamma, len(self._tables)), before, last]
        if not len(raw):
            return self._nothing
        processed = self._sampler.process(raw, context, context.length + len(raw) - 1)
        q = None if self._sampler.greedy else self._sampler.probabilities(processed)
        ids = processed.argmax(-1) if q is None else self._sampler.draw(q)
        context.write(0, ids)
        return chain(ids, [raw], q, [])


def greedy_pair(seed: int, rates: Sequence[float], vocabulary: int = 48) -> specdec.Pair:
    """Guess number i is the target's own token with chance ``rates[i]``, drawn for each two last tokens and number."""
    table = random_table(vocabulary, 2, seed=seed)
    rng = torch.Generator().manual_seed(1000 + seed)
    shape = (vocabulary, vocabulary)
    before, last = torch.meshgrid(torch.arange(vocabulary), torch.arange(vocabulary), indexing="ij")
    tables = torch.zeros(len(rates), *shape, vocabulary)
    for number, rate in enumerate(rates):
        before, last = last, table[before, last].argmax(-1)
        other = (last + torch.randint(1, vocabulary, shape, generator=rng)) % vocabulary
        guess = torch.where(torch.rand(shape, generator=rng) < rate, last, other)
        tables[number].scatter_(-1, guess[..., None], 9.0)
    return specdec.Pair(target=table_model(table), draft=BlockTable(tables))


def sampled_pair(p: torch.Tensor, places: int = BLOCK) -> specdec.Pair:
    """A target whose next token has the distribution ``p[last]`` (V, V). q of guess i is nearly that of its place."""
    powers = 0.9 * torch.stack([torch.linalg.matrix_power(p, i + 1) for i in range(places)]) + 0.1 / len(p)
    tables = powers.log()[:, None].expand(-1, len(p), -1, -1)
    return specdec.Pair(target=table_model(p.log()), draft=BlockTable(tables))
