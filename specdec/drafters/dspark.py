"""Drafting with a DSpark head (2607.05147): a DFlash head whose guesses each follow from the guess before.

The pass over the block is DFlash's. Then guesses are chosen from left to right. The Markov head adds W2 W1[token
before] to the logits of each, and the confidence head predicts how likely the guess is to be accepted.

Names of options and weights follow DeepSpec (``deepspec/modeling/dspark/qwen3/modeling.py``, ``markov_head.py``,
``common.py``, ``eval/dspark/draft_ops.py``) and vLLM's ``speculators`` (``models/dspark``); vLLM reads both formats
(``model_executor/models/qwen3_dspark.py``). Of DeepSpec's three Markov heads only the first ("vanilla") is read, as in
vLLM; DeepSpec's released heads all have that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from specdec.drafters.base import Drafter, Finding, Planned
from specdec.drafters.dflash import DFlash, DFlashDraft, bytes_of
from specdec.drafters.dflash_config import DFlashConfig, block_fields, flag_of, whole_of
from specdec.drafters.dflash_head import EMBEDDING, DFlashHead
from specdec.drafters.forms import form_of
from specdec.errors import IncompatiblePair, quoted
from specdec.forward.runner import Runner
from specdec.runtime.clock import mark
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer

_RANK, _TYPE = "markov_rank", "markov_head_type"
_CONFIDENCE, _WITH_TOKEN = "enable_confidence_head", "confidence_head_with_markov"
_W1, _W2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"


@dataclass(frozen=True)
class DSparkConfig(DFlashConfig):
    """The settings in a head's ``config.json``.

    rank        width of W1 and W2; 0 for a head without them
    confidence  it predicts which guesses will be accepted
    confidence_reads_token   and reads W1[token before] for that, besides its own state
    """

    rank: int
    confidence: bool
    confidence_reads_token: bool


def dspark_config(config: Mapping[str, Any]) -> DSparkConfig:
    """The head that a ``config.json`` describes. Raises ``IncompatiblePair`` for one that cannot be built."""
    settings, kind = block_fields(config), config.get(_TYPE, "vanilla")
    rank, with_token = whole_of(config, _RANK, 0), flag_of(config, _WITH_TOKEN, False)
    if rank and kind != "vanilla":
        raise IncompatiblePair(
            f"The DSpark head has a Markov head of the type {quoted(kind)}, and only vanilla is read. Choose "
            "another head."
        )
    confidence = flag_of(config, _CONFIDENCE, False)
    if confidence and with_token and not rank:
        raise IncompatiblePair(
            f"The DSpark head sets {_WITH_TOKEN}, which needs a {_RANK} above 0. Correct its config.json, or choose "
            "another head."
        )
    return DSparkConfig(**settings, rank=rank, confidence=confidence, confidence_reads_token=with_token)


class DSparkHead(DFlashHead):
    """The head. D: its vocabulary, which is the target's (V) or a part of it. R: the rank of its Markov head."""

    config: DSparkConfig

    def __init__(self, config: DSparkConfig, name: str = "a DSpark head", embeds: bool = False, outputs: bool = False):
        super().__init__(config, name, embeds, outputs)
        layer, rank = config.layer, config.rank
        known = config.draft_vocabulary or layer.vocab_size
        self.markov_head = MarkovHead(layer.vocab_size, known, rank) if rank else None
        wide = layer.hidden_size + (rank if config.confidence_reads_token else 0)
        self.confidence_head = ConfidenceHead(wide) if config.confidence else None

    def following(
        self, token: torch.Tensor, state: torch.Tensor, logits: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The logits (1, D) of a guess after ``token`` (1,), by its ``state`` (1, H) and the block's ``logits`` (1, D).

        Also how likely the guess is to be accepted, (1,); None without a confidence head.
        """
        if self.markov_head is not None:
            embedded = self.markov_head.markov_w1(token)
            logits = logits + self.markov_head.markov_w2(embedded).float()
            if self.config.confidence_reads_token:
                state = torch.cat([state, embedded], -1)
        chance = None if self.confidence_head is None else self.confidence_head.proj(state).float().sigmoid()[0]
        return logits, chance


class MarkovHead(nn.Module):
    """W2 W1[token]: how a token (V) changes the logits (D) of the one after it."""

    def __init__(self, vocabulary: int, known: int, rank: int):
        super().__init__()
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, known, bias=False)


class ConfidenceHead(nn.Module):
    """The log-odds that a guess is accepted."""

    def __init__(self, wide: int):
        super().__init__()
        self.proj = nn.Linear(wide, 1)


@dataclass(frozen=True)
class DSpark(DFlash):
    """Draft with a DSpark head that was trained for this very target (2607.05147).

    As a DFlash head, it makes a draft in one pass. Then it chooses the guesses from left to right, each also by the one
    before. Where it predicts which guesses will be accepted, a draft that may end early ends by that. ``head`` is a hub
    id or a folder; once it is loaded, the head itself. A pair fills in the other fields. Raises ``IncompatiblePair``
    for a head of another target.
    """

    kind: ClassVar[str] = "dspark"
    label: ClassVar[str] = "DSpark head"
    about: ClassVar[str] = "as a DFlash head, but each guess follows from the one before"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "dspark:deepseek-ai/dspark_qwen3_8b_block7"
    weights: ClassVar[type[DFlashHead]] = DSparkHead
    outside: ClassVar[tuple[str, ...]] = (EMBEDDING, _W1, _W2)

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        yield from super().findings(target, parts)
        (part,) = parts
        if part.head.rank:
            share = bytes_of(part, _W2) / target.bytes
            yield Finding("good", "Guesses", f"Each guess reads another {share:.3f} of the target's bytes.")
        if part.head.confidence:
            use = "\u03b3 auto and confidence:P go by that"
            yield Finding("good", "Confidence", f"It predicts which guesses will be accepted; {use}.")

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return DSparkDraft(self, target, vocabulary, sampler, context)


class DSparkDraft(DFlashDraft):
    """Drafts with a DSpark head: q of a guess is made after the guess before it was drawn."""

    _head: DSparkHead

    def _drafted(
        self, states: torch.Tensor, context: TokenBuffer
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        base = self._output.of_draft(states)
        token, raw, ids, q, chances = context.ids(context.length - 1, context.length), [], [], [], []
        for made, (state, logits) in enumerate(zip(states.split(1), base.split(1), strict=True)):
            began = mark(context.device)
            logits, chance = self._head.following(token, state, logits)
            self._marks.append((began, mark(context.device)))
            raw.append(self._output.over_target(logits).to(context.device))
            token, drawn_from = self._guesses(raw[-1], context, made)
            ids.append(token)
            q += [] if drawn_from is None else [drawn_from]
            chances += [] if chance is None else [chance]
        return torch.cat(raw), torch.cat(ids), torch.cat(q) if q else None, torch.cat(chances) if chances else None
