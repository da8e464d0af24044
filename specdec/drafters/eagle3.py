"""Drafting with an EAGLE-3 head, which reads the target's own hidden states (Li et al. 2503.01840).

The configuration of a head tells whether it drafts token by token, or in parallel (P-EAGLE, Hui et al. 2602.01469).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from transformers import PreTrainedModel

from specdec.drafters.autoregressive import ChainDraft, embedder, spliced
from specdec.drafters.base import Drafter, DraftWork, Finding, Planned, Proposal, Sized
from specdec.drafters.eagle3_head import Eagle3Head, HeadConfig
from specdec.drafters.forms import form_of
from specdec.drafters.trained_head import TrainedHead
from specdec.errors import IncompatiblePair, InvalidInput, identified
from specdec.facts import DraftFacts
from specdec.forward.hf import decoder_layers
from specdec.forward.hf_cache import PreallocatedLayer
from specdec.forward.runner import Runner
from specdec.runtime.clock import Mark, mark, taken
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

EMBEDDED_HEAD = "embedded"


@dataclass(frozen=True)
class Eagle3(TrainedHead):
    """Draft with an EAGLE-3 head that was trained for this very target (Li et al. 2503.01840).

    ``head`` is a hub id or a folder, or "embedded" for the head that ships with the embedded target; once it is loaded,
    the head itself. It may be a P-EAGLE head, which makes all guesses of a draft in one pass (Hui et al. 2602.01469). A
    draft is then no longer than such a head was trained for. A pair fills in the other fields. Raises
    ``IncompatiblePair`` for a head of another target.
    """

    kind: ClassVar[str] = "eagle3"
    label: ClassVar[str] = "EAGLE-3 head"
    about: ClassVar[str] = "a small network, trained for one target, uses its inner results"
    form: ClassVar[str] = form_of(kind)
    shipped: ClassVar[str | None] = EMBEDDED_HEAD
    example: ClassVar[str] = "eagle3:AngelSlim/Qwen3-1.7B_eagle3"

    head: str | Eagle3Head
    # A pair fills these in: which of the target's layers have their input read (their number: the last one's output),
    # and the embedding (V, H) of the head or of the target.
    layer_ids: tuple[int, ...] = field(default=(), repr=False)
    embedding: torch.Tensor | None = field(default=None, compare=False, repr=False)

    def describe(self) -> DraftFacts:
        facts = self._named()
        for head in self.heads:
            facts["parameters"] = sum(weight.numel() for weight in head.parameters())
            facts["rows"] = head.lm_head.weight.shape[0]
            if head.config.parallel:
                facts["one_pass"] = True
            if head.config.most_guesses is not None:
                facts["most_guesses"] = head.config.most_guesses
        if self.layer_ids:
            facts["layer_ids"] = list(self.layer_ids)
        return facts

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        (head,) = parts
        config, work = head.head, self.work(target, parts)
        share, layers = work.bytes / target.bytes, work.layers
        kind = "A P-EAGLE head" if config.parallel else "An EAGLE-3 head"
        guessing = "all guesses of a draft together read" if config.parallel else "a guess reads"
        yield Finding(
            "good" if share < 0.25 else "note",
            "Cost",
            f"{kind} of {'one layer' if layers == 1 else f'{layers} layers'}: {guessing} {share:.2f} of the target's "
            "bytes.",
        )
        if config.most_guesses is not None:
            yield Finding(
                "good",
                "Draft length",
                f"It was trained to make up to {config.most_guesses} guesses at once; a draft is not longer than that.",
            )
        depth = _depth(target.config)
        ids = ", ".join(map(str, head.head.layers_of(depth)))
        yield Finding(
            "good",
            "Head",
            f"It reads the target's hidden states {ids} (0 is the embedding, {depth} the output of the last layer).",
        )

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        (head,) = parts
        config: HeadConfig = head.head
        return DraftWork(head.bytes, config.layer.num_hidden_layers, config.parallel)

    def refuse(self, target_config: Any) -> None:
        if isinstance(self.head, Eagle3Head):
            require_fit(self.head.config, target_config)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if not isinstance(self.head, Eagle3Head):
            raise InvalidInput(f"The head is {identified(self.head)}; give a loaded head. load_pair takes names.")
        own = self.head.eval().embed_tokens
        embedding: Any = target.get_input_embeddings() if own is None else own
        wide, ours = embedding.weight.shape[1], self.head.config.layer.hidden_size
        if wide != ours:
            raise IncompatiblePair(
                f"The EAGLE-3 head needs embeddings of width {ours:,}, and the target's have {wide:,}. Choose a head "
                "that was made for this target."
            )
        depth = _depth(target.config)
        layer_ids = self.head.config.layers_of(depth)
        if depth in layer_ids and decoder_layers(target) is None:
            raise IncompatiblePair(
                f"The EAGLE-3 head reads the output of the target's last layer, which cannot be had from "
                f"{type(target).__name__}. Choose a head that reads other layers."
            )
        return replace(self, layer_ids=layer_ids, embedding=embedding.weight.detach())

    @property
    def heads(self) -> tuple[Eagle3Head, ...]:
        return () if isinstance(self.head, str) else (self.head,)

    @property
    def no_graphs(self) -> str | None:
        return "An EAGLE-3 head reads hidden states, which a captured pass does not hand over."

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        assert isinstance(self.head, Eagle3Head)  # the pair loaded it
        draft = ParallelDraft if self.head.config.parallel else Eagle3Draft
        return draft(self, target, vocabulary, sampler, context)


def require_fit(head: HeadConfig, target_config: Any) -> None:
    """Refuse a head that belongs to another target, by the two configs alone."""
    text = target_config.get_text_config(decoder=True)
    for what, theirs, ours in (
        ("a hidden size", head.target_size, text.hidden_size),
        ("a vocabulary", head.layer.vocab_size, text.vocab_size),
    ):
        if theirs != ours:
            raise IncompatiblePair(
                f"The EAGLE-3 head was made for {what} of {theirs:,}, and the target has {ours:,}. Choose a head "
                "that was made for this target."
            )
    head.layers_of(_depth(target_config))


def _depth(config: Any) -> int:
    return config.get_text_config(decoder=True).num_hidden_layers


class Eagle3Draft(ChainDraft):
    """Drafts with a head. Its input t joins the target's features at token t with the embedding of token t + 1.

    The logits of input t are for token t + 2. Inputs with true features stay in the head's caches. Within a draft the
    head uses its own states in place of features; those inputs are dropped when the target has read the tokens.
    """

    def __init__(self, method: Eagle3, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(vocabulary, sampler, context)
        assert isinstance(method.head, Eagle3Head) and method.embedding is not None  # the pair filled them in
        self._head, self._embed, self._context = method.head, embedder(method.embedding, target), context
        self._caches = [PreallocatedLayer() for _ in method.head.layers]
        self._features = torch.empty(0)  # of the tokens from ``_read`` on
        self._read = 0  # inputs with true features that are in the caches
        self._state = torch.empty(0)  # (1, H), which the next guess is made from
        self._marks: list[tuple[Mark, Mark]] = []
        target.tap(method.layer_ids, self._take)

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the prompt is read when the target has read it."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        return self._draft(context, gamma, stop, []) if gamma else self._nothing

    def crop_to(self, length: int) -> None:
        for cache in self._caches:
            cache.crop(self._read - cache.get_seq_length())

    def take_seconds(self) -> float:
        return taken(self._marks)

    def require_cache(self) -> None:
        """A head's cache can always be rolled back."""

    def _take(self, start: int, features: torch.Tensor) -> None:
        """Take the features (n, 3 x target size) of the tokens from ``start`` on, which the target has just read."""
        self._features = spliced(self._features, self._read, features.to(self._context.device), start)
        if start == 0 and self._context.length > 1:
            self._pairs(self._context.length - 1)

    def _pairs(self, end: int) -> torch.Tensor:
        """Feed the inputs with true features up to ``end``. Returns the logits (1, D) of the last one."""
        return self._pass(*self._unread(end))

    def _unread(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """States (n, H) and ids (n,) of the unread inputs with true features up to ``end``; they count as read now."""
        count, start = end - self._read, mark(self._context.device)
        states = self._head.fused(self._features[:count])
        ids = self._context.ids(self._read + 1, end + 1)
        self._features, self._read = self._features[count:], end
        self._marks.append((start, mark(self._context.device)))
        return states, ids

    def _pass(self, states: torch.Tensor, ids: torch.Tensor, keep: int = 1) -> torch.Tensor:
        """Feed inputs of ``states`` (n, H) and ``ids`` (n,). Returns the logits (keep, D) of the last ones."""
        start = mark(self._context.device)
        logits, self._state = self._head(states, self._embed(ids).to(states.dtype), *self._caches, keep=keep)
        self._marks.append((start, mark(self._context.device)))
        return logits

    def _forward(self, context: TokenBuffer, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        if end == context.length:
            logits = self._pairs(end - 1)
        else:
            logits = self._pass(self._state, context.ids(end - 1, end))
        raw = self._head.in_target_ids(logits.float(), self._vocabulary)
        return raw, self._sampler.process(raw, context, end)


class ParallelDraft(Eagle3Draft):
    """Drafts with a P-EAGLE head (Hui et al. 2602.01469): one pass makes all guesses of a draft.

    The last input with true features makes the first guess. For each further guess an input follows at the next
    position, with a learned state in place of features and one certain token in place of the guess before. It sees all
    inputs before it, so the guesses do not depend on each other. Those inputs are dropped after the draft.
    """

    def __init__(self, method: Eagle3, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(method, target, vocabulary, sampler, context)
        assert self._head.config.mask_token is not None  # it drafts in parallel
        self._mask_token, self._unknown = self._head.config.mask_token, self._head.unknown_state()
        self._guesses = 0  # in this draft
        self._raw = torch.empty(0)  # (guesses, V), the logits of this draft

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        most = self._head.config.most_guesses
        self._guesses = gamma if most is None else min(gamma, most)
        return super().propose(context, self._guesses, stop)

    def _forward(self, context: TokenBuffer, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        guess = end - context.length
        if guess == 0:
            (states, ids), further = self._unread(end - 1), self._guesses - 1
            states = torch.cat([states, self._unknown.expand(further, -1)])
            ids = torch.cat([ids, ids.new_full((further,), self._mask_token)])
            logits = self._pass(states, ids, self._guesses)
            self._raw = self._head.in_target_ids(logits.float(), self._vocabulary)
        raw = self._raw[guess : guess + 1]
        return raw, self._sampler.process(raw, context, end)
