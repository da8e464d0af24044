"""Add a way to draft in one file: ``python -m examples.own_drafter``.

``Bigrams`` guesses the token that most often followed the last one so far. It has two parts: a method, which is a value
that a pair holds, and an index of the text, which guesses within one call. To use it on the command line, on the page
and in links, put the two classes into ``specdec/drafters/bigrams.py``, add ``Bigrams`` to ``METHODS`` in
``specdec/drafters/registry.py``, and how it is written to ``FORMS`` in ``specdec/drafters/forms.py``.
docs/architecture.md lists the rest: a public name, tests and documents. It also says how a package of your own offers
such a method, how it is tested, and what a method with a model of its own needs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import specdec
from specdec.drafters.base import Drafter, DraftMethod, Finding, Planned
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class Bigrams(DraftMethod):
    """Guess what followed the last token most often."""

    kind: ClassVar[str] = "bigrams"
    label: ClassVar[str] = "Bigrams"
    about: ClassVar[str] = "guesses what followed the last token most often"  # beside the label on the page
    form: ClassVar[str] = "bigrams"  # in this package form_of(kind), which reads the row of FORMS
    example: ClassVar[str] = "bigrams"

    @classmethod
    def parse(cls, text: str) -> Bigrams | None:
        return cls() if text == cls.kind else None

    def describe(self) -> DraftFacts:
        return {
            "kind": self.kind,
            "text": self.kind,
            "python": "Bigrams()",  # "specdec.Bigrams()" as a public name
            "depends_on_start": True,  # a draft ends where no bigram is known
        }

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield Finding("good", "Cost", "Bigrams cost next to nothing; they pay where the text repeats itself.")

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return LookupDraft(BigramIndex(), target.engine, vocabulary, sampler, context)


class BigramIndex:
    """How often each token followed each other one. ``LookupDraft`` makes a draft of what ``continuation`` returns."""

    def __init__(self) -> None:
        self._followers: dict[int, Counter[int]] = defaultdict(Counter)
        self._read = 1

    def read(self, tokens: list[int]) -> None:
        """Count what is new in ``tokens``, the prompt and what is committed after it."""
        for before, after in zip(tokens[self._read - 1 :], tokens[self._read :], strict=False):
            self._followers[before][after] += 1
        self._read = len(tokens)

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` guesses after ``tokens``; fewer where no bigram is known."""
        self.read(tokens)
        guesses: list[int] = []
        while len(guesses) < count and (seen := self._followers.get(guesses[-1] if guesses else tokens[-1])):
            guesses.append(seen.most_common(1)[0][0])
        return guesses


def main() -> None:
    prompt = "List: red, blue, green, red, blue, green, red,"
    pair = specdec.load_pair()
    for draft in (Bigrams(), specdec.PromptLookup(), pair.draft):
        with_draft = replace(pair, draft=draft)
        for temperature in (0.0, 1.0):
            params = specdec.SamplingParams(max_new_tokens=96, temperature=temperature, seed=0, ignore_eos=True)
            found = specdec.collect(specdec.speculative(with_draft, prompt, params=params))
            m, name = found.metrics, f"{draft.describe()['kind']}, temperature {temperature}"
            print(f"{name:30} {m.alpha:4.0%} kept, {m.mean_acceptance_length:.2f} tokens a target pass")
            if params.greedy:
                plain = specdec.collect(specdec.generate(pair, prompt, params=params))
                assert found.token_ids == plain.token_ids, "greedy text is the target's own with any draft"


if __name__ == "__main__":
    main()
