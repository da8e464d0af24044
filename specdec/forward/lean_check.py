"""Whether a model's passes can use its lean forward (``lean``), and the reason where they cannot.

The model must be as transformers made it, because the lean forward would skip a patch, a hook, a packed weight or a
compiled part. Its logits are compared once with those of its own ``forward``. Before each call, what may have changed
is checked.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import nn
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from specdec.forward.accelerate_private import HOOK
from specdec.forward.hf_private import attention_of
from specdec.forward.lean import LeanModel
from specdec.forward.native.availability import why_torch
from specdec.forward.torch_private import (
    BUFFERS,
    CHILDREN,
    COMPILED,
    HOOKS,
    PARAMETERS,
    PRE_HOOKS,
    has_global_hook,
    identity_of,
    parameters_of,
)
from specdec.forward.weights import FAMILIES, NotLean

ROWS = (9, 1, 2, 6, 1)  # rows of each compared pass, in order
# The largest difference of logits that counts as agreement, as a share of their range. With 16-bit numbers, a pass over
# one row and a pass over several differ by more than that through rounding, so passes over the same rows are compared.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2**-5, torch.float16: 2**-8}
ROPE_TYPES = {"default", "linear", "llama3", "yarn"}  # other types change their angles with the length of a text
NOT_COMPARED = "Its logits hold NaN or infinity, so they cannot be compared."
PLAIN = {bool, int, float, str, tuple, type(None)}  # types of a module's settings, such as the epsilon of a norm

_FOLDERS = tuple(f"{Path(package.__file__).parent}{os.sep}" for package in (transformers, torch) if package.__file__)
_lock = threading.Lock()
_stacks: WeakKeyDictionary[PreTrainedModel, tuple[Any, LeanModel | str]] = WeakKeyDictionary()


def lean_model(model: PreTrainedModel) -> LeanModel | str:
    """The lean model of ``model``, or a sentence that says why its own ``forward`` runs instead.

    It is built and compared once. If the model's modules, their settings, its weights, buffers or config change, it
    is built again; the old weights stay in memory until then. What was found while logits held NaN is not kept.
    """
    with _lock:
        state = _state(model)
        if isinstance(state, str):
            _stacks.pop(model, None)
            return state
        known, found = _stacks.get(model, (None, ""))
        if known != state:
            found = _build(model)
            if found == NOT_COMPARED:
                _stacks.pop(model, None)
            else:
                _stacks[model] = _state(model), found  # after building, because that moves the weights
        return found


def undescribed(name: str, config: Any) -> str | None:
    """Why a model of class ``name`` with this config has no lean forward; None if nothing speaks against it."""
    if name not in FAMILIES:
        return f"{name} has no lean forward pass."
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in ROPE_TYPES:
        return f"Its rotary angles ({rope_type}) change with the length of a text."
    if getattr(config, "attention_chunk_size", None):
        return "Its config sets attention_chunk_size."
    if getattr(config, "sliding_window", None) and not FAMILIES[name].windows:
        return f"Its config sets a sliding window, which {name} does not have."
    return None


def _unsuitable(model: PreTrainedModel) -> str | None:
    """The reason against a lean forward that concerns the whole model. ``_state`` looks at its modules."""
    if reason := undescribed(type(model).__name__, model.config):
        return reason
    if (attention := attention_of(model)) != "sdpa":
        return f"Its attention is {attention}, not sdpa."
    if not _is_original(ALL_ATTENTION_FUNCTIONS["sdpa"]):
        return "The attention function sdpa is replaced."
    if has_global_hook():
        return "A global module hook is registered."
    if model.training:
        return "It is in training mode."
    return None


def _is_original(function: Any) -> bool:
    """Whether the code of ``function``, and of all that it wraps, lies in the files of transformers or torch.

    ``functools.wraps`` gives a patch the names of the wrapped function, its module's name too.
    """
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is None or not code.co_filename.startswith(_FOLDERS):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _state(model: PreTrainedModel) -> tuple[Any, ...] | str:
    """All that a lean model is built from, to notice changes; or why there can be none.

    These are the modules with their settings, the weights and buffers, and the configs. The version of a tensor counts
    its changes in place: a lean model sees them, but its logits were compared for other values.

    This runs before each call. So it walks once, without ``modules()`` and ``parameters()``, which take three times as
    long.
    """
    if reason := _unsuitable(model):
        return reason
    modules: list[nn.Module] = [model]
    seen, kinds = {id(model)}, {type(model)}
    configs = {id(model.config): model.config}
    tensors: list[torch.Tensor | None] = []
    settings: list[Any] = []
    for module in modules:  # the list grows in the loop
        known = vars(module)
        if known.get(COMPILED) is not None:
            return "It is compiled."
        if HOOK in known:
            return "It is spread over devices."
        if known[HOOKS] or known[PRE_HOOKS]:
            return "A module of it has a hook."
        if "forward" in known:
            return "The forward of one of its modules is replaced."
        if "parametrizations" in known[CHILDREN]:
            return f"A weight of a {type(module).__name__} is computed when it is read."
        tensors += [*known[PARAMETERS].values(), *known[BUFFERS].values()]
        settings += [value for value in known.values() if type(value) in PLAIN]
        if (config := known.get("config")) is not None:
            configs[id(config)] = config
        for child in known[CHILDREN].values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                kinds.add(type(child))
                modules.append(child)
    for kind in kinds:
        for name in ("forward", "__call__"):
            if not _is_original(getattr(kind, name)):
                return f"{kind.__name__}.{name} is not that of transformers or torch."
    places = [None if tensor is None else identity_of(tensor) for tensor in tensors]
    return (
        [(id(module), type(module)) for module in modules],
        places,
        settings,
        [str(vars(c)) for c in configs.values()],
        why_torch(model.dtype, model.device),  # native passes may be switched off and on
    )


def _build(model: PreTrainedModel) -> LeanModel | str:
    weights = list(model.parameters())
    if any(type(weight.data) is not torch.Tensor or not weight.is_floating_point() for weight in weights):
        return "Its weights are packed."
    if any(weight.is_inference() for weight in weights):
        return "Its weights were made in torch.inference_mode."
    if len({weight.device for weight in weights}) > 1:
        return "Its weights are on several devices."
    if model.device.type == "meta":
        return "Its weights are not loaded."
    if len({weight.dtype for weight in weights}) > 1 or model.dtype not in BOUNDS:
        kinds = sorted({str(weight.dtype).removeprefix("torch.") for weight in weights})
        return f"Its weights are {' and '.join(kinds)}; a lean forward pass takes one of float32, bfloat16 and float16."
    if _share_memory(model):
        return "Two of its parts share weights."
    try:
        with torch.inference_mode(False), torch.no_grad():  # the model's parameters become views of tensors made here
            lean = LeanModel(model)
        cached = [getattr(layer, "sliding_window", None) for layer in DynamicCache(config=model.config).layers]
        if any(window not in (None, layer.window) for window, layer in zip(cached, lean.layers, strict=False)):
            return "Its config sets windows that its layers do not have."
        worst = _largest_difference(model, lean)
        if not worst <= BOUNDS[model.dtype] and lean.why_torch is None:
            lean.use_torch("Its native passes would give other logits than transformers.")
            worst = _largest_difference(model, lean)
    except (NotLean, RuntimeError, AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        return f"Its lean forward pass could not be built ({str(error).splitlines()[0]})."
    if not math.isfinite(worst):
        return NOT_COMPARED
    if worst > BOUNDS[model.dtype]:
        return f"Its logits would differ from those of transformers by {worst:.0e} of their range."
    return lean


def _share_memory(model: PreTrainedModel) -> bool:
    """Whether two weights share memory, except for one matrix at both ends.

    A lean model joins matrices in new memory. A weight that is joined at two places would be copied there, and only one
    copy would see its changes.
    """
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    tied = ends[1].weight is ends[0].weight
    modules = model.named_modules(remove_duplicate=False)
    weights = [w for _, m in modules if not (tied and m is ends[1]) for w in parameters_of(m).values() if w is not None]
    places = sorted((weight.data_ptr(), weight.data_ptr() + weight.nbytes) for weight in weights)
    return any(end > start for (_, end), (start, _) in pairwise(places))


@torch.inference_mode()
def _largest_difference(model: PreTrainedModel, lean: LeanModel) -> float:
    """The largest difference between the logits of ``lean`` and of ``forward``, as a share of their range."""
    cache, buffer, differences = DynamicCache(config=model.config), lean.new_buffer(), []
    for start, fed in compared_passes(lean, ROWS):
        positions = torch.arange(start, start + len(fed), device=fed.device)[None]
        own = model(input_ids=fed[None], position_ids=positions, past_key_values=cache, use_cache=True).logits[0]
        differences.append(share_apart(lean.forward(fed, buffer, start, None), own))
    return float(torch.stack(differences).max())


def compared_passes(lean: LeanModel, rows: Sequence[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """The passes of a comparison: for each the number of tokens before it, and its random ids.

    ``rows`` says how many ids each pass has. The passes end where the model's positions end.
    """
    total = sum(rows) if lean.positions is None else min(sum(rows), len(lean.positions))
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(len(lean.embedding), (total,), generator=rng).to(lean.embedding.device)
    start = 0
    for fed in ids.tensor_split(list(accumulate(rows))):
        if len(fed):
            yield start, fed
        start += len(fed)


def share_apart(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """The largest difference of two sets of logits, as a share of the range of ``theirs``, ()."""
    theirs = theirs.float()
    return (ours.float() - theirs).abs().max() / (theirs.max() - theirs.min())
