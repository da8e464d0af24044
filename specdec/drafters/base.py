"""The interface of a way to draft.

``DraftMethod`` is a value: a person names it, a pair holds it, and it says what it needs. ``Drafter`` drafts within one
call. To add a way to draft, write one file with both of them, and add one row to ``registry.METHODS`` and one to
``forms.FORMS``. What guesses from the text alone needs no ``Drafter`` of its own: see ``prompt_lookup.LookupDraft``.
docs/architecture.md lists what else a way of this package needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

Level = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about a pair. ``bad`` means that the pair cannot work or can hardly pay."""

    level: Level
    topic: str
    sentence: str


class Sized(Protocol):
    """The size of a model or of a drafting head, which is known before its weights are loaded and afterwards."""

    @property
    def config(self) -> Any: ...  # of a whole model
    @property
    def parameters(self) -> int: ...
    @property
    def bytes(self) -> float: ...
    @property
    def head(self) -> Any: ...  # the settings of a drafting head; None for a whole model


class Planned(Sized, Protocol):
    """What is known of a model before its weights are loaded."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def headers(self) -> Mapping[str, tuple[str, tuple[int, ...]]]: ...  # number type and shape of each weight


class DraftWork(NamedTuple):
    """What one pass of a draft reads: bytes of weights, through so many layers.

    ``one_pass``: one pass makes all guesses of a draft; else each guess takes a pass.
    """

    bytes: float = 0.0
    layers: int = 0
    one_pass: bool = False


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

    The methods that are not abstract fit a way to draft that has no weights of its own and works with every target.
    """

    kind: ClassVar[str]  # its name in events, recordings and ``describe``
    label: ClassVar[str]  # its name on the page
    form: ClassVar[str]  # how to write it on a command line
    example: ClassVar[str]  # a text that ``parse`` takes
    about: ClassVar[str] = ""  # what it does, in a line that the page shows before somebody chooses it

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self | None:
        """The method that a person wrote on a command line or on the page; None if ``text`` names another one.

        Raises ``InvalidInput`` where ``text`` names this one and is not complete.
        """

    @abstractmethod
    def describe(self) -> DraftFacts:
        """Plain values for events, recordings and code.

        - ``kind``: the class attribute.
        - ``text``: a text that ``parse`` reads.
        - ``python``: the expression that builds the method.
        - ``depends_on_start``: whether a guess depends on the place where its draft began, and not only on the text
          before it, guesses included; also whether a draft may be shorter than it was asked to be. If so, one run does
          not tell what other draft lengths would have guessed, and "What if" (``measure/whatif.py``) refuses to compute
          them. For a block drafter it computes expected values.
        - ``one_pass``: True of a block drafter: a draft takes one pass, whatever its length. ``most_guesses``: how many
          guesses it has at most.
        - the further fields of ``DraftFacts`` that fit; what a method of another package says besides is in ``more``.
        """

    @abstractmethod
    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        """What is known before weights are loaded; one finding is about cost. ``parts`` are the method's models."""

    @abstractmethod
    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        """The drafter of one call. ``target`` runs the target's passes; the target has ``vocabulary`` ids.

        ``context`` holds the prompt alone at this time. The text that the call writes is appended to it.
        """

    def refuse(self, target_config: Any) -> None:  # noqa: B027 - most methods refuse nothing
        """Raise ``IncompatiblePair`` for a target whose config alone says that this method cannot work with it."""

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        """What drafting for ``target`` reads. ``parts`` are the method's models and heads, before or after loading.

        Unless a method says otherwise, each guess is a pass through all of them.
        """
        layers = (part.config.get_text_config(decoder=True).num_hidden_layers for part in parts if part.head is None)
        return DraftWork(sum(part.bytes for part in parts), sum(layers))

    def parts(self) -> tuple[str, ...]:
        """Hub ids or folders of the causal language models that it needs besides the target."""
        return ()

    def loaded(self, models: Sequence[Loaded]) -> Self:
        """The method with its models, one for each of ``parts``."""
        return self

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        """The method with what it needs of ``target``. ``tokenizer`` is the target's, or None.

        A method that looks at the text of tokens reads it here (``specdec.text.TokenBytes``), into a field with
        ``compare=False``. Without a tokenizer it works without that text, or raises ``IncompatiblePair``.
        """
        return self

    @property
    def models(self) -> tuple[PreTrainedModel, ...]:
        """The models that it adds to the target."""
        return ()

    @property
    def heads(self) -> tuple[nn.Module, ...]:
        """The weights that it adds which are not a whole model."""
        return ()

    @property
    def no_graphs(self) -> str | None:
        """Why a pair with this draft cannot use the graph engine, in a sentence; None if it can."""
        return None

    @property
    def context_length(self) -> int | None:
        """How many of the target's tokens it can read; None where it sets no bound of its own."""
        return None


