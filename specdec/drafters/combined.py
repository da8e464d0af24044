"""Drafting in two ways: copy where the text repeats, else let a model or a head guess.

A copy costs next to nothing, and where text is copied it is nearly always right. Where nothing repeats there is nothing
to copy, and a model guesses. So each round takes the copy if there is one. The cache of the second way lags behind
after copied rounds, and is brought up to the text in front of its next draft.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import nn
from transformers import PreTrainedModel

from specdec.drafters.base import Drafter, DraftMethod, Finding, Loaded, Planned, Proposal
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.forms import form_of
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.suffix import Suffix
from specdec.errors import InvalidInput, identified, quoted
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

COPYING = (PromptLookup, Suffix)  # what may be the first way
# Prompt lookup in front of another way, unless its lengths are written. What follows a match of one or two tokens is
# wrong more often than what a model guesses.
LOOKUP = PromptLookup(max_ngram=5, min_ngram=3)


@dataclass(frozen=True)
class Combined(DraftMethod):
    """Draft as ``first`` does where it finds something to copy, else as ``then`` does.

    ``first`` is a ``PromptLookup`` or ``Suffix()``. What follows a match of one token is often wrong, so where a model
    guesses well, ``PromptLookup(5, 3)`` keeps more than ``PromptLookup()``; the text "prompt-lookup+REST" means it.
    ``then`` is another way to draft, or a loaded model with the target's tokenizer. ``Round.drafted_by`` says which of
    the two guessed. Raises ``InvalidInput`` for other values.
    """

    kind: ClassVar[str] = "combined"
    label: ClassVar[str] = "Copy, else guess"
    about: ClassVar[str] = "copies where the text repeats; elsewhere another way guesses"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "prompt-lookup+early-exit:3"

    # Reads the text of the second way. The table of all ways sets it: it lists this way, so it cannot be imported here.
    read: ClassVar[Callable[[str], DraftMethod | None]]

    first: DraftMethod
    then: DraftMethod

    def __post_init__(self) -> None:
        then: Any = self.then
        if isinstance(then, PreTrainedModel):
            object.__setattr__(self, "then", DraftModel(then))
        elif not isinstance(then, DraftMethod):
            raise InvalidInput(
                f"The second way of a combination is {identified(then)}; give a way to draft, or a loaded model."
            )
        if not isinstance(self.first, COPYING):
            raise InvalidInput(
                f"The first way of a combination is {identified(self.first)}; give PromptLookup() or Suffix(), which "
                "copy the text."
            )
        if isinstance(then, (*COPYING, Combined)):
            raise _copies_too(type(then).__name__)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        first, plus, rest = _split(text)
        if first is None or not plus:
            return None
        if _split(rest)[0] is not None:  # not only because it makes no sense: a long text of them would recur too often
            raise _copies_too(quoted(rest))
        then = cls.read(rest)
        if then is None:
            raise InvalidInput(f"{quoted(text)} names no way to draft after the +; write {cls.example}, for example.")
        return cls(first, then)

    def describe(self) -> DraftFacts:
        first, then = self.first.describe(), self.then.describe()
        text = f"{_text_of(self.first)}+{then['text']}"
        built = f"specdec.Combined({first['python']}, {then['python']})"
        return {
            **first,
            **then,
            "kind": self.kind,
            "text": text,
            "python": json.dumps(text) if isinstance(self.then, DraftModel) else built,  # a model is named in a text
            "depends_on_start": True,  # which of the two guesses depends on the text in front of the draft
        }

    def refuse(self, target_config: Any) -> None:
        self.first.refuse(target_config)
        self.then.refuse(target_config)

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield Finding(
            "good",
            "Copying",
            f"Where the text repeats, {self.first.label.lower()} drafts, which costs next to nothing. What is said of "
            "the draft here is about all other rounds.",
        )
        yield from self.then.findings(target, parts)

    def parts(self) -> tuple[str, ...]:
        return self.then.parts()

    def loaded(self, models: Sequence[Loaded]) -> Self:
        return replace(self, then=self.then.loaded(models))

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        return replace(self, first=self.first.bound_to(target, tokenizer), then=self.then.bound_to(target, tokenizer))

    @property
    def models(self) -> tuple[PreTrainedModel, ...]:
        return self.then.models

    @property
    def heads(self) -> tuple[nn.Module, ...]:
        return self.then.heads

    @property
    def no_graphs(self) -> str | None:
        return self.then.no_graphs

    @property
    def context_length(self) -> int | None:
        return self.then.context_length

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        first, then = (way.start(target, vocabulary, sampler, context) for way in (self.first, self.then))
        return CombinedDraft((first, self.first.kind), (then, self.then.kind))


def _split(text: str) -> tuple[DraftMethod | None, str, str]:
    """The copying way in front of the first +, or None; the +, if there is one; and what stands behind it."""
    copying, plus, rest = text.partition("+")
    found = (row.parse(copying.strip()) for row in COPYING)
    method = next((method for method in found if method is not None), None)
    return LOOKUP if method == PromptLookup() and ":" not in copying else method, plus, rest.strip()


def _text_of(first: DraftMethod) -> str:
    """The text that ``_split`` reads as ``first``."""
    if isinstance(first, PromptLookup):
        return first.kind if first == LOOKUP else f"{first.kind}:{first.min_ngram}-{first.max_ngram}"
    return first.describe()["text"]


def _copies_too(name: str) -> InvalidInput:
    return InvalidInput(
        f"The second way of a combination is {name}, which copies too; give a draft model, a head or the target's own "
        "layers."
    )


def guessing(draft: DraftMethod | None) -> DraftMethod | None:
    """The way whose weights are loaded and run: the second one of a combination, else ``draft`` itself."""
    return draft.then if isinstance(draft, Combined) else draft


def with_guessing(draft: DraftMethod | None, then: DraftMethod | None) -> DraftMethod | None:
    """``draft`` with ``then`` in the place of ``guessing(draft)``."""
    return replace(draft, then=then) if isinstance(draft, Combined) and then is not None else then


class CombinedDraft(Drafter):
    """Asks the first drafter, and where it proposes nothing the second. Each comes with the kind of its method.

    The kind of the second is None if it says itself who guessed, or if that needs no word.

    A second drafter that reads the target's hidden states gets those of copied rounds too: it taps the target's passes
    itself, whoever drafted.
    """

    watches = False  # a copy has no probabilities of its own

    def __init__(self, first: tuple[Drafter, str], then: tuple[Drafter, str | None]):
        (self._first, self._first_kind), (self._then, self._then_kind) = first, then
        self._both = self._first, self._then
        self._behind = False  # whether there were rounds since the second was asked

    def prefill(self, context: TokenBuffer) -> None:
        for drafter in self._both:
            drafter.prefill(context)

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        kind: str | None = self._first_kind
        proposal = self._first.propose(context, gamma, stop)
        asked = gamma > 0 and not len(proposal.ids)
        if asked:
            if self._behind:
                self._then.catch_up(context)
            proposal, kind = self._then.propose(context, gamma, stop), self._then_kind
        self._behind = not asked
        return proposal._replace(drafted_by=kind) if kind and len(proposal.ids) else proposal

    def crop_to(self, length: int) -> None:
        for drafter in self._both:
            drafter.crop_to(length)

    def take_seconds(self) -> float:
        return sum(drafter.take_seconds() for drafter in self._both)

    def require_cache(self) -> None:
        for drafter in self._both:
            drafter.require_cache()

    def note_choices(self, tokens: list[int], choices: list[int]) -> None:
        for drafter in self._both:
            drafter.note_choices(tokens, choices)

    def catch_up(self, context: TokenBuffer) -> None:
        self._behind = True  # the second reads when it is asked
