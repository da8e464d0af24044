"""Writes GGUF files of tiny models as llama.cpp's converter does. Needs the package gguf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: Any,
    *,
    quantised: str | None = None,
    pre: str = "gpt-2",
    more: dict | None = None,
) -> Path:
    """Write a model of type llama, qwen2 or qwen3, with a byte-level tokenizer, to ``path``.

    ``quantised``: the name of a type such as "Q8_0" for its matrices. ``more``: further whole or decimal numbers and
    texts under their keys.
    """
    import gguf

    config = model.config
    architecture = config.model_type
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], config.num_hidden_layers)
    file = gguf.GGUFWriter(path, architecture)
    file.add_name(path.stem)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_freq_base(config.rope_parameters["rope_theta"])
    file.add_rope_dimension_count(config.head_dim)
    file.add_vocab_size(config.vocab_size)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = [f"[PAD{row}]" for row in range(config.vocab_size)]
    for token, row in tokenizer.get_vocab().items():
        tokens[row] = token
    special = {entry["id"] for entry in state["added_tokens"] if entry["special"]}
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre(pre)
    file.add_token_list(tokens)
    file.add_token_types(
        [3 if row in special else 5 if tokens[row].startswith("[PAD") else 1 for row in range(len(tokens))]
    )
    file.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    file.add_eos_token_id(tokenizer.eos_token_id)
    for key, value in (more or {}).items():
        add = {str: file.add_string, float: file.add_float32, int: file.add_uint32}[type(value)]
        add(key, value)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)
        kind = gguf.GGMLQuantizationType[quantised] if quantised and values.ndim == 2 else None
        data = gguf.quantize(values, kind) if kind is not None else np.ascontiguousarray(values)
        file.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data, raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
