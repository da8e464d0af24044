"""Suffix decoding (Oliaro et al. 2411.04975): copy what followed the longest match of the text's end.

A draft is at most as long as its match. Prompt lookup copies the full draft length after any match; here a short match
drafts little and a long one much. The match is looked for at the latest ``MOST_PLACES`` places of the last token, and
only in the text of this call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from specdec.drafters.base import Drafter, DraftMethod, Finding, Planned
from specdec.drafters.forms import form_of
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer

LONGEST = 24  # tokens of a match
MOST_PLACES = 256  # looking at more takes longer than it gains


@dataclass(frozen=True)
class Suffix(DraftMethod):
    """Draft as many tokens as the longest match of the text's end has; each is the most frequent one there."""

    kind: ClassVar[str] = "suffix"
    label: ClassVar[str] = "Suffix decoding"
    about: ClassVar[str] = "as prompt lookup; copies more where the match is longer"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "suffix"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        return cls() if text == cls.kind else None

    def describe(self) -> DraftFacts:
        return {
            "kind": self.kind,
            "text": self.kind,
            "python": "specdec.Suffix()",
            "depends_on_start": True,  # how far it copies depends on the match in front of the draft
        }

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield Finding("good", "Cost", "Suffix decoding costs next to nothing; it pays where the text repeats itself.")

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return LookupDraft(SuffixIndex(), target.engine, vocabulary, sampler, context)


class SuffixIndex:
    """The places after each token of a growing list."""

    def __init__(self) -> None:
        self._behind: defaultdict[int, list[int]] = defaultdict(list)
        self._read = 0

    def read(self, tokens: list[int]) -> None:
        """Add the tokens that are new since the last call."""
        # A place counts once a token stands there, so the end of the list is not found in itself.
        for place in range(max(self._read, 1), len(tokens)):
            self._behind[tokens[place - 1]].append(place)
        self._read = len(tokens)

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` tokens, and no more than the match has; [] where the last token is new."""
        self.read(tokens)
        places, length = self._longest_match(tokens)
        copied: list[int] = []
        while places and len(copied) < min(count, length):
            seen = Counter(tokens[place] for place in places)
            most = max(seen.values())
            token = next(tokens[place] for place in reversed(places) if seen[tokens[place]] == most)
            copied.append(token)
            places = [place + 1 for place in places if tokens[place] == token and place + 1 < len(tokens)]
        return copied

    def _longest_match(self, tokens: list[int]) -> tuple[list[int], int]:
        """The places after the longest match of the end of ``tokens``, and its length."""
        places, length = self._behind[tokens[-1]][-MOST_PLACES:], 1
        while length < LONGEST:
            longer = [p for p in places if p > length and tokens[p - length - 1] == tokens[-length - 1]]
            if not longer:
                break
            places, length = longer, length + 1
        return places, length
