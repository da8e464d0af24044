"""Reads models from GGUF files through transformers, and refuses what transformers would read wrongly or not at all.

transformers fills in what it does not read from a file with the defaults of a config's class, and leaves out tensors
that it does not know. Both would change the model's text unnoticed, so both are looked for here.
"""

from __future__ import annotations

import importlib.util
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.integrations.gguf import GGUF_CONFIG_ARCHS
from transformers.integrations.gguf.dequant import GGML_BLOCK, GGML_NAME
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.modeling_gguf_pytorch_utils import (
    GGUF_SUPPORTED_ARCHITECTURES,
    GGUF_TO_TRANSFORMERS_MAPPING,
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

from specdec.errors import LoadFailed
from specdec.models.bounds import require_sane
from specdec.models.gguf_private import guarded, metadata_in, plain_dtypes, tensors_in

HEADER = 2**25  # bytes at the beginning of a file that may hold its metadata and the list of its tensors
_LONGEST_TOKEN = 1_000  # characters; the time to find merges grows with its square
_TOKENS = "tokenizer.ggml.tokens"
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")

# Ways to split text for which transformers' default, that of GPT-2, is right or was never anything else.
_SPLIT_AS_GPT2 = {None, "default", "gpt-2", "gpt2", "phi-2", "olmo", "mpt"}

# Keys, after the architecture, that tensors show too (by their names or shapes), or that change no text.
_SHOWN_BY_TENSORS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "expert_count",
    "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_shared_count", "tensor_data_layout",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "use_parallel_residual",
}  # fmt: skip
# Keys that the config of transformers must repeat, with the fields that may do so; "_" begins those of ``_facts``.
_REPEATED: dict[str, tuple[str, ...]] = {
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim", "global_head_dim", "_head_dim"),
    "attention.value_length": ("head_dim", "global_head_dim", "_head_dim"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "attention.sliding_window": ("sliding_window",),
    "attention.sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern"),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "rope.dimension_count": ("_rotary_dim",),
    "rope.freq_base": ("_rope_theta",),
    "rope.scaling.type": ("_rope_type",),
    "rope.scaling.factor": ("_rope_factor",),
    "rope.scaling.attn_factor": ("_rope_factor",),
    "attention.causal": ("_causal",),
}  # fmt: skip
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file. ``path`` may be a copy of its beginning, as long as the file; the rest of it is zeros."""

    name: str
    path: Path
    architecture: str
    metadata: Mapping[str, Any] = field(repr=False)  # lists of texts by their length
    tensors: tuple[tuple[str, tuple[int, ...], int], ...] = field(repr=False)  # names, shapes and types
    copy: TemporaryDirectory[str] | None = field(default=None, repr=False)  # removed with this object

    @property
    def headers(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The type and the shape of each tensor by its name."""
        return {name: (_type_name(kind), shape) for name, shape, kind in self.tensors}

    @property
    def packed(self) -> tuple[str, ...]:
        """The names of the quantised types of its tensors, the most frequent first."""
        found = Counter(kind for _, _, kind in self.tensors if _is_packed(kind))
        return tuple(_type_name(kind) for kind, _ in found.most_common())

    @property
    def _file(self) -> str:
        return str(self.path.absolute())  # a relative path would be looked for in the working directory first

    def config(self) -> Any:
        """The config that transformers makes of the metadata. Raises ``LoadFailed`` where the two differ."""
        given = AutoConfig.from_pretrained(self.path.parent, gguf_file=self._file, local_files_only=True)
        ends = [given.eos_token_id] if isinstance(given.eos_token_id, int) else list(given.eos_token_id or [])
        ends += [self.metadata[key] for key in _ENDS if key in self.metadata]
        given.eos_token_id = list(dict.fromkeys(ends)) or None
        if self.architecture not in GGUF_CONFIG_ARCHS:
            self._require_repeated(given)
            self._require_known_tensors(given)
        return given

    def tokenizer(self) -> Any:
        """The tokenizer that transformers makes of the metadata."""
        split = self.metadata.get("tokenizer.ggml.pre")
        if (
            self.metadata.get("tokenizer.ggml.model") == "gpt2"
            and split not in _SPLIT_AS_GPT2
            and split not in GGUF_PRE_TOKENIZER_SPLITS
        ):
            raise self._unread(f"splits text in the way {split!r}, which transformers does not know")
        return AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self._file, local_files_only=True)

    def _require_repeated(self, config: Any) -> None:
        """Refuse metadata that the config does not repeat and that would change the text."""
        read = GGUF_TO_TRANSFORMERS_MAPPING["config"].get(config.model_type, {})
        ours = _facts(config)
        for key, value in self.metadata.items():
            architecture, _, rest = key.partition(".")
            if architecture != self.architecture or rest in _SHOWN_BY_TENSORS or not value:
                continue
            if rest in _REPEATED:
                found = [ours[name] for name in _REPEATED[rest] if ours.get(name) is not None]
                if isinstance(value, list) or any(_equal(value, theirs) for theirs in found):
                    continue
                instead = f"{found[0]}" if found else "nothing"
                raise self._unread(f"sets {key} to {value}, and transformers takes {instead} there")
            if read.get(rest) is None:
                raise self._unread(f"sets {key} to {str(value)[:40]}, which transformers does not read")
        if self.metadata.get(f"{self.architecture}.block_count") == _LAYERS_OF_27B.get(self.architecture):
            raise self._unread("is a Gemma of 27B, whose attention scale is not written in the file")

    def _require_known_tensors(self, config: Any) -> None:
        """Refuse tensors that transformers would leave out."""
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        processor = TENSOR_PROCESSORS.get(self.architecture, TensorProcessor)(config=config.to_dict())
        with guarded():
            known = get_gguf_hf_weights_map(model, processor)
        names = {*known, *(f"{name}.weight" for name in known), "output.weight"}
        if left := [name for name, _, _ in self.tensors if name not in names]:
            more = f" and {len(left) - 1} others" if len(left) > 1 else ""
            raise self._unread(f"holds the tensor {left[0]}{more}, which transformers leaves out")
        wanted = model.state_dict()
        for name, shape, _ in self.tensors:
            asked = wanted.get(known.get(name, ""))
            if asked is not None and asked.numel() != math.prod(shape):
                raise LoadFailed(
                    f"{self.name!r} holds {name} with the shape {shape}, and its metadata ask for "
                    f"{tuple(asked.shape)}. Fetch the file again, or choose another."
                )

    def _unread(self, what: str) -> LoadFailed:
        return LoadFailed(f"{self.name!r} {what}. Choose the model with safetensors weights.")


