"""Drafting with the assistant of a Gemma 4 target, which attends to the target's own keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec.drafters.autoregressive import ChainDraft
from specdec.drafters.base import Drafter, DraftWork, Finding, Planned, Proposal, Sized
from specdec.drafters.forms import form_of
from specdec.drafters.gemma4_assistant_head import SLIDING, TARGETS, AssistantConfig, Gemma4AssistantHead, Seen
from specdec.drafters.trained_head import TrainedHead
from specdec.errors import IncompatiblePair, InvalidInput, identified
from specdec.facts import DraftFacts
from specdec.forward.hf import NORMED
from specdec.forward.runner import Runner
from specdec.runtime.clock import Mark, mark, taken
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class Gemma4Assistant(TrainedHead):
    """Draft with the assistant that was trained for this very Gemma 4 target.

    ``head`` is a hub id or a folder; once it is loaded, the assistant itself. A pair fills in the other fields. Raises
    ``IncompatiblePair`` for an assistant of another target.
    """

    kind: ClassVar[str] = "gemma4-assistant"
    label: ClassVar[str] = "Gemma 4 assistant"
    about: ClassVar[str] = "a few layers, trained for one Gemma 4, read its keys and values"
    form: ClassVar[str] = form_of(kind)
    noun: ClassVar[str] = "assistant"
    example: ClassVar[str] = "gemma4-assistant:google/gemma-4-E2B-it-assistant"

    head: str | Gemma4AssistantHead
    # A pair fills these in: the target's layer that each kind of layer reads, and the target's embedding, which scales.
    sources: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    embedding: nn.Module | None = field(default=None, compare=False, repr=False)

    def describe(self) -> DraftFacts:
        facts = self._named()
        for head in self.heads:
            facts["layers"] = len(head.layers)
            facts["parameters"] = sum(weight.numel() for weight in head.parameters())
            facts["rows"] = head.config.layer.vocab_size
        return facts

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        (head,) = parts
        config, work = head.head, self.work(target, parts)
        share = work.bytes / target.bytes
        yield Finding(
            "good" if share < 0.25 else "note",
            "Cost",
            f"A Gemma 4 assistant of {work.layers} layers, which keep no cache: a guess reads {share:.2f} "
            "of the target's bytes.",
        )
        sources = config.sources(target.config)
        read = " and ".join(
            f"{number} ({'a window' if kind == SLIDING else 'the whole text'})" for kind, number in sources.items()
        )
        yield Finding("good", "Head", f"It attends to the keys and values of the target's layers {read}.")

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        (head,) = parts
        config: AssistantConfig = head.head
        layer = config.layer
        unread = (layer.vocab_size - config.candidates) * layer.hidden_size / head.parameters
        return DraftWork(head.bytes * (1 - unread), layer.num_hidden_layers)

    def refuse(self, target_config: Any) -> None:
        if isinstance(self.head, Gemma4AssistantHead):
            require_assistant_fit(self.head.config, target_config)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if not isinstance(self.head, Gemma4AssistantHead):
            raise InvalidInput(
                f"The assistant is {identified(self.head)}; give a loaded assistant. load_pair takes names."
            )
        sources = self.head.eval().config.sources(target.config)
        return replace(self, sources=sources, embedding=target.get_input_embeddings())

    @property
    def heads(self) -> tuple[Gemma4AssistantHead, ...]:
        return () if isinstance(self.head, str) else (self.head,)

    @property
    def no_graphs(self) -> str | None:
        return "A Gemma 4 assistant reads the target's cache and states, which a captured pass does not hand over."

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return Gemma4AssistantDraft(self, target, vocabulary, sampler, context)


def require_assistant_fit(config: AssistantConfig, target_config: Any) -> None:
    """Refuse an assistant that belongs to another target, by the two configs alone."""
    text = target_config.get_text_config(decoder=True)
    if text.model_type not in TARGETS:
        raise IncompatiblePair(
            f"A Gemma 4 assistant drafts for a Gemma 4 target, and this one is of the type {text.model_type}. Choose "
            "another draft."
        )
    for what, theirs, ours in (
        ("a hidden size", config.target_size, text.hidden_size),
        ("a vocabulary", config.layer.vocab_size, text.vocab_size),
    ):
        if theirs != ours:
            raise IncompatiblePair(
                f"The Gemma 4 assistant was made for {what} of {theirs:,}, and the target has {ours:,}. Choose an "
                "assistant that was made for this target."
            )
    config.sources(target_config)


class Gemma4AssistantDraft(ChainDraft):
    """Drafts with an assistant. It keeps nothing from one draft to the next.

    With L committed tokens the target has read all but the last. The first guess reads that token and the target's
    state at the token before it; each further guess reads the guess before it and the state that the assistant made
    there. All guesses of a draft see the target's L - 1 keys from the place L - 1 of the last token.
    """

    def __init__(
        self, method: Gemma4Assistant, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer
    ):
        super().__init__(vocabulary, sampler, context)
        assert isinstance(method.head, Gemma4AssistantHead) and method.embedding is not None  # the pair filled them in
        self._head, self._embedding, self._sources = method.head, method.embedding, method.sources
        self._target = target
        self._states = torch.empty(0)  # (n, T), of the tokens in the target's last pass
        self._first = 0  # the place of the first of them
        self._seen: dict[str, Seen] = {}
        self._state = torch.empty(0)  # (1, T), for the next guess
        self._marks: list[tuple[Mark, Mark]] = []
        target.tap((NORMED,), self._take)

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the target reads the prompt, and the assistant reads the target's cache."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        return self._draft(context, gamma, stop, []) if gamma else self._nothing

    def crop_to(self, length: int) -> None:
        """Nothing to do: an assistant keeps no tokens."""

    def take_seconds(self) -> float:
        return taken(self._marks)

    def require_cache(self) -> None:
        """Nothing to do: an assistant has no cache."""

    def _take(self, start: int, states: torch.Tensor) -> None:
        """Take the states (n, T) of the tokens from ``start`` on, which the target has just read."""
        self._first, self._states = start, states

    def _begin(self, context: TokenBuffer) -> None:
        """Set what the guesses of a new draft see, and the target's state at the last token that it has read."""
        place = context.length - 1
        held = {kind: self._target.keys_values(number) for kind, number in self._sources.items()}
        self._seen = self._head.seen(place, held)
        row = place - 1 - self._first
        self._state = self._states[row : row + 1].to(self._head.pre_projection.weight.device)

    def _forward(self, context: TokenBuffer, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = mark(context.device)
        if end == context.length:
            self._begin(context)
        embedded = self._embedding(context.ids(end - 1, end)).to(self._state.device)
        logits, self._state = self._head(embedded, self._state, self._seen)
        raw = logits.float().to(context.device)
        self._marks.append((start, mark(context.device)))
        return raw, self._sampler.process(raw, context, end)
