"""A model's pass without what transformers does around the layers at every call.

``forward`` looks its defaults up in the config, builds a mask fit for any kind of attention and wraps what comes out
twice: on a CPU a fifth of the pass of the embedded pair's draft, and a draft makes gamma passes a round. Here the
model's own modules are called one after another with the values that ``forward`` would give them, so that the logits
are the same to the last bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from transformers import DynamicCache, PreTrainedModel

from specdec.passes.cache import RoomyLayer

_TRANSFORMERS = str(Path(transformers.__file__).parent)
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
        and not _has_any_global_hook()  # it would hear the layers and not the model around them
        and _unpatched((model, model.model, *model.model.layers))
    )


def _unpatched(modules: tuple[nn.Module, ...]) -> bool:
    def touched(module: nn.Module) -> bool:
        heard = module._forward_hooks or module._forward_pre_hooks or hasattr(module, "_hf_hook")
        return bool(heard) or "forward" in vars(module) or module._compiled_call_impl is not None

    forwards = {type(module).forward for module in modules}
    return not any(map(touched, modules)) and all(map(_is_of_transformers, forwards))


def _is_of_transformers(function: Any) -> bool:
    """Whether the code of ``function``, and of all that it wraps, lies in transformers' own files.

    ``functools.wraps`` makes a patch look like what it wraps, the module's name included.
    """
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_TRANSFORMERS):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


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
