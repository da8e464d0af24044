"""A model's pass without what transformers does around the layers at every call.

``forward`` looks its defaults up in the config, builds a mask fit for any kind of attention, computes the rotary angles
anew and wraps what comes out twice. Of the pass of a small draft, made gamma times a round, that is a quarter. Here the
model's own modules run one after another, and the logits are those of ``forward`` to the last bit.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.cache import RoomyLayer

# Embedding, layers, norm and head with nothing between them, and angles that no length changes.
STACKS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
FIXED_ROPE = ("default", "linear", "llama3", "yarn")
ROOM = 256  # positions whose angles are computed ahead


def is_bare(model: PreTrainedModel, cache: DynamicCache) -> bool:
    """Whether ``BareModel`` knows this model; not where it is compiled, or where somebody has hung
    something on its ``forward``, as accelerate does with a model that is spread over devices."""
    return (
        type(model).__name__ in STACKS
        and model.config._attn_implementation == "sdpa"
        and model.model.rotary_emb.rope_type in FIXED_ROPE
        and model._compiled_call_impl is None
        and all(type(layer) is RoomyLayer for layer in cache.layers)
        and not any(
            "forward" in vars(module) or module._forward_hooks or module._forward_pre_hooks
            for module in (model, model.model)
        )
    )


class BareModel:
    """The passes of one call behind its prefill."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache):
        self._stack, self._head, self._cache = model.model, model.lm_head, cache
        self._room = 0

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        """Feed ``ids`` (n,) behind the ``start`` cached tokens, one or more; the last ``keep`` or n rows, (rows, V)."""
        count, end = len(ids), start + len(ids)
        hidden = self._stack.embed_tokens(ids[None])
        if end > self._room:
            self._room = end + ROOM
            positions = torch.arange(self._room, device=ids.device)
            self._cos, self._sin = self._stack.rotary_emb(hidden, position_ids=positions[None])
        angles = self._cos.narrow(1, start, count), self._sin.narrow(1, start, count)
        # A lone token sees all that is cached; of several, each sees what stands before it.
        mask = None
        if count > 1:
            mask = torch.ones(1, 1, count, end, dtype=torch.bool, device=ids.device).tril(start)
        for layer in self._stack.layers:
            hidden = layer(
                hidden,
                attention_mask=mask,
                position_embeddings=angles,
                past_key_values=self._cache,
                use_cache=True,
            )
        return self._head(self._stack.norm(hidden)[0, -(keep or 0) :])
