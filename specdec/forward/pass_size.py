"""How many bytes of weights a pass of a loaded model reads, by the sizes of its weights. Nothing is measured.

Keys and values are left out, as are norms outside of the layers. So are tables of which a pass reads a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec.forward.hf import decoder_layers

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")  # the names under which configs count experts
CHOSEN = ("num_experts_per_tok", "moe_topk", "top_k_experts", "moe_k")  # the names under which configs say how many


@dataclass(frozen=True, slots=True)
class PassSize:
    """What a pass reads.

    config      of a whole model; None for a head
    head        the settings of a drafting head; None for a whole model
    parameters  numbers that a pass over one row reads
    bytes       their bytes
    experts     bytes of all experts, of which a pass reads those that its rows choose
    """

    config: Any
    head: Any
    parameters: int
    bytes: float
    experts: float = 0.0

    def bytes_of(self, rows: int) -> float:
        """Bytes that a pass over ``rows`` reads: with more rows, more of the experts."""
        if not self.experts or (found := experts_of(self.config)) is None:
            return self.bytes
        count, chosen = found
        return self.bytes + self.experts * (touched(count, chosen, rows) - chosen) / count


def model_size(model: PreTrainedModel) -> PassSize:
    """The size of a pass of ``model`` over one row: its layers and its output matrix."""
    layers = decoder_layers(model)
    if layers is None:  # all of it but the embedding
        table = model.get_input_embeddings().weight
        named = [(name, weight) for name, weight in model.named_parameters() if weight is not table]
    else:
        named = list(layers.named_parameters())
    if layers is not None or model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        named.append(("output", model.get_output_embeddings().weight))
    found = experts_of(model.config)
    inside = [weight for name, weight in named if found and "experts." in name and "shared" not in name]
    whole, experts = _bytes(weight for _, weight in named), _bytes(inside)
    unread = 1 - found[1] / found[0] if found else 0.0
    count = sum(weight.numel() for _, weight in named) - unread * sum(weight.numel() for weight in inside)
    return PassSize(model.config, None, round(count), whole - unread * experts, experts)


def head_size(head: nn.Module) -> PassSize:
    """The size of a pass of a drafting head, which reads all of its weights."""
    weights = list(head.parameters())
    return PassSize(None, getattr(head, "config", head), sum(weight.numel() for weight in weights), _bytes(weights))


def experts_of(config: Any) -> tuple[int, int] | None:
    """How many experts each layer of a model has and how many of them a token reads; None without experts."""
    text = config.get_text_config(decoder=True)
    count, chosen = (
        next((found for name in names if isinstance(found := getattr(text, name, None), int)), 0)
        for names in (EXPERTS, CHOSEN)
    )
    return (count, chosen) if 0 < chosen < count else None


def touched(count: int, chosen: int, tokens: int) -> float:
    """How many of ``count`` experts ``tokens`` read if each chooses ``chosen`` of them independently of the others."""
    return count * (1 - (1 - chosen / count) ** tokens)


def _bytes(weights: Iterable[torch.Tensor]) -> float:
    return float(sum(weight.nbytes for weight in weights))
