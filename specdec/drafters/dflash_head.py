"""The head of DFlash (Chen et al. 2602.06036): a few layers that guess a whole block of tokens in one pass.

Its settings are read in ``dflash_config.py``, which also names the published formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm, Qwen3RotaryEmbedding, rotate_half

from specdec.drafters.dflash_config import DFlashConfig
from specdec.forward.hf_cache import PreallocatedLayer

EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"


class DFlashHead(nn.Module):
    """The head. H: its width, which is that of the target. V: the target's vocabulary. D: the head's, often V."""

    d2t: torch.Tensor | None  # (D,): the id in the target's vocabulary minus the id in the head's; None where D is V

    def __init__(self, config: DFlashConfig, name: str = "a DFlash head", embeds: bool = False, outputs: bool = False):
        """``embeds`` and ``outputs`` say which of the embedding and the output matrix it has; else the target's."""
        super().__init__()
        self.config, self.name, layer = config, name, config.layer
        known = config.draft_vocabulary
        self.embed_tokens = nn.Embedding(layer.vocab_size, layer.hidden_size) if embeds else None
        self.lm_head = nn.Linear(layer.hidden_size, known or layer.vocab_size, bias=False) if outputs else None
        self.register_buffer("d2t", None if known is None else torch.zeros(known, dtype=torch.long))
        size, eps = layer.hidden_size, layer.rms_norm_eps
        self.fc = nn.Linear(len(config.layer_ids) * size, size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(size, eps)
        self.layers = nn.ModuleList(DFlashLayer(layer) for _ in config.sights)
        self.norm = Qwen3RMSNorm(size, eps)
        self.rotary = Qwen3RotaryEmbedding(layer)

    def new_caches(self) -> list[PreallocatedLayer]:
        """An empty cache for each layer."""
        return [PreallocatedLayer() for _ in self.layers]

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """Map joined hidden states of the target (n, states x H) to context (n, H).

        It computes in the number type of ``fc``, which must not be float16: sums over so many features overflow there.
        """
        return self.hidden_norm(self.fc(features.to(self.fc.weight.dtype))).to(self.norm.weight.dtype)

    def read(self, context: torch.Tensor, caches: Sequence[PreallocatedLayer]) -> None:
        """Add the keys and values of ``context`` (n, H) to the caches."""
        angles = self._angles(context, caches[0].get_seq_length(), len(context))
        for layer, cache in zip(self.layers, caches, strict=True):
            cast(DFlashLayer, layer).self_attn.write(context, angles, cache)

    def forward(self, block: torch.Tensor, context: torch.Tensor, caches: Sequence[PreallocatedLayer]) -> torch.Tensor:
        """Feed the rows of a block (b, H) after ``context`` (n, H), which is new. Returns normed states (b, H).

        The keys and values of both are in the caches then. Those of the block must be cropped before the next pass.
        """
        start, rows = caches[0].get_seq_length(), len(block)
        total = start + len(context) + rows
        angles = self._angles(block, start, total - start)
        seen = {sight: sight.of(rows, total, block.device) for sight in set(self.config.sights)}
        for layer, cache, sight in zip(self.layers, caches, self.config.sights, strict=True):
            block = layer(block, context, angles, cache, *seen[sight])
        return self.norm(block)

    def _angles(self, like: torch.Tensor, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the places from ``start`` on, (1, count, D) each."""
        return self.rotary(like[None], torch.arange(start, start + count, device=like.device)[None])


class DFlashLayer(nn.Module):
    """A layer of Qwen3 whose rows also see a context, which enters as keys and values only."""

    def __init__(self, layer: Qwen3Config):
        super().__init__()
        self.input_layernorm = Qwen3RMSNorm(layer.hidden_size, layer.rms_norm_eps)
        self.self_attn = DFlashAttention(layer)
        self.post_attention_layernorm = Qwen3RMSNorm(layer.hidden_size, layer.rms_norm_eps)
        self.mlp = Qwen3MLP(layer)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        cache: PreallocatedLayer,
        first: int,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        block = block + self.self_attn(self.input_layernorm(block), context, angles, cache, first, mask)
        return block + self.mlp(self.post_attention_layernorm(block))


class DFlashAttention(nn.Module):
    """Attention of the rows of a block over cached context, new context and the block."""

    def __init__(self, layer: Qwen3Config):
        super().__init__()
        self.size = layer.head_dim
        wide, bias = layer.hidden_size, layer.attention_bias
        self.q_proj = nn.Linear(wide, layer.num_attention_heads * self.size, bias=bias)
        self.k_proj = nn.Linear(wide, layer.num_key_value_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(wide, layer.num_key_value_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(layer.num_attention_heads * self.size, wide, bias=bias)
        self.q_norm = Qwen3RMSNorm(self.size, layer.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(self.size, layer.rms_norm_eps)

    def write(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], cache: PreallocatedLayer
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of ``x`` (n, H) to the cache. Returns all of it, (1, kv heads, places, D) each."""
        k = _turned(self.k_norm(self._by_head(self.k_proj(x))).transpose(1, 2), angles)
        return cache.update(k, self._by_head(self.v_proj(x)).transpose(1, 2))

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        cache: PreallocatedLayer,
        first: int,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        keys, values = self.write(torch.cat([context, block]), angles, cache)
        keys, values, rows = keys[:, :, first:], values[:, :, first:], len(block)
        cos, sin = angles
        q = self.q_norm(self._by_head(self.q_proj(block))).transpose(1, 2)
        q = _turned(q, (cos[:, -rows:], sin[:, -rows:]))
        attended = F.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, enable_gqa=q.shape[1] > keys.shape[1]
        )
        return self.o_proj(attended.transpose(1, 2).reshape(rows, -1))

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, len(x), -1, self.size)


def _turned(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """``x`` (1, heads, n, D) at its positions."""
    cos, sin = angles
    return x * cos[:, None] + rotate_half(x) * sin[:, None]
