"""Drafting from the context alone: text that repeats itself is copied from an earlier place.

Known as prompt lookup (Saxena 2023) or n-gram drafting. It needs no second model and costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Protocol, Self

import torch

from specdec.drafters.base import DraftChoices, Drafter, DraftMethod, Finding, NoDraft, Planned, Proposal, after_kind
from specdec.drafters.forms import form_of
from specdec.errors import InvalidInput
from specdec.facts import DraftFacts
from specdec.forward.engine import Engine
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

LONGEST = 32  # tokens an n-gram


@dataclass(frozen=True)
class PromptLookup(DraftMethod):
    """Find the last ``max_ngram`` tokens earlier in the text, and draft what followed them there.

    Where they do not occur, fewer tokens are looked for, down to ``min_ngram``. The latest place counts. Raises
    ``InvalidInput`` unless 1 <= min_ngram <= max_ngram <= 32.
    """

    kind: ClassVar[str] = "prompt-lookup"
    label: ClassVar[str] = "Prompt lookup"
    about: ClassVar[str] = "copies what followed the last words before; nearly free"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "prompt-lookup"

    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self) -> None:
        if type(self.min_ngram) is not int or type(self.max_ngram) is not int:
            raise InvalidInput(f"n-gram lengths are {self.min_ngram!r} and {self.max_ngram!r}; give whole numbers.")
        if not 1 <= self.min_ngram <= self.max_ngram <= LONGEST:
            raise InvalidInput(
                f"n-grams of {self.min_ngram} to {self.max_ngram} tokens; give 1 <= min <= max <= {LONGEST}."
            )

    @classmethod
    def parse(cls, text: str) -> Self | None:
        lengths = after_kind(text, cls.kind)
        if lengths is None:
            return None
        if text == cls.kind:
            return cls()
        if not (found := re.fullmatch("([0-9]{1,3})-([0-9]{1,3})", lengths)):
            raise InvalidInput(f"{text!r} has no n-gram lengths; write {cls.kind}:1-3, for example.")
        return cls(min_ngram=int(found[1]), max_ngram=int(found[2]))

    def describe(self) -> DraftFacts:
        usual = self == PromptLookup()
        return {
            "kind": self.kind,
            "text": self.kind if usual else f"{self.kind}:{self.min_ngram}-{self.max_ngram}",
            "python": f"specdec.PromptLookup({'' if usual else f'{self.max_ngram}, {self.min_ngram}'})",
            "depends_on_start": True,  # after a wrong guess it goes on copying
            "max_ngram": self.max_ngram,
            "min_ngram": self.min_ngram,
        }

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield Finding("good", "Cost", "Prompt lookup costs next to nothing; it pays where the text copies its prompt.")

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return LookupDraft(NgramIndex(self), target.engine, vocabulary, sampler, context)


class Index(Protocol):
    """An index of a growing text that finds what to copy after its end."""

    def read(self, tokens: list[int]) -> None:
        """Add the tokens that are new since the last call. ``tokens`` is the whole text, the prompt first."""

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` tokens to copy after ``tokens``, which is not empty and may be longer than what was read."""


class NgramIndex:
    """The latest place of every n-gram of a growing list of tokens."""

    def __init__(self, lookup: PromptLookup):
        self._lengths = range(lookup.max_ngram, lookup.min_ngram - 1, -1)
        self._followed_at: dict[tuple[int, ...], int] = {}
        self._read = 0

    def read(self, tokens: list[int]) -> None:
        """Add the tokens that are new since the last call."""
        # An n-gram counts as seen once a token follows it, so the one at the very end is not found in itself.
        for end in range(max(self._read, 1), len(tokens)):
            for n in self._lengths:
                if n <= end:
                    self._followed_at[tuple(tokens[end - n : end])] = end
        self._read = len(tokens)

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` tokens that followed the longest known n-gram at the end of ``tokens``; [] if none."""
        self.read(tokens)
        for n in self._lengths:
            start = self._followed_at.get(tuple(tokens[-n:])) if n <= len(tokens) else None
            if start is not None:
                return tokens[start : start + count]
        return []


class LookupDraft(NoDraft):
    """Copies what an index finds in the context. Its q is one-hot, so rejection sampling stays exact."""

    def __init__(self, index: Index, engine: Engine, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(vocabulary, context)
        self._engine = engine
        self._index = index
        self._vocabulary = vocabulary
        self._greedy = sampler.greedy
        self._masks = sampler.masks

    def prefill(self, context: TokenBuffer) -> None:
        self._index.read(context.tokens)

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        # A prompt may hold ids that the target reads and cannot write, such as that of an image.
        found = self._index.continuation(context.tokens, gamma)
        copied = list(takewhile(lambda token_id: token_id < self._vocabulary, found))
        if copied and self._masks is not None:
            copied = copied[: self._masks.obeyed(context.tokens, copied)]
        if not copied:
            return self._nothing
        context.write_host(copied)
        key = "copied", len(copied)
        proposal = self._engine.run("draft", key, lambda: self._proposal(context, len(copied)))
        return proposal._replace(key=key)

    def _proposal(self, context: TokenBuffer, count: int) -> Proposal:
        ids = context.ids(context.length, context.length + count)
        tokens = torch.arange(self._vocabulary, device=ids.device)
        q = None if self._greedy else (ids[:, None] == tokens).float()  # ``one_hot`` waits for the device
        return Proposal(ids, q, DraftChoices(ids, neg_log_probs=torch.zeros(count, device=ids.device)))
