"""Compare the text of every causal language model type of transformers, small and random, with ``generate``.

``python tests/all_types.py`` prints a table of all types; ``python tests/all_types.py roberta phi3`` prints these two.
Each type either equals ``generate`` at gamma 0 and with a noisy draft, or is refused in a sentence. A difference that
rounding explains is called a near-tie.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from comparison import TIE, first_difference, top_two_gap
from fakes import generated, isolated_rng, noisy_copy, prompt_of
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import specdec
from specdec.models.compatibility import refuse_unsuitable

VOCABULARY = 96
CONTEXT = 56  # tokens, prompt and new ones: every text fills the context to its last token
PROMPT = 14
LAYERS = 4
WINDOW = 8
PENALTY = 1.3  # for repetition, as random models tend to repeat one token

# Small values for the size fields of configs. A name is used only where the config has such a field.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "unpadded_vocab_size", "decoder_vocab_size"), VOCABULARY),
    **dict.fromkeys(("vocab_size_per_layer_input",), VOCABULARY),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "emb_dim", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size", "attention_hidden_size", "lru_width"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("num_decoder_layers",), LAYERS),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("attention_heads", "encoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("num_decoder_attention_heads", "swa_num_attention_heads", "index_n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "kv_channels", "dim_head", "index_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "attention_head_size", "query_pre_attn_scalar"), 8),
    **dict.fromkeys(("qk_head_dim", "kv_lora_rank", "q_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "dim_ff", "dff", "decoder_ffn_dim", "encoder_ffn_dim"), 48),
    **dict.fromkeys(("ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size"), 48),
    **dict.fromkeys(("shared_intermediate_size", "intermediate_size_mlp", "dense_intermediate_size"), 48),
    **dict.fromkeys(("expert_ffn_hidden_size", "feed_forward_size", "shared_experts_intermediate_size"), 48),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "topk_group"), 2),
    **dict.fromkeys(("n_group", "num_expert_group", "zero_expert_num"), 2),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions"), CONTEXT),
    **dict.fromkeys(("max_seq_len", "model_max_length", "context_length"), CONTEXT),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "window_size", "attention_window_size"), WINDOW),
    **dict.fromkeys(("local_attention", "attention_chunk_size"), WINDOW),
    **dict.fromkeys(("rotary_dim",), 4),
    **dict.fromkeys(("ssm_state_size", "state_size", "mamba_d_state", "mamba_d_head", "mamba_head_dim"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads", "mamba_n_groups"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 8),
    **dict.fromkeys(("index_topk",), 64),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "decoder_start_token_id"), 0),
    **dict.fromkeys(("eos_token_id",), 1),
}


# Exceptions to these sizes, by the type of a config or of a part of it.
TURNS = ["sliding_attention", "full_attention"] * (LAYERS // 2)
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
SPECIAL: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"layer_types": TURNS, "rope_parameters": dict.fromkeys(set(TURNS), ROPE)},
    "dots3_note_audio_encoder": {"adapter_input_size": 32, "adapter_out_dim": 32},
    "dots3_note_vision_encoder": {"mlp_layer_types": ["dense"] * LAYERS, "adapter_in_dim": 32, "adapter_out_dim": 32},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10_000.0}},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_kv_shared_layers": 2, "layer_types": TURNS},
    # Every layer of Gemma 4's assistant reads the keys and values of the target.
    "gemma4_assistant": {
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
        }
    },
    "gpt_neo": {"attention_types": [[["global", "local"], LAYERS // 2]]},
    "hrm_text": {"num_hidden_layers": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "mamba2": {"num_heads": 8},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * (LAYERS // 2)},
    "zaya": {"num_experts_per_tok": 1},
}


class Outcome(NamedTuple):
    """What became of one type: equal, near-tie, refused, different, raw (another exception) or not built."""

    kind: str
    says: str = ""


def small_config(config_class: type[PreTrainedConfig], **changes: Any) -> PreTrainedConfig:
    return config_class(**small_values(config_class) | changes)


def small_values(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """The arguments to build a config of this class with: the fields of ``SIZES`` that it and its parts have."""
    names = {field.name for field in dataclasses.fields(config_class)}
    values = {name: size for name, size in SIZES.items() if name in names}
    if "kv_lora_rank" in names:  # latent attention has no groups of queries
        values["num_key_value_heads"] = values["num_attention_heads"]
    special = SPECIAL.get(config_class.model_type, {})
    default = config_class(**{name: value for name, value in special.items() if isinstance(value, dict)})
    if "layer_types" in names and (kinds := list(dict.fromkeys(default.layer_types or ()))):
        values["layer_types"] = [kinds[i % len(kinds)] for i in range(LAYERS)]
    for name, part in vars(default).items():
        if isinstance(part, PreTrainedConfig) and name not in special:
            values[name] = small_config(type(part))
    # Ask for a decoder alone, where the class is known as a part of an encoder-decoder model. With one matrix for input
    # and output, a random model would repeat its last token.
    flags = {"is_decoder": True, "is_encoder_decoder": False, "tie_word_embeddings": False}
    values |= {name: value for name, value in flags.items() if name in names}
    return values | special


def small_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Build a random model whose weights are large enough that its text varies."""
    with isolated_rng(0):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.25)
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=None)
    return model


