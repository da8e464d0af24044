"""A way to draft: what it is before a call, and what the loop asks of it during one.

``DraftMethod`` is a value: a person names it, a pair holds it, and it says what it needs. ``Drafter`` does the drafting
of one call. Adding a way to draft is one file with both of them and one row in ``methods.METHODS``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec.passes.context import Context
from specdec.passes.runner import Runner
from specdec.passes.sampling import Sampler

Level = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One plain sentence about a pair: ``bad`` means that it cannot work or can hardly pay."""

    level: Level
    topic: str
    sentence: str


class Planned(Protocol):
    """What is known of a model before its weights are here."""

    @property
    def config(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def parameters(self) -> int: ...
    @property
    def bytes(self) -> float: ...


class Loaded(NamedTuple):
    """A model with its tokenizer."""

    model: PreTrainedModel
    tokenizer: Any


class DraftMethod(ABC):
    """A way to draft. Subclasses are frozen dataclasses: comparable and picklable.

    A method names the weights that it needs and never fetches or loads them, because loading (devices, memory,
    downloads, other number types) is the same for every method. So it comes in three steps, each a new value:

    1. as named: ``EarlyExit(3)``, or ``parse("early-exit:3")``;
    2. ``loaded``: with the models of its ``parts``, where it has any;
    3. ``bound_to`` a target: with what it derives from that target. A pair does this, and calls ``start`` only then.

    What is written here fits a method that needs no weights of its own and works with every target.
    """

    kind: ClassVar[str]  # what ``describe`` says of it
    label: ClassVar[str]  # its name on the page
    form: ClassVar[str]  # how it is written on a command line, for a person who reads the help
    example: ClassVar[str]  # the same, as a text that ``parse`` takes

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self | None:
        """The method that a person wrote on a command line or on the page; None if ``text`` names another one.

        Raises ``InvalidInput`` where ``text`` names this one and is not complete.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Plain values for events, recordings and code: ``kind``; ``text``, which ``parse`` reads; ``python``, the
        expression that builds it; ``depends_on_start``, whether a guess depends on where its draft began and not only
        on the text in front of it; and whatever else distinguishes two drafts of one kind."""

    @abstractmethod
    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        """What is worth knowing before weights are here; one of them is about cost. ``parts`` are its own models."""

    @abstractmethod
    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: Context) -> Drafter:
        """The drafter of one call. ``target`` runs the target's passes, over ``vocabulary`` ids."""

    def refuse(self, target_config: Any) -> None:  # noqa: B027 - most methods refuse nothing
        """Raise ``IncompatiblePair`` for a target whose config alone says that this method cannot work with it."""

    def parts(self) -> tuple[str, ...]:
        """Hub ids or folders of the causal language models that it needs beside the target."""
        return ()

    def loaded(self, models: Sequence[Loaded]) -> Self:
        """Itself with its models, one for each of ``parts``."""
        return self

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        """Itself with what it needs of ``target``. ``tokenizer`` is the target's, or None."""
        return self

    @property
    def models(self) -> tuple[PreTrainedModel, ...]:
        """The models that it brings beside the target."""
        return ()

    @property
    def heads(self) -> tuple[nn.Module, ...]:
        """The weights that it brings which are no model of their own."""
        return ()

    @property
    def no_graphs(self) -> str | None:
        """Why a pair with this draft cannot use the graph engine, in a sentence; None if it can."""
        return None

    @property
    def context_length(self) -> int | None:
        """How many of the target's tokens it can read; None where it sets no bound of its own."""
        return None


class Proposal(NamedTuple):
    """One draft on the device; g tokens over the target's V ids.

    ``guesses`` are the g tokens and after them the draft's choices at m positions that it read only now, because the
    target had added a token there before the draft could; ``logits`` are the raw ones of both, in parts as they came.
    A copied draft has none, nor has, in greedy, one made in another vocabulary. These say themselves how sure they
    were: ``nats`` are -log of their probability of each token.

    A draft that was made without waiting for the device may be too long: only its first ``limit`` tokens count. The
    first ``repeats`` of the m choices are known from earlier rounds. ``key`` says what the addresses and shapes of
    these tensors depend on (see ``Engine.run``); None where they are made anew each time.
    """

    ids: torch.Tensor  # (g,)
    q: torch.Tensor | None  # (g, V), the distribution each id was drawn from; None in greedy
    logits: tuple[torch.Tensor, ...]  # (g + m, V) together
    guesses: torch.Tensor  # (g + m,)
    nats: torch.Tensor | None = None  # (g,), where there are no ``logits``
    limit: torch.Tensor | None = None  # ()
    repeats: int = 0
    key: Hashable | None = None


def nothing(vocabulary: int, device: torch.device) -> Proposal:
    """A draft of no tokens."""
    ids = torch.empty(0, dtype=torch.long, device=device)
    return Proposal(
        ids, torch.empty(0, vocabulary, device=device), (), ids, torch.empty(0, device=device), key="nothing"
    )


class Drafter(Protocol):
    """What the loop asks of whatever proposes. A drafter never decides what is kept."""

    def prefill(self, context: Context) -> None:
        """Read the prompt, so that the first round drafts at the cost of any other."""

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        """Up to ``gamma`` tokens after the committed ids, written into the context as well; the first whose raw
        probability is below ``least_confidence`` is the last."""

    def crop_to(self, length: int) -> None:
        """Forget all but the first ``length`` ids."""

    def take_seconds(self) -> float:
        """Seconds in forward passes of its own since the last call of this method."""

    def require_cache(self) -> None:
        """After the prefill: refuse a model that cannot be rolled back."""


class NoDraft:
    """Proposes nothing, so that plain decoding is the same loop (gamma 0)."""

    def __init__(self, vocabulary: int, context: Context):
        self._nothing = nothing(vocabulary, context.device)

    def prefill(self, context: Context) -> None: ...

    def propose(self, context: Context, gamma: int, least_confidence: float | None) -> Proposal:
        return self._nothing

    def crop_to(self, length: int) -> None: ...

    def take_seconds(self) -> float:
        return 0.0

    def require_cache(self) -> None: ...


def after_kind(text: str, kind: str) -> str | None:
    """What stands after ``kind`` and a colon: "3" in "early-exit:3", "" in "early-exit"; None in other texts."""
    name, _, rest = text.partition(":")
    return rest if name == kind else None
