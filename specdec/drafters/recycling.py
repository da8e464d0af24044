"""Token recycling (Luo et al. 2408.08696): guess what the target itself ranked first after each token.

Each pass of the target tells its most likely next token after every token that it reads, guesses that are rejected or
discarded among them. A table keeps the latest one for each token, and a draft walks it from the last token on. So it
knows what a table of the text's own pairs of tokens does not: what the target would have written elsewhere.

The paper keeps the first eight tokens in each place and checks a tree of them in one pass. A draft here is a chain, one
guess a place, so a second choice could never be checked, and only the first is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

from specdec.drafters.base import Drafter, DraftMethod, Finding, Planned
from specdec.drafters.forms import form_of
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.facts import DraftFacts
from specdec.forward.engine import Engine
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class Recycling(DraftMethod):
    """Draft a chain in which each token is the one that the target ranked first after the token before it.

    What counts is the latest pass that read that token, whether it was kept or not; before that, the prompt's own text.
    """

    kind: ClassVar[str] = "recycling"
    label: ClassVar[str] = "Token recycling"
    about: ClassVar[str] = "the target's own earlier choices after the same token"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "recycling"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        return cls() if text == cls.kind else None

    def describe(self) -> DraftFacts:
        return {
            "kind": self.kind,
            "text": self.kind,
            "python": "specdec.Recycling()",
            "depends_on_start": True,  # the table is that of the passes before the draft
        }

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield Finding(
            "good",
            "Cost",
            "Token recycling costs next to nothing; it pays where one token often tells the next, and learns as it "
            "writes.",
        )

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return RecyclingDraft(target.engine, vocabulary, sampler, context)


class RecyclingIndex:
    """The token to guess after each token."""

    def __init__(self) -> None:
        self._after: dict[int, int] = {}
        self._seeded = False

    def read(self, tokens: list[int]) -> None:
        """Take the pairs of the prompt, at the first call; the latest counts. ``note`` tells the rest."""
        if not self._seeded:
            self._after, self._seeded = dict(pairwise(tokens)) | self._after, True

    def note(self, tokens: list[int], choices: list[int]) -> None:
        """Keep ``choices[i]`` as the guess after ``tokens[i]``; the last one of equal tokens counts."""
        self._after.update(zip(tokens, choices, strict=True))

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` tokens, each the guess after the one before; fewer where a token is new."""
        self.read(tokens)
        walked: list[int] = []
        token = tokens[-1]
        while len(walked) < count and token in self._after:
            walked.append(token := self._after[token])
        return walked


class RecyclingDraft(LookupDraft):
    """Walks a table that it fills from the target's choices."""

    def __init__(self, engine: Engine, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        self._table = RecyclingIndex()
        super().__init__(self._table, engine, vocabulary, sampler, context)

    def note_choices(self, tokens: list[int], choices: list[int]) -> None:
        self._table.note(tokens, choices)
