"""Add a way to draft in one file: ``python -m examples.own_drafter``.

``Bigrams`` guesses the token that most often followed the last one so far. It has two parts: a method, which is a value
that a pair holds, and a drafter, which guesses within one call. To use it on the command line, on the page and in
links, put the two classes into ``specdec/drafters/bigrams.py``, add ``Bigrams`` to ``METHODS`` in
``specdec/drafters/registry.py``, and how it is written to ``FORMS`` in ``specdec/drafters/forms.py``.
docs/architecture.md lists the rest: a public name, tests and documents. It also says how a package of your own offers
such a method, and how it is tested.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

import specdec
from specdec.drafters.base import DraftChoices, DraftMethod, Finding, NoDraft, Planned, Proposal
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class Bigrams(DraftMethod):
    """Guess what followed the last token most often."""

    kind = "bigrams"
    label = "Bigrams"
    form = "bigrams"
    example = "bigrams"

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

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> BigramDraft:
        return BigramDraft(vocabulary, sampler.greedy, context)


class BigramDraft(NoDraft):
    """Guesses within one call. ``NoDraft`` has the methods that a drafter without a model can leave as they are."""

    def __init__(self, vocabulary: int, greedy: bool, context: TokenBuffer):
        super().__init__(vocabulary, context)
        self._vocabulary, self._greedy = vocabulary, greedy
        self._followers: dict[int, Counter[int]] = defaultdict(Counter)
        self._read = 1

    def propose(self, context: TokenBuffer, gamma: int, least_confidence: float | None) -> Proposal:
        tokens = context.tokens  # the prompt and what is committed after it
        for before, after in zip(tokens[self._read - 1 :], tokens[self._read :], strict=False):
            self._followers[before][after] += 1
        self._read = len(tokens)
        guesses: list[int] = []
        while len(guesses) < gamma and (seen := self._followers.get(guesses[-1] if guesses else tokens[-1])):
            guesses.append(seen.most_common(1)[0][0])
        if not guesses:
            return self._nothing
        context.write_host(guesses)  # the target's pass reads them there
        ids = context.ids(context.length, context.length + len(guesses))
        # q is the distribution that each guess was drawn from. These guesses are certain, so q is one-hot. A comparison
        # makes it without waiting for the device, as ``one_hot`` would.
        q = None if self._greedy else (ids[:, None] == torch.arange(self._vocabulary, device=ids.device)).float()
        return Proposal(ids, q, DraftChoices(ids, neg_log_probs=torch.zeros(len(guesses), device=ids.device)))


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
