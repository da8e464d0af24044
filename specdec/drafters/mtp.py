"""Drafting with the target's own multi-token prediction layers (DeepSeek-AI 2412.19437, section 2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer, MtpCache
from transformers.modeling_layers import MtpModel

from specdec.drafters.autoregressive import ChainDraft, spliced
from specdec.drafters.base import Drafter, DraftMethod, DraftWork, Finding, Planned, Proposal, Sized, output_bytes
from specdec.drafters.forms import form_of
from specdec.drafters.qwen_mtp import declared, is_qwen, share_of_pass
from specdec.errors import IncompatiblePair, InvalidInput
from specdec.facts import DraftFacts
from specdec.forward.hf import NORMED
from specdec.forward.hf_cache import PreallocatedLayer
from specdec.forward.hf_private import mtp_logits
from specdec.forward.model_info import attends
from specdec.forward.runner import Runner
from specdec.runtime.clock import Mark, mark, taken
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class Mtp(DraftMethod):
    """Draft with the target's layers for multi-token prediction (DeepSeek-AI 2412.19437).

    Their weights are in the target's checkpoint. ``model`` is None until ``load_pair`` has read them. Raises
    ``IncompatiblePair`` for a target that has none, or none that are read: those that transformers loads (DeepSeek-V3,
    GLM-4.5 and others), and the one of Qwen3-Next, Qwen3.5 and later.
    """

    kind: ClassVar[str] = "mtp"
    label: ClassVar[str] = "MTP layers"
    about: ClassVar[str] = "further layers that the target was trained with"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "mtp"

    model: MtpModel | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        return cls() if text == cls.kind else None

    def describe(self) -> DraftFacts:
        facts: DraftFacts = {
            "kind": self.kind,
            "text": self.kind,
            "python": "specdec.Mtp()",
            "depends_on_start": True,  # guess i is made by layer i, or from the states of the guess before it
        }
        for layers in self.heads:  # the embedding and the output matrix are the target's
            facts["layers"] = len(layers)
            facts["parameters"] = sum(weight.numel() for weight in layers.parameters())
        return facts

    def refuse(self, target_config: Any) -> None:
        layers_of(target_config)

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        layers = layers_of(target.config)
        if is_qwen(target.config):
            share = share_of_pass(target)
            yield Finding(
                "good" if share < 0.25 else "note",
                "Cost",
                f"The target has one MTP layer. A guess reads {share:.2f} of the bytes that a target pass reads, the "
                "output matrix included.",
            )
            return
        share = 1 / target.config.get_text_config(decoder=True).num_hidden_layers
        how = (
            f"layers; from guess {layers} on, the last is used" if layers > 1 else "layer; each guess passes through it"
        )
        yield Finding(
            "good" if share < 0.25 else "note",
            "Cost",
            f"The target has {layers} MTP {how}. A guess costs about {share:.2f} of a target pass.",
        )

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        """A guess is a pass through one of the layers; ``parts`` are all of them, after loading."""
        read = sum(part.bytes for part in parts) / layers_of(target.config)
        return DraftWork(read + output_bytes(target), 1)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if self.model is None:
            raise InvalidInput("The MTP layers have no weights yet; load_pair reads them from the target's checkpoint.")
        layers_of(target.config)
        self.model.eval()
        return self

    @property
    def heads(self) -> tuple[nn.ModuleList, ...]:
        return () if self.model is None else (self.model.layers,)

    @property
    def no_graphs(self) -> str | None:
        return "MTP layers read hidden states, which a captured pass does not hand over."

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        return MtpDraft(self, target, vocabulary, sampler, context)


def layers_of(config: Any) -> int:
    """How many MTP layers are read of a target. Raises ``IncompatiblePair`` where there are none."""
    config = declared(config)
    text = config.get_text_config(decoder=True)
    if not getattr(text, "num_mtp_layers", None):
        raise IncompatiblePair(
            f"The target's configuration ({text.model_type}) names no MTP layers that are read "
            "(num_mtp_layers; in Qwen3.5, mtp_num_hidden_layers); use a draft model or prompt-lookup."
        )
    try:
        own = config.get_mtp_config()
    except ValueError as error:
        raise IncompatiblePair(f"The target's MTP layers cannot be built: {error}") from error
    kinds = getattr(own, "layer_types", None) or ()
    if not all(map(attends, kinds)):
        raise IncompatiblePair("The target's MTP layers keep recurrent state, which is not rolled back for them.")
    return own.num_hidden_layers


class MtpDraft(ChainDraft):
    """Drafts with MTP layers. Row t of layer k joins the state at token t with the embedding of token t + 1 + k.

    Its logits are for token t + 2 + k. Layer 0 reads the target's last state at token t; each further layer reads the
    output of the layer before it at row t. Layer i makes guess i, as in transformers. After the last layer, that layer
    goes on from its own states, as in vLLM.

    With L committed ids, a draft feeds each layer its rows up to L - 2. The last k rows of layer k read guesses. They
    are dropped afterwards, and fed again when their tokens are committed.
    """

    def __init__(self, method: Mtp, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(vocabulary, sampler, context)
        assert method.model is not None  # the pair checked this
        self._model, self._context = method.model, context
        self._cache = MtpCache(config=self._model.config)
        self._cache.activate_past_recording()
        self._cache.layers = [PreallocatedLayer() if type(one) is DynamicLayer else one for one in self._cache.layers]
        count = len(self._model.layers)
        self._rows = [0] * count  # in each layer's cache, of committed tokens alone
        self._states = [torch.empty(0)] * count  # the input of each layer from that row on
        self._last = torch.empty(0)  # (1, H), the state of the guess before
        self._marks: list[tuple[Mark, Mark]] = []
        self._device = self._model.layers[0].eh_proj.weight.device
        target.tap((NORMED,), self._take)

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the prompt is read when the target has read it."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        return self._draft(context, gamma, stop, []) if gamma else self._nothing

    def crop_to(self, length: int) -> None:
        for layer, rows in zip(self._cache.layers, self._rows, strict=True):
            layer.crop(rows - layer.get_seq_length())

    def take_seconds(self) -> float:
        return taken(self._marks)

    def require_cache(self) -> None:
        """Nothing to do: attention layers can always be rolled back."""

    def _take(self, start: int, states: torch.Tensor) -> None:
        """Take the states (n, H) of the tokens from ``start`` on, which the target has just read."""
        self._follow(0, start, states.to(self._device))
        if start == 0:
            for layer in range(len(self._rows)):
                end = self._context.length - 1 - layer
                if end > 0:
                    self._feed(layer, end, end)

    def _follow(self, layer: int, start: int, states: torch.Tensor) -> None:
        """Set the input of ``layer`` at the rows from ``start`` on to ``states``."""
        self._states[layer] = spliced(self._states[layer], self._rows[layer], states, start)

    def _feed(self, layer: int, end: int, committed: int) -> torch.Tensor:
        """Feed ``layer`` its rows up to ``end``; those up to ``committed`` stay. Returns its output at the last row."""
        start = self._rows[layer]
        out = self._pass(layer, self._states[layer][: end - start], start)
        if layer + 1 < len(self._rows):
            self._follow(layer + 1, start, out)
        self._states[layer], self._rows[layer] = self._states[layer][committed - start :], committed
        return out[-1:]

    def _pass(self, layer: int, states: torch.Tensor, row: int) -> torch.Tensor:
        """The output (n, H) of ``layer`` for ``states`` (n, H), whose first row is ``row``."""
        began = mark(self._context.device)
        first = row + 1 + layer
        ids = self._context.ids(first, first + len(states)).to(self._device)
        places = torch.arange(first, first + len(states), device=self._device)[None]
        out = self._model.forward_layer(layer, states[None], places, self._cache, input_ids=ids[None])[0]
        self._marks.append((began, mark(self._context.device)))
        return out

    def _forward(self, context: TokenBuffer, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        guess, rows, last = end - context.length, context.length - 1, len(self._rows) - 1
        if guess <= last:
            self._last = self._feed(guess, rows, max(0, rows - guess))
        else:
            self._last = self._pass(last, self._last, rows - 1 + guess - last)
        raw = mtp_logits(self._model, self._last[None])[0].float()
        raw = raw.to(context.device)
        return raw, self._sampler.process(raw, context, end)
