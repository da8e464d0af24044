"""Estimates the memory that a call needs besides the weights."""

from __future__ import annotations

from typing import Any

import torch

from specdec.events import MAX_GAMMA
from specdec.forward.model_info import context_length

# The plan of a call. These are assumptions, not measurements.
PLANNED_TOKENS = 4096  # prompt and new tokens of a call; twice the most new tokens that the page takes
WORKSPACE = 512 * 2**20  # bytes on a GPU for the libraries' scratch memory, their kernels and a pass's own values


def cache_bytes(config: Any, dtype: torch.dtype, tokens: int = PLANNED_TOKENS) -> int:
    """Bytes of keys and values of one call of ``tokens``, or of the model's context if that is shorter.

    It assumes that every layer keeps all tokens, but for those that read the keys and values of another layer. A model
    with windows or convolutions needs less.
    """
    text = config.get_text_config(decoder=True)
    tokens = min(context_length(config) or tokens, tokens)
    sharing = getattr(text, "kv_sharing_modes", None) or [None] * text.num_hidden_layers
    own = [layer for layer, mode in zip(text.per_layer_config, sharing, strict=True) if mode != "reuse"]
    return 2 * sum(map(_key_size, own)) * tokens * dtype.itemsize


def _key_size(layer: Any) -> int:
    """How many numbers the keys of one token have in a layer with this config."""
    heads = getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads
    size: int = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
    return heads * size


def row_bytes(config: Any) -> int:
    """Bytes of the float32 logits and probabilities of a round with the longest draft."""
    return 2 * (MAX_GAMMA + 1) * config.get_text_config(decoder=True).vocab_size * torch.float32.itemsize


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
