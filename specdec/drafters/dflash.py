"""Drafting with a DFlash head, which guesses a whole block in one pass (Chen et al. 2602.06036)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from transformers import PreTrainedModel

from specdec.drafters.autoregressive import embedder, spliced
from specdec.drafters.base import (
    DraftChoices,
    Drafter,
    DraftWork,
    Finding,
    Planned,
    Proposal,
    Sized,
    nothing,
    output_bytes,
)
from specdec.drafters.dflash_config import DFlashConfig
from specdec.drafters.dflash_head import EMBEDDING, OUTPUT, DFlashHead
from specdec.drafters.forms import form_of
from specdec.drafters.trained_head import TrainedHead, in_target_ids
from specdec.errors import IncompatiblePair, InvalidInput, identified
from specdec.facts import DraftFacts
from specdec.forward.runner import Runner
from specdec.runtime.clock import Mark, mark, taken
from specdec.runtime.sampling import Sampler, chance_of, up_to_unsure
from specdec.runtime.stopping import DraftStop, watch_of
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class DFlash(TrainedHead):
    """Draft with a DFlash head that was trained for this very target (Chen et al. 2602.06036).

    A draft takes one pass of the head, whatever its length, and has at most as many tokens as the head's block has
    masks. ``head`` is a hub id or a folder; once it is loaded, the head itself. A pair fills in the other fields.
    Raises ``IncompatiblePair`` for a head of another target.
    """

    kind: ClassVar[str] = "dflash"
    label: ClassVar[str] = "DFlash head"
    about: ClassVar[str] = "a few layers, trained for one target, guess a block at once"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "dflash:z-lab/Qwen3-8B-DFlash-b16"
    weights: ClassVar[type[DFlashHead]] = DFlashHead
    outside: ClassVar[tuple[str, ...]] = (EMBEDDING,)  # the weights that its pass does not read

    head: str | DFlashHead
    # A pair fills these in: which of the target's layers have their input read, and the embedding (V, H) and the output
    # matrix, which are the head's or the target's.
    layer_ids: tuple[int, ...] = field(default=(), repr=False)
    embedding: torch.Tensor | None = field(default=None, compare=False, repr=False)
    output: OutputLayer | None = field(default=None, compare=False, repr=False)

    def describe(self) -> DraftFacts:
        facts = self._named()
        facts["one_pass"] = True
        for head in self.heads:
            facts["layers"] = len(head.layers)
            facts["parameters"] = sum(weight.numel() for weight in head.parameters())
            facts["most_guesses"] = head.config.guesses
        if self.layer_ids:
            facts["layer_ids"] = list(self.layer_ids)
        return facts

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        (part,) = parts
        head: DFlashConfig = part.head
        read, whose = part.bytes - sum(bytes_of(part, name) for name in self.outside), "its"
        if not bytes_of(part, OUTPUT):
            read, whose = read + output_bytes(target), "the target's"
        share = read / target.bytes
        yield Finding(
            "good" if share < 0.5 else "note",
            "Cost",
            f"A {head.named} of {len(head.sights)} layers: a draft of up to {head.guesses} guesses takes one pass, "
            f"which reads {share:.2f} of the target's bytes, {whose} output matrix included.",
        )
        depth = _depth(target.config)
        ids = ", ".join(map(str, head.states_of(depth)))
        yield Finding(
            "good",
            "Head",
            f"It reads the target's hidden states {ids} (0 is the embedding, {depth} the output of the last layer).",
        )

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        (part,) = parts
        head: DFlashConfig = part.head
        matrix = output_bytes(target)  # an embedding of its own, which it does not read whole, has the same size
        read = part.bytes - matrix if head.own_weights else part.bytes + matrix
        return DraftWork(read, len(head.sights), one_pass=True)

    def refuse(self, target_config: Any) -> None:
        if isinstance(self.head, DFlashHead):
            require_dflash_fit(self.head.config, target_config)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if not isinstance(self.head, DFlashHead) or type(self.head) is not self.weights:
            raise InvalidInput(
                f"The head is {identified(self.head)}; give a loaded {self.label}. load_pair takes names."
            )
        config, own = self.head.eval().config, self.head.embed_tokens
        if self.head.fc.weight.dtype == torch.float16:
            raise InvalidInput(
                f"The {config.named} has its matrix fc in float16, where its sums overflow; give fc and hidden_norm in "
                "float32 or bfloat16."
            )
        table: Any = target.get_input_embeddings() if own is None else own
        wide = table.weight.shape[1]
        if wide != config.layer.hidden_size:
            raise IncompatiblePair(
                f"The {config.named} needs embeddings of width {config.layer.hidden_size:,}, and the target's have "
                f"{wide:,}. Choose a head that was made for this target."
            )
        return replace(
            self,
            layer_ids=config.states_of(_depth(target.config)),
            embedding=table.weight.detach(),
            output=OutputLayer.of(target, self.head),
        )

    @property
    def heads(self) -> tuple[DFlashHead, ...]:
        return () if isinstance(self.head, str) else (self.head,)

    @property
    def no_graphs(self) -> str | None:
        return "A DFlash head reads hidden states, which a captured pass does not hand over."

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return DFlashDraft(self, target, vocabulary, sampler, context)


def require_dflash_fit(head: DFlashConfig, target_config: Any) -> None:
    """Refuse a head that belongs to another target, by the two configs alone."""
    text = target_config.get_text_config(decoder=True)
    for what, theirs, ours in (
        ("a hidden size", head.layer.hidden_size, text.hidden_size),
        ("a vocabulary", head.vocabulary, text.vocab_size),
        ("a depth in layers", head.target_depth, _depth(target_config)),
    ):
        if theirs not in (None, ours):
            raise IncompatiblePair(
                f"The {head.named} was made for {what} of {theirs:,}, and the target has {ours:,}. Choose a head "
                "that was made for this target."
            )
    if head.mask_id >= text.vocab_size:
        raise IncompatiblePair(
            f"The {head.named} uses the token {head.mask_id:,} as its mask, and the target has {text.vocab_size:,} "
            "tokens. Choose a head that was made for this target."
        )
    head.states_of(_depth(target_config))


def _depth(config: Any) -> int:
    return config.get_text_config(decoder=True).num_hidden_layers


def bytes_of(part: Planned, weight: str) -> float:
    """How many bytes a weight of a head takes in memory; 0 where the head has none of this name."""
    shapes = [shape for name, (_, shape) in part.headers.items() if name.removeprefix("model.") == weight]
    return sum(map(math.prod, shapes)) * part.bytes / part.parameters


@dataclass(frozen=True, eq=False)
class OutputLayer:
    """An output matrix, and what is done to its logits x: softcap tanh(multiplier x / softcap).

    ``offsets`` (D,): see ``in_target_ids``; None for an output over all tokens of the target.
    """

    matrix: Any
    multiplier: float
    softcap: float | None
    offsets: torch.Tensor | None
    vocabulary: int

    @classmethod
    def of(cls, target: PreTrainedModel, head: DFlashHead) -> OutputLayer:
        """That of ``head`` or of ``target``. What the head's config sets takes the place of the target's own."""
        text, config = target.config.get_text_config(decoder=True), head.config
        multiplier, softcap = config.multiplier or 1.0, config.softcap
        if not config.own_weights:
            multiplier = config.multiplier or getattr(text, "output_multiplier", None) or 1.0
            softcap = config.softcap or getattr(text, "final_logit_softcapping", None)
        matrix: Any = target.get_output_embeddings() if head.lm_head is None else head.lm_head
        return cls(matrix, multiplier, softcap, head.d2t, text.vocab_size)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (n, V) in float32 of normed states (n, H)."""
        return self.over_target(self.of_draft(states))

    def of_draft(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (n, D) in float32 over the tokens that the matrix knows."""
        logits = self.matrix(states.to(self.matrix.weight.dtype)).float()
        if self.multiplier != 1.0:
            logits = logits * self.multiplier
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap

    def over_target(self, logits: torch.Tensor) -> torch.Tensor:
        """Turn logits (n, D) into logits (n, V)."""
        return logits if self.offsets is None else in_target_ids(logits, self.offsets, self.vocabulary)


class DFlashDraft(Drafter):
    """Drafts with a DFlash head. With L committed ids, the context is what the target has read of the first L - 1.

    The block is the last committed id, at place L - 1, and a mask at each place after it. The row of a mask gives the
    logits of its own place. In some heads each row gives those of the place after its own, and one mask less is needed.
    A row sees no guess, so all guesses are made at once.
    """

    watches = True

    def __init__(self, method: DFlash, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        # The pair filled them in.
        assert isinstance(method.head, DFlashHead) and method.embedding is not None and method.output is not None
        self._head, self._embed, self._output = method.head, embedder(method.embedding, target), method.output
        self._sampler, self._context = sampler, context
        self._nothing = nothing(vocabulary, context.device, "nothing")
        self._caches = self._head.new_caches()
        config = self._head.config
        self._masks = torch.full((config.guesses,), config.mask_id, device=context.device)
        self._features = torch.empty(0)  # of the tokens from ``_read`` on
        self._read = 0  # tokens of the context that are in the caches
        self._marks: list[tuple[Mark, Mark]] = []
        target.tap(method.layer_ids, self._take)

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the prompt is read when the target has read it."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        count = min(gamma, self._head.config.guesses)
        if not count:
            return self._nothing
        raw, ids, q, chances = self._drafted(self._states(context, count), context)
        limit = None
        if stop is not None:
            sure, watch = chance_of(raw, ids) if chances is None else chances, watch_of(stop, context.blocks_host)
            if watch is None:
                limit = up_to_unsure(sure, stop.least_chance)
            else:
                kept = next((n for n, chance in enumerate(sure.tolist(), start=1) if watch.ends(chance)), count)
                raw, ids = raw[:kept], ids[:kept]
                q, chances = (None if given is None else given[:kept] for given in (q, chances))
        choices = DraftChoices(ids, (raw,), None if chances is None else -chances.log())
        return Proposal(ids, q, choices, limit)

    def crop_to(self, length: int) -> None:
        for cache in self._caches:
            cache.crop(self._read - cache.get_seq_length())

    def take_seconds(self) -> float:
        return taken(self._marks)

    def require_cache(self) -> None:
        """A head's cache can always be rolled back."""

    def _take(self, start: int, features: torch.Tensor) -> None:
        """Take the features (n, states x H) of the tokens from ``start`` on, which the target has just read."""
        self._features = spliced(self._features, self._read, features.to(self._context.device), start)
        committed = self._context.length - 1
        if start == 0 and committed > self._read:
            began = mark(self._context.device)
            self._head.read(self._new_context(committed), self._caches)
            self._marks.append((began, mark(self._context.device)))

    def _new_context(self, end: int) -> torch.Tensor:
        """The context (n, H) up to ``end`` that is not in the caches yet, and will be with the next pass."""
        count = end - self._read
        context = self._head.fused(self._features[:count])
        self._features, self._read = self._features[count:], end
        return context

    def _states(self, context: TokenBuffer, count: int) -> torch.Tensor:
        """Normed states (count, H) of the rows that guess."""
        began, last = mark(context.device), context.length - 1
        new = self._new_context(last)
        ids = torch.cat([context.ids(last, last + 1), self._masks[: count - self._head.config.from_anchor]])
        block = self._embed(ids).to(new.dtype) * self._head.config.embedding_scale
        states = self._head(block, new, self._caches)[-count:]
        self._marks.append((began, mark(context.device)))
        return states

    def _drafted(
        self, states: torch.Tensor, context: TokenBuffer
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Raw logits (g, V), guesses (g,) and what each was drawn from, of states (g, H).

        Also how likely each is to be accepted, (g,); None where the head does not predict that.
        """
        began = mark(context.device)
        raw = self._output(states).to(context.device)
        self._marks.append((began, mark(context.device)))
        return raw, *self._guesses(raw, context), None

    def _guesses(
        self, raw: torch.Tensor, context: TokenBuffer, made: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Guesses (g,) by raw logits (g, V), and what each was drawn from, (g, V); None in greedy decoding.

        The logits of a row depend on no guess. Only a repetition penalty does, and then guesses are made in turn.
        ``made``: the guesses of this draft before these.
        """
        ids, q = [], []
        for rows in raw.split(1) if self._sampler.reads_ids else (raw,):
            processed = self._sampler.process(rows, context, context.length + made + len(rows) - 1)
            if self._sampler.greedy:
                ids.append(processed.argmax(-1))
            else:
                q.append(self._sampler.probabilities(processed))
                ids.append(self._sampler.draw(q[-1]))
            context.write(made, ids[-1])
            made += len(rows)
        return torch.cat(ids), torch.cat(q) if q else None