def read_gguf(name: str, path: Path, copy: TemporaryDirectory[str] | None = None) -> GgufFile:
    """Read the beginning of a GGUF file. Raises ``LoadFailed`` for one that transformers cannot read."""
    size = path.stat().st_size
    try:
        data = np.memmap(path, mode="r", dtype=np.uint8, shape=(min(size, HEADER),))
        metadata, count, position = metadata_in(data, name, (_TOKENS,))
        tensors, position = tensors_in(data, count, position)
        tokens = metadata.get(_TOKENS)
        if isinstance(tokens, list):
            longest = max(map(len, tokens), default=0)
            metadata[_TOKENS] = len(tokens)
    except (struct.error, UnicodeDecodeError, IndexError, MemoryError, OverflowError) as error:
        raise LoadFailed(
            f"The beginning of {name!r} is damaged, or longer than {HEADER // 2**20} MiB. Fetch the file again."
        ) from error
    architecture = metadata["general.architecture"]
    _require_one_file(name, metadata)
    _require_architecture(name, architecture)
    require_sane(name, {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()})
    if isinstance(tokens, list) and longest > _LONGEST_TOKEN:
        raise LoadFailed(f"{name!r} holds a token of {longest:,} characters. Choose another file.")
    start = position + -position % max(1, metadata.get("general.alignment", 32))
    for tensor, shape, kind, offset in tensors:
        _require_type(name, tensor, kind)
        if start + offset + _bytes_of(shape, kind) > size:
            raise LoadFailed(f"{name!r} ends within its tensor {tensor}. Fetch the file again.")
    found = tuple((tensor, shape, kind) for tensor, shape, kind, _ in tensors)
    return GgufFile(name, path, architecture, metadata, found, copy)


def copied_beginning(file: str, beginning: bytes, size: int) -> tuple[Path, TemporaryDirectory[str]]:
    """A file of ``size`` bytes that begins with ``beginning``; the rest takes no room on the disk."""
    folder = TemporaryDirectory(prefix="specdec-")
    path = Path(folder.name) / Path(file).name
    with path.open("wb") as copy:
        copy.write(beginning)
        copy.truncate(size)
    return path, folder


