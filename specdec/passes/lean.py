"""Whether a model's passes can go over its ``Stack``, and the reason where they cannot.

A model must be as transformers made it: whoever patches, hooks, packs or compiles a part expects that part to run. It
is then held against its own ``forward`` once, and is looked at again before each call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from transformers import DynamicCache, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from specdec.passes.stacks import FAMILIES, Stack

ROWS = (9, 1, 2, 6, 1)  # of the passes that are compared, one behind the other
# By how much logits may differ, as a share of their range. The half types round by more than that between a pass over
# one row and a pass over several.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2**-5, torch.float16: 2**-8}
ROPE_TYPES = {"default", "linear", "llama3", "yarn"}  # the others change their angles with the length of a text

_FOLDERS = tuple(str(Path(package.__file__).parent) for package in (transformers, torch) if package.__file__)
_found: WeakKeyDictionary[PreTrainedModel, Stack | str] = WeakKeyDictionary()


def stack_of(model: PreTrainedModel) -> Stack | str:
    """The stack of ``model``, or a sentence that says why its own ``forward`` runs instead."""
    if reason := _touched(model):
        return reason
    found = _found.get(model)
    if found is None or (isinstance(found, Stack) and not found.is_of(model)):
        found = _found[model] = _described(model)
    return found


def undescribed(name: str, config: Any) -> str | None:
    """Why models of the class ``name`` with this config have no stack, by these alone; None where they have."""
    if name not in FAMILIES:
        return f"{name} is not one of the described stacks."
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in ROPE_TYPES:
        return f"Its rotary angles ({rope_type}) change with the length of a text."
    return None


def _touched(model: PreTrainedModel) -> str | None:
    """What may change between two calls: cheap, as it is looked at before each of them."""
    if reason := undescribed(type(model).__name__, model.config):
        return reason
    if model.config._attn_implementation != "sdpa":
        return f"Its attention is {model.config._attn_implementation}, not sdpa."
    if _has_any_global_hook():
        return "A hook on all modules expects to see each of them."
    modules = list(model.modules())
    if any(module._compiled_call_impl is not None for module in modules):
        return "It is compiled."
    if any(hasattr(module, "_hf_hook") for module in modules):
        return "It is spread over devices."
    if any(module._forward_hooks or module._forward_pre_hooks for module in modules):
        return "A module of it has a hook."
    patched = any("forward" in vars(module) for module in modules)
    if patched or not all(_is_original(forward) for forward in {type(module).forward for module in modules}):
        return "A part of it is patched."
    return None


def _is_original(function: Any) -> bool:
    """Whether the code of ``function``, and of all that it wraps, lies in the files of transformers or torch.

    ``functools.wraps`` makes a patch look like what it wraps, the module's name included.
    """
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_FOLDERS):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _described(model: PreTrainedModel) -> Stack | str:
    weights = list(model.parameters())
    if model.dtype not in BOUNDS or len({(weight.dtype, weight.device) for weight in weights}) > 1:
        return "Its weights are of several number types, packed, or on several devices."
    if any(not isinstance(module, nn.Linear | Conv1D) for module in _matrices(model)):
        return "Its matrices are not plain ones."
    if model.device.type == "meta":
        return "Its weights are not loaded."
    with torch.inference_mode(False), torch.no_grad():  # its parameters become views of what is made here
        stack = Stack(model)
    if (worst := _worst(model, stack)) > BOUNDS[model.dtype]:
        return f"Its logits would differ from those of its own forward by {worst:.0e} of their range."
    return stack


def _matrices(model: PreTrainedModel) -> list[nn.Module]:
    """All modules with a weight of two dimensions but the embeddings."""
    return [
        module
        for module in model.modules()
        if getattr(getattr(module, "weight", None), "ndim", 0) == 2 and not isinstance(module, nn.Embedding)
    ]


@torch.inference_mode()
def _worst(model: PreTrainedModel, stack: Stack) -> float:
    """The largest difference between the logits of ``stack`` and of ``forward``, as a share of their range."""
    total = sum(ROWS) if stack.positions is None else min(sum(ROWS), len(stack.positions))
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(len(stack.embedding), (total,), generator=rng).to(model.device)
    cache, slots = DynamicCache(config=model.config), stack.new_slots()
    start, worst = 0, 0.0
    for count in ROWS:
        fed = ids[start : start + count]
        if not len(fed):
            break
        positions = torch.arange(start, start + len(fed), device=ids.device)[None]
        own = (
            model(input_ids=fed[None], position_ids=positions, past_key_values=cache, use_cache=True).logits[0].float()
        )
        ours = stack.forward(fed, slots, start, None).float()
        difference = float((own - ours).abs().max() / (own.max() - own.min()))
        worst = max(worst, difference) if difference == difference else float("inf")  # NaN is no agreement
        start += len(fed)
    return worst
