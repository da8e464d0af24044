"""Refuses checkpoints with weights that would not be read, or not as the numbers that they stand for.

transformers reads what it finds a place for, and leaves out the rest without an error. A packed weight without the
method that unpacks it is then taken for the weight itself, and the model writes nonsense.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING, AutoHfQuantizer

from specdec.errors import LoadFailed, SpecdecError

MODELOPT = "hf_quant_config.json"  # where NVIDIA's ModelOpt names its method, beside the config or in place of it
_PACKED = ("I8", "U8", "F8", "F6", "F4")  # how safetensors names numbers of 8 bits and fewer begin
_MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")

# What a language model does not need: further prediction layers, which ``Mtp`` reads by itself; the towers for images
# and sound of a model that also reads text; buffers that are computed, not learned; what was trained beside it.
_NOT_NEEDED = re.compile(
    r"(^|\.)mtp[^.]*\."
    r"|(^|\.)(visual|vision|audio|image|speech|multi_modal_projector|mm_projector|embed_vision|embed_audio)[^.]*\."
    r"|(^|\.)rotary[^.]*\.|(^|\.)(original_)?inv_freq$|(^|\.)position_ids$"
    r"|(^|\.)(attn|attention)\.bias$|(^|\.)(masked_bias|causal_mask|version)$"
    r"|(^|\.)(pooler|seq_relationship|v_head)\."
)
_SCALES = re.compile(
    r"[^.]_scales?|scales$|qweight|zero|g_idx|max$|quant|packed|SCB|bitsandbytes|weight_(shape|format)$"
)

Headers = Mapping[str, tuple[str, tuple[int, ...]]]
"""The number type, as safetensors names it, and the shape of each weight."""


def mtp_layers(config: Any) -> int:
    """How many layers for multi-token prediction a text config names, whether transformers loads them or not."""
    found = (getattr(config, name, None) for name in _MTP_COUNTS)
    return next((count for count in found if isinstance(count, int) and count), 0)


def numbers_in(headers: Headers) -> int:
    """How many numbers the weights have."""
    return sum(math.prod(shape) for _, shape in headers.values())


def quantization(config: Any) -> Any:
    """What a model's config says about its quantization, where transformers looks for it; None if it says nothing."""
    text = config.get_text_config(decoder=True)
    return getattr(config, "quantization_config", None) or getattr(text, "quantization_config", None)


def refuse_packed(name: str, folder: Path, declared: Any, headers: Headers, ours: bool = False) -> None:
    """Refuse packed weights that nothing here unpacks, before any weight is read. Raises ``LoadFailed``.

    ``declared`` is the ``quantization_config`` of the checkpoint in ``folder``, or None. ``ours`` says that this
    package reads the weights itself, and so by no method.
    """
    method = _method_of(declared) if declared is not None else _modelopt(folder)
    if method is None or not any("scale" in key or _SCALES.search(key) for key in headers):
        _refuse_eight_bits(name, headers)
    if method is None:
        return
    if ours:
        raise LoadFailed(
            f"{name!r} is quantized by {method}, and heads are read without quantization only. Choose the head in 16 "
            "or 32 bits."
        )
    if declared is None or method not in AUTO_QUANTIZER_MAPPING.keys() & AUTO_QUANTIZATION_CONFIG_MAPPING.keys():
        raise LoadFailed(
            f"{name!r} is quantized by {method}, which transformers does not read; its weights would be taken for "
            "plain ones. Choose the checkpoint without quantization, or one of another method (compressed-tensors, "
            "gptq, awq, fp8, bitsandbytes)."
        )
    with as_quantized(name, declared):
        quantizer = AutoHfQuantizer.from_config(copy.deepcopy(declared), pre_quantized=True)
        quantizer.validate_environment(device_map=None, weights_only=True)