TYPES = (*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,)  # names; looking a class up in CONFIG_MAPPING imports its module


WAYS: dict[str, Callable[[PreTrainedModel], Any]] = {
    "gamma 0": lambda model: None,
    "a noisy draft": lambda model: noisy_copy(model, scale=0.01),
    "early exit": lambda model: specdec.EarlyExit(2),
}


def outcome_of(name: str, new_tokens: int = CONTEXT - PROMPT, ways: Sequence[str] = WAYS, **changes: Any) -> Outcome:
    """Build the type, with some ``changes`` to its config, and compare the texts of some ``WAYS`` with ``generate``."""
    try:
        config = small_config(CONFIG_MAPPING[name], **changes)
        refuse_unsuitable(config)
        model = small_model(config)
        specdec.Pair(model)
    except specdec.SpecdecError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("not built", f"{type(error).__name__}: {error}")
    prompt_ids = prompt_of(PROMPT, VOCABULARY)
    params = specdec.SamplingParams(max_new_tokens=new_tokens, repetition_penalty=PENALTY)
    try:
        reference = generated(model, prompt_ids, new_tokens, repetition_penalty=PENALTY)
    except Exception as error:
        reference = f"generate itself: {type(error).__name__}: {error}"
    texts, notes = {}, []
    for way in ways:
        try:
            pair = specdec.Pair(model, WAYS[way](model))
            events = specdec.speculative(pair, prompt_ids, gamma=4 if pair.draft else 0, params=params)
            texts[way] = tuple(specdec.collect(events).token_ids)
        except specdec.SpecdecError as error:
            if way != "early exit":
                return Outcome("refused", str(error))
            notes.append(f"early exit is refused: {error}")
        except Exception as error:
            kind = "not built" if isinstance(reference, str) else "raw"
            return Outcome(kind, f"{way}: {type(error).__name__}: {error}")
    if isinstance(reference, str):
        return Outcome("raw", reference)
    outcome = compared(model, prompt_ids, texts, reference, notes)
    if outcome.kind in ("equal", "near-tie") and PROMPT + new_tokens == CONTEXT:
        return beyond(model, prompt_ids, new_tokens + 8) or outcome
    return outcome


def beyond(model: PreTrainedModel, prompt_ids: torch.Tensor, new_tokens: int) -> Outcome | None:
    """Say what is wrong with a text longer than the context. It must be refused, unless the model has no limit."""
    params = specdec.SamplingParams(max_new_tokens=new_tokens, repetition_penalty=PENALTY)
    try:
        events = specdec.speculative(specdec.Pair(model), prompt_ids, gamma=0, params=params)
        ids = tuple(specdec.collect(events).token_ids)
    except specdec.InvalidInput:
        return None
    except Exception as error:
        return Outcome("raw", f"beyond its context: {type(error).__name__}: {error}")
    reference = generated(model, prompt_ids, new_tokens, repetition_penalty=PENALTY)
    return None if ids == reference else Outcome("different", "beyond its context")


def compared(
    model: PreTrainedModel, prompt_ids: torch.Tensor, texts: dict, reference: tuple[int, ...], notes: list[str]
) -> Outcome:
    ties = []
    for way, ids in texts.items():
        at = first_difference(ids, reference)
        if at is None:
            continue
        gap = top_two_gap(model, torch.cat([prompt_ids, torch.tensor(reference[:at])]), PENALTY)
        where = f"{way}, token {at} of {len(reference)}, gap {gap:.0e} of the logit range"
        if gap >= TIE:
            return Outcome("different", where)
        ties.append(where)
    says = "; ".join([*ties, f"{len(set(reference))} different tokens", *notes])
    return Outcome("near-tie" if ties else "equal", says)


def main(names: list[str]) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    count = Counter()
    for name in names or sorted(TYPES):
        began = time.perf_counter()
        outcome = outcome_of(name)
        count[outcome.kind] += 1
        says = " ".join(outcome.says.split())
        print(f"{name:28} {outcome.kind:10} {time.perf_counter() - began:4.1f} s  {says[:240]}", flush=True)
    print(f"{sum(count.values())} types: " + ", ".join(f"{n} {kind}" for kind, n in count.most_common()))
    return 1 if count["different"] or count["raw"] else 0


if __name__ == "__main__":
    from specdec.models.pair import silence_libraries

    silence_libraries()
    raise SystemExit(main(sys.argv[1:]))
