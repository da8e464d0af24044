"""Drafting that agrees with the target as often as it is told to, to measure models with random weights.

The draft model runs its true passes. Its guesses are replaced: by the target's own next token where a random draw says
that the two agree, else by another token. Everything that is shown of such a draft is labelled synthetic.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from specdec.drafters.base import Drafter
from specdec.drafters.draft_model import DraftModel, ModelDraft
from specdec.errors import BadSetting, InvalidInput
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer

Ids = tuple[int, ...]


@dataclass(frozen=True)
class SyntheticDraft(DraftModel):
    """Guess the target's next token with probability ``agreement``. For greedy text only.

    ``continuations`` holds the target's greedy text after each prompt, both as ids. Other prompts are refused. This
    method cannot be chosen by name: ``measure.shapes`` makes it.
    """

    kind: ClassVar[str] = "synthetic"

    agreement: float = 0.8
    continuations: Mapping[Ids, Ids] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1:
            raise BadSetting(f"agreement is {self.agreement!r}; give a number from 0 to 1.")

    def describe(self) -> DraftFacts:
        return {**super().describe(), "agreement": self.agreement}

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        if not sampler.greedy:
            raise InvalidInput("A synthetic draft follows greedy text; use temperature 0.")
        known = self.continuations.get(tuple(context.tokens))
        if known is None:
            raise InvalidInput("No greedy text of the target was recorded for this prompt; record it first.")
        guesses = given_guesses(context.tokens, known, self.agreement, vocabulary, sampler.rng.initial_seed())
        runner = target.beside(self._model, self.rounded)
        return AgreeingDraft(context.keep(guesses), runner, vocabulary, sampler, context)


def given_guesses(prompt: list[int], continuation: Ids, agreement: float, vocabulary: int, seed: int) -> torch.Tensor:
    """The guess at each place of a text, prompt included, (n,): the token there, or another of ``vocabulary`` ids.

    A round begins after the last tested place, so each place is tested at most once in a call, and the guesses that
    are tested agree independently of each other. The draws depend on the seed and the prompt, not on the draft length.
    """
    text = torch.tensor([*prompt, *continuation])
    rng = torch.Generator().manual_seed((seed + zlib.crc32(str(prompt).encode())) % 2**63)
    agrees = torch.rand(len(text), generator=rng, dtype=torch.float64) < agreement
    others = (text + torch.randint(1, vocabulary, text.shape, generator=rng)) % vocabulary
    return torch.where(agrees, text, others)


class AgreeingDraft(ModelDraft):
    """``ModelDraft``, whose choice at each place is replaced by the given guess."""

    own_choice = False

    def __init__(self, guesses: torch.Tensor, *arguments: Any):
        super().__init__(*arguments)
        self._guesses = guesses

    def _choose(self, processed: torch.Tensor, context: TokenBuffer, offset: int) -> torch.Tensor:
        super()._choose(processed, context, offset)  # its time belongs to the cost of a guess
        at = context.length + offset
        return context.part(self._guesses, at, at + 1)