def refuse_unread(name: str, missing: Iterable[str], unread: Iterable[str], config: Any = None) -> None:
    """Refuse a model that lacks weights, or whose checkpoint holds others than it has read. Raises ``LoadFailed``.

    ``missing`` and ``unread`` are names of weights. ``config`` is that of a whole model, which may leave out what a
    language model does not need; None for parts of one, of which every weight counts.
    """
    lacks, holds = sorted(missing), [key for key in sorted(unread) if not _needless(key, config)]
    scales = [key for key in holds if _SCALES.search(key.rpartition(".")[2])]
    if scales:
        raise LoadFailed(
            f"{name!r} holds {_counted(scales, 'scale or packed weight')} that nothing here reads, so its quantized "
            "weights would be taken for plain ones. Choose the checkpoint without quantization, or one whose "
            "configuration names the method that they belong to."
        )
    if lacks:
        more = f" It holds {_counted(holds, 'weight')} under other names." if holds else ""
        raise LoadFailed(
            f"{name!r} lacks {len(lacks)} of the weights that its configuration asks for; the first is {lacks[0]}."
            f"{more} Fetch the checkpoint again, or choose another."
        )
    if holds:
        raise LoadFailed(
            f"{name!r} holds {_counted(holds, 'weight')} that nothing here reads, so it would not be what was trained. "
            "Choose another checkpoint."
        )


def _needless(key: str, config: Any) -> bool:
    """Whether a weight is unread for a good reason."""
    if config is None:
        return False
    if _NOT_NEEDED.search(key):
        return True
    text = config.get_text_config(decoder=True)
    if getattr(config, "tie_word_embeddings", False) and re.search(r"(^|\.)lm_head\.weight$", key):
        return True  # the embedding is read in its place
    layer, depth = re.search(r"(?:^|\.)layers\.(\d+)\.", key), getattr(text, "num_hidden_layers", 0)
    return layer is not None and depth <= int(layer[1]) < depth + mtp_layers(text)


def _refuse_eight_bits(name: str, headers: Headers) -> None:
    packed = {
        key: kind for key, (kind, _) in headers.items() if kind.startswith(_PACKED) and not _NOT_NEEDED.search(key)
    }
    if packed:
        kinds = " and ".join(sorted(set(packed.values())))
        raise LoadFailed(
            f"{name!r} holds {_counted(sorted(packed), 'weight')} in 8 bits or fewer ({kinds}), and nothing that says "
            "how they are unpacked. Choose the checkpoint without quantization, or one whose configuration names a "
            "method that transformers reads."
        )


def _method_of(declared: Any) -> str:
    """The name of the method, as transformers' tables have it, or a description of what stands in its place."""
    known = declared if isinstance(declared, Mapping) else getattr(declared, "to_dict", dict)()
    for bits in (4, 8):
        if known.get(f"load_in_{bits}bit"):
            return f"bitsandbytes_{bits}bit"
    method = known.get("quant_method")
    if method is None:
        return "a method that it does not name"
    if method == "bitsandbytes":
        return "bitsandbytes with neither load_in_8bit nor load_in_4bit"
    return str(getattr(method, "value", method))[:80]


def _modelopt(folder: Path) -> str | None:
    """The method that ModelOpt's own file names; None without one."""
    try:
        found = json.loads((folder / MODELOPT).read_text(encoding="utf-8"))["quantization"]["quant_algo"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return f"modelopt ({found} in {MODELOPT})" if isinstance(found, str) and found.lower() != "none" else None


@contextmanager
def as_quantized(name: str, declared: Any) -> Iterator[None]:
    """Name the method of quantization, and what it needs, in the error of a method that cannot read its weights here.

    ``declared`` is the checkpoint's ``quantization_config``; without one, errors pass as they are.
    """
    try:
        yield
    except (SpecdecError, OSError, SafetensorError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # each method has its own requirements, and packages that it imports
        if declared is None:
            raise
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)[:400].rstrip(". !")
        if isinstance(error, ModuleNotFoundError) and error.name:
            said = f"it needs the package {error.name}, which is not installed"
        provide = "Provide what it needs, or choose" if isinstance(error, ImportError) else "Choose"
        raise LoadFailed(
            f"{name!r} is quantized by {_method_of(declared)}, which cannot be read here: {said}. {provide} the "
            "checkpoint without quantization."
        ) from error


def _counted(keys: Sequence[str], what: str) -> str:
    """How many weights these are, with the names of two."""
    names = " and ".join(key[:120] for key in keys[:2])
    return f"{len(keys):,} {what}{'s' * (len(keys) != 1)} ({names}{', ...' if len(keys) > 2 else ''})"
