"""Drafting with a DFlash head, which guesses a whole block in one pass (Chen et al. 2602.06036)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from specdec.drafters.autoregressive import chain, spliced
from specdec.drafters.base import Drafter, Finding, Planned, Proposal, nothing
from specdec.drafters.dflash_config import DFlashConfig
from specdec.drafters.dflash_head import DFlashHead
from specdec.drafters.forms import form_of
from specdec.drafters.trained_head import TrainedHead
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
    about: ClassVar[str] = "a few layers, trained for one target, guess a whole block in one pass"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "dflash:z-lab/Qwen3-8B-DFlash-b16"

    head: str | DFlashHead
    # A pair fills these in: which of the target's layers have their input read, and the target's embedding (V, H) and
    # output matrix.
    layer_ids: tuple[int, ...] = field(default=(), repr=False)
    embedding: torch.Tensor | None = field(default=None, compare=False, repr=False)
    output: OutputLayer | None = field(default=None, compare=False, repr=False)

    def describe(self) -> DraftFacts:
        facts = self._named()
        facts["one_pass"] = True
        for head in self.heads:
            facts["layers"] = len(head.layers)
            facts["parameters"] = sum(weight.numel() for weight in head.parameters())
        if self.layer_ids:
            facts["layer_ids"] = list(self.layer_ids)
        return facts

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        (part,) = parts
        head: DFlashConfig = part.head
        text = target.config.get_text_config(decoder=True)
        output = text.vocab_size * text.hidden_size * target.bytes / target.parameters
        share = (part.bytes + output) / target.bytes
        yield Finding(
            "good" if share < 0.5 else "note",
            "Cost",
            f"A DFlash head of {len(head.sights)} layers: a draft of up to {head.block - 1} guesses takes one pass, "
            f"which reads {share:.2f} of the target's bytes, the target's output matrix included.",
        )
        depth = _depth(target.config)
        ids = ", ".join(map(str, head.states_of(depth)))
        yield Finding(
            "good",
            "Head",
            f"It reads the target's hidden states {ids} (0 is the embedding, {depth} the output of the last layer).",
        )

    def refuse(self, target_config: Any) -> None:
        if isinstance(self.head, DFlashHead):
            require_dflash_fit(self.head.config, target_config)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if not isinstance(self.head, DFlashHead):
            raise InvalidInput(f"The head is {identified(self.head)}; give a loaded head. load_pair takes names.")
        config, table = self.head.eval().config, target.get_input_embeddings()
        if self.head.fc.weight.dtype == torch.float16:
            raise InvalidInput(
                "The DFlash head has its matrix fc in float16, where its sums overflow; give fc and hidden_norm in "
                "float32 or bfloat16."
            )
        wide = table.weight.shape[1]
        if wide != config.layer.hidden_size:
            raise IncompatiblePair(
                f"The DFlash head needs embeddings of width {config.layer.hidden_size:,}, and the target's have "
                f"{wide:,}. Choose a head that was made for this target."
            )
        return replace(
            self,
            layer_ids=config.states_of(_depth(target.config)),
            embedding=table.weight.detach(),
            output=OutputLayer.of(target, config),
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
                f"The DFlash head was made for {what} of {theirs:,}, and the target has {ours:,}. Choose a head "
                "that was made for this target."
            )
    if head.mask_id >= text.vocab_size:
        raise IncompatiblePair(
            f"The DFlash head uses the token {head.mask_id:,} as its mask, and the target has {text.vocab_size:,} "
            "tokens. Choose a head that was made for this target."
        )
    head.states_of(_depth(target_config))


def _depth(config: Any) -> int:
    return config.get_text_config(decoder=True).num_hidden_layers


@dataclass(frozen=True, eq=False)
class OutputLayer:
    """The target's output matrix, and what is done to its logits x: softcap tanh(multiplier x / softcap)."""

    matrix: Any
    multiplier: float
    softcap: float | None

    @classmethod
    def of(cls, target: PreTrainedModel, head: DFlashConfig) -> OutputLayer:
        """That of ``target``. What ``head`` sets takes the place of the target's own."""
        text = target.config.get_text_config(decoder=True)
        multiplier = head.multiplier or getattr(text, "output_multiplier", None) or 1.0
        softcap = head.softcap or getattr(text, "final_logit_softcapping", None)
        return cls(target.get_output_embeddings(), multiplier, softcap)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (n, V) in float32 of normed states (n, H)."""
        logits = self.matrix(states.to(self.matrix.weight.dtype)).float()
        if self.multiplier != 1.0:
            logits = logits * self.multiplier
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap


class DFlashDraft(Drafter):
    """Drafts with a DFlash head. With L committed ids, the context is what the target has read of the first L - 1.

    The block is the last committed id, at place L - 1, and a mask at each place after it. The row of a mask gives the
    logits of its own place. It sees no guess, so all guesses are made at once.
    """

    watches = True

    def __init__(self, method: DFlash, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        # The pair filled them in.
        assert isinstance(method.head, DFlashHead) and method.embedding is not None and method.output is not None
        self._head, self._embedding, self._output = method.head, method.embedding, method.output
        self._sampler, self._context = sampler, context
        self._nothing = nothing(vocabulary, context.device, "nothing")
        self._caches = self._head.new_caches()
        config = self._head.config
        self._masks = torch.full((config.block - 1,), config.mask_id, device=context.device)
        self._features = torch.empty(0)  # of the tokens from ``_read`` on
        self._read = 0  # tokens of the context that are in the caches
        self._marks: list[tuple[Mark, Mark]] = []
        target.tap(method.layer_ids, self._take)

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the prompt is read when the target has read it."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        count = min(gamma, len(self._masks))
        if not count:
            return self._nothing
        raw = self._logits(context, count)
        ids, q = self._guesses(raw, context)
        if stop is None:
            return chain(ids, [raw], q, [])
        chances, watch = chance_of(raw, ids), watch_of(stop, context.blocks_host)
        if watch is None:
            return chain(ids, [raw], q, [], up_to_unsure(chances, stop.least_chance))
        kept = next((n for n, chance in enumerate(chances.tolist(), start=1) if watch.ends(chance)), count)
        return chain(ids[:kept], [raw[:kept]], None if q is None else q[:kept], [])

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

    def _logits(self, context: TokenBuffer, count: int) -> torch.Tensor:
        """Raw logits (count, V) of the places after the committed ids."""
        began, last = mark(context.device), context.length - 1
        new = self._new_context(last)
        ids = torch.cat([context.ids(last, last + 1), self._masks[:count]])
        block = F.embedding(ids, self._embedding).to(new.dtype) * self._head.config.embedding_scale
        logits = self._output(self._head(block, new, self._caches)[1:]).to(context.device)
        self._marks.append((began, mark(context.device)))
        return logits

    def _guesses(self, raw: torch.Tensor, context: TokenBuffer) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Guesses (g,) by raw logits (g, V), and what each was drawn from, (g, V); None in greedy decoding.

        The logits of a row depend on no guess. Only a repetition penalty does, and then guesses are made in turn.
        """
        ids, q, made = [], [], 0
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