class DraftChoices(NamedTuple):
    """What a draft of g tokens chose and how sure it was; verification does not use it, the events report it.

    - ``ids``: the draft tokens, and after them the draft's choices at m earlier places. The target had added a token at
      those places before the draft read that far.
    - ``logits``: the raw logits of ``ids``, in as many parts as there were passes. A copied draft has none. In greedy
      decoding, a draft of another vocabulary has none either.
    - ``neg_log_probs``: -log of its probability of each token, for a draft without logits; or of the probability that
      the token is accepted, for a draft that predicts it. None for the softmax of ``logits``.
    - ``already_reported``: how many of the m choices are known from earlier rounds.
    """

    ids: torch.Tensor  # (g + m,)
    logits: tuple[torch.Tensor, ...] = ()  # (g + m, V) together
    neg_log_probs: torch.Tensor | None = None  # (g,)
    already_reported: int = 0


class Proposal(NamedTuple):
    """One draft of g tokens on the device, over the target's V ids.

    - ``ids``: the draft tokens.
    - ``q``: the distribution that each of them was drawn from; None in greedy decoding.
    - ``choices``: for the events.
    - ``limit``: how many draft tokens count. A draft that is made without waiting for the device may be too long.
    - ``key``: what the addresses and shapes of these tensors depend on, besides the call's settings (see
      ``Engine.run``); None where they are made anew each time.
    - ``drafted_by``: the kind of the way that guessed, where a pair drafts in more than one; else None.
    """

    ids: torch.Tensor  # (g,)
    q: torch.Tensor | None  # (g, V)
    choices: DraftChoices
    limit: torch.Tensor | None = None  # ()
    key: Hashable | None = None
    drafted_by: str | None = None


def nothing(vocabulary: int, device: torch.device, key: Hashable | None = None) -> Proposal:
    """A draft of no tokens. ``key``: see ``Proposal``. The prompt is read with such a draft, once in a call."""
    ids = torch.empty(0, dtype=torch.long, device=device)
    choices = DraftChoices(ids, neg_log_probs=torch.empty(0, device=device))
    return Proposal(ids, torch.empty(0, vocabulary, device=device), choices, key=key)


class Drafter(Protocol):
    """Proposes tokens within one call. A drafter never decides what is kept.

    Subclass it. Most drafters leave the last two methods as they are here, where they do nothing. ``watches``: whether
    it has a probability of its own for each guess, by which a ``DraftStop`` can end a draft.
    """

    watches: bool

    def prefill(self, context: TokenBuffer) -> None:
        """Read the prompt, so that drafting in the first round costs no more than in any other."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        """Propose up to ``gamma`` tokens after the committed ids, and write them into the context too.

        ``stop`` may end the draft earlier; a drafter without probabilities of its own pays no heed to it.
        """

    def crop_to(self, length: int) -> None:
        """Forget all but the first ``length`` ids."""

    def take_seconds(self) -> float:
        """Seconds in its own forward passes since the last call of this method."""

    def require_cache(self) -> None:
        """Refuse a model whose cache cannot be rolled back. Called after the prefill."""

    def note_choices(self, tokens: list[int], choices: list[int]) -> None:
        """Take note of what the target ranked first. Called after each of its passes, before anything is committed.

        ``choices[i]`` is its most likely token after ``tokens[i]``. The tokens (n) are the last committed one and the
        draft, kept or not; after the prompt's pass, the prompt's last token alone.
        """
        return

    def catch_up(self, context: TokenBuffer) -> None:
        """Read what was committed in rounds for which this drafter was not asked. Called before it is asked again.

        ``propose`` would read it too, as a part of the draft. This is for drafters whose drafts take longer then.
        """
        return


class NoDraft(Drafter):
    """Proposes nothing, so that plain decoding is the same loop (gamma 0).

    It is also the base of drafters without a model, which have no passes to time and no cache to cut back.
    """

    watches = False

    def __init__(self, vocabulary: int, context: TokenBuffer):
        self._nothing = nothing(vocabulary, context.device, "nothing")

    def prefill(self, context: TokenBuffer) -> None: ...

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        return self._nothing

    def crop_to(self, length: int) -> None: ...

    def take_seconds(self) -> float:
        return 0.0

    def require_cache(self) -> None: ...


def output_bytes(target: Sized) -> float:
    """Bytes of the target's output matrix, if its numbers have the mean size of all."""
    text = target.config.get_text_config(decoder=True)
    return text.vocab_size * text.hidden_size * target.bytes / target.parameters


def after_kind(text: str, kind: str) -> str | None:
    """The part of ``text`` after ``kind`` and a colon: "3" in "early-exit:3", "" in "early-exit", None in others."""
    name, _, rest = text.partition(":")
    return rest if name == kind else None