def only_gguf(name: str, files: Mapping[str, Any], spelling: str) -> str | None:
    """The one GGUF file among ``files``, or None. Raises ``LoadFailed`` if there are several.

    ``spelling``: how one of them is named, with FILE in its place.
    """
    found = sorted(file for file in files if file.lower().endswith(".gguf") and not file.lower().startswith("mmproj"))
    if len(found) > 1:
        raise LoadFailed(
            f"{name!r} holds {len(found)} GGUF files ({', '.join(found[:3])}{', ...' * (len(found) > 3)}). Name one of "
            f"them: {spelling.replace('FILE', found[0])}"
        )
    return found[0] if found else None


def options(path: Path, config: Any) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that read the weights at ``path``, unpacked, into a model of ``config``."""
    return {"gguf_file": str(path.absolute()), "config": config, "quantization_config": GgufConfig(dequantize=True)}


def _require_one_file(name: str, metadata: Mapping[str, Any]) -> None:
    if metadata.get("split.count", 1) > 1:
        raise LoadFailed(
            f"{name!r} is one of {metadata['split.count']} parts, and transformers reads single files. Join the parts "
            "with 'llama-gguf-split --merge'."
        )


def _require_architecture(name: str, architecture: str) -> None:
    def plain(text: str) -> str:  # transformers spells some of them in another way
        return re.sub("[-_]", "", text)

    if architecture in GGUF_CONFIG_ARCHS:
        return
    if plain(architecture) not in map(plain, GGUF_SUPPORTED_ARCHITECTURES):
        raise LoadFailed(
            f"{name!r} is a GGUF file of the architecture {architecture[:40]!r}, which transformers does not read. "
            "Choose the model with safetensors weights."
        )
    if importlib.util.find_spec("gguf") is None:
        raise LoadFailed(f"Reading {name!r} needs the package gguf: pip install gguf")


def _require_type(name: str, tensor: str, kind: int) -> None:
    """Refuse a tensor that transformers cannot unpack. It has an unpacker of its own, and one of the package gguf."""
    if kind in plain_dtypes() or kind in GGML_BLOCK:
        return
    with_package = importlib.util.find_spec("gguf") is not None
    if with_package:
        import gguf

        try:
            block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)][1]
            gguf.dequantize(np.zeros(block, np.uint8), gguf.GGMLQuantizationType(kind))
            return
        except (KeyError, ValueError, NotImplementedError):
            pass
    raise LoadFailed(
        f"{name!r} holds {tensor} in the type {_type_name(kind)}, which transformers cannot unpack. Choose another "
        "file of the model, such as Q8_0."
    )


def _is_packed(kind: int) -> bool:
    return kind not in plain_dtypes()


def _type_name(kind: int) -> str:
    known = GGML_NAME.get(kind)
    if known is None and importlib.util.find_spec("gguf") is not None:
        import gguf

        known = next((entry.name for entry in gguf.GGMLQuantizationType if entry == kind), None)
    return known or f"number {kind}"


def _bytes_of(shape: tuple[int, ...], kind: int) -> int:
    if kind in (plain := plain_dtypes()):
        return math.prod(shape) * plain[kind].itemsize
    if kind in GGML_BLOCK:
        values, size = GGML_BLOCK[kind]
        return math.prod(shape) // values * size
    return 0


def _facts(config: Any) -> dict[str, Any]:
    """The fields of a config, with those that its class computes."""
    text = config.get_text_config(decoder=True)
    facts = {name: getattr(text, name, None) for names in _REPEATED.values() for name in names}
    heads = getattr(text, "num_attention_heads", None)
    head = facts["head_dim"] or (text.hidden_size // heads if heads else None)
    ropes = getattr(text, "rope_parameters", None) or {}
    rope = ropes.get("full_attention", ropes)
    part = rope.get("partial_rotary_factor", getattr(text, "partial_rotary_factor", None))
    facts |= {
        "_head_dim": head,
        "_rotary_dim": int(head * (part or 1)) if head else None,
        "_rope_theta": rope.get("rope_theta"),
        "_rope_type": "none" if rope.get("rope_type", "default") == "default" else rope["rope_type"],
        "_rope_factor": rope.get("factor", 1.0),
        "_causal": True,
    }
    if facts["num_key_value_heads"] is None and facts["num_kv_heads"] is None:
        facts["num_key_value_heads"] = heads
    return facts


def _equal(value: Any, ours: Any) -> bool:
    """Whether two values agree up to the float32 of the file."""
    if isinstance(value, (int, float)) and isinstance(ours, (int, float)):
        return math.isclose(value, ours, rel_tol=1e-5)
    return value == ours
