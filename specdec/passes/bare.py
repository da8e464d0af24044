"""A model's pass without what transformers does around the layers at every call.

``forward`` looks its defaults up in the config, builds a mask fit for any kind of attention and wraps what comes out
twice: on a CPU a fifth of the pass of the embedded pair's draft, and a draft makes gamma passes a round. Here the
model's own modules are called one after another with the values that ``forward`` would give them, so that the logits
are the same to the last bit.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.passes.cache import RoomyLayer

STACKS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")  # embedding, layers, norm, head: nothing between


def is_bare(model: PreTrainedModel, cache: DynamicCache) -> bool:
    """Whether ``bare_logits`` knows this model: one of ``STACKS`` with full attention throughout, as it came.

    Not where it is compiled, or where something hangs on its ``forward``: a hook, a patch, or what accelerate does to a
    model that is spread over devices.
    """
    return (
        type(model).__name__ in STACKS
        and model.config._attn_implementation == "sdpa"
        and all(type(layer) is RoomyLayer for layer in cache.layers)
        and all(_as_it_came(module) for module in (model, model.model))
    )


def _as_it_came(module: PreTrainedModel) -> bool:
    touched = "forward" in vars(module) or hasattr(module, "_hf_hook") or module._compiled_call_impl is not None
    heard = module._forward_hooks or module._forward_pre_hooks
    return type(module).forward.__module__.startswith("transformers.models.") and not touched and not heard


def bare_logits(
    model: PreTrainedModel, ids: torch.Tensor, cache: DynamicCache, cached: int, keep: int | None
) -> torch.Tensor:
    """Feed ``ids`` (n,) behind ``cached`` tokens, of which there must be some; logits of the last ``keep`` or n rows.

    Behind an empty cache ``forward`` leaves the mask to the attention kernel, whose last bits may differ.
    """
    stack, count, end = model.model, len(ids), cached + len(ids)
    hidden = stack.embed_tokens(ids[None])
    positions = torch.arange(cached, end, device=hidden.device)[None]
    angles = stack.rotary_emb(hidden, position_ids=positions)
    mask = None  # a lone token sees all there is; of several, each sees itself and what stands before it
    if count > 1:
        mask = torch.ones(1, 1, count, end, dtype=torch.bool, device=hidden.device).tril(cached)
    for layer, _ in zip(stack.layers, cache.layers, strict=False):  # a config may ask for fewer layers than there are
        hidden = layer(
            hidden,
            attention_mask=mask,
            position_ids=positions,
            position_embeddings=angles,
            past_key_values=cache,
            use_cache=True,
        )
    return model.lm_head(stack.norm(hidden)[:, -(keep or 0) :])[0]
