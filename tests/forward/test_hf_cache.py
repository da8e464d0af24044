"""The KV cache of a call has the content of transformers' own and rarely copies it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from all_types import VOCABULARY, small_config, small_model
from drafting import config_of, head_of
from fakes import generated, ids_of, isolated_rng, noisy_copy, prompt_of, shared_tiny
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DynamicCache,
    GenerationConfig,
    MllamaForCausalLM,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.models.mllama.configuration_mllama import MllamaTextConfig

import specdec
from specdec.drafters.eagle3 import Eagle3
from specdec.forward.hf import HFForward
from specdec.forward.hf_cache import PreallocatedLayer, new_cache, unmasked_window


@torch.inference_mode()
def test_states_stay_where_they_are_and_logits_are_those_of_a_dynamic_cache() -> None:
    model, ids = shared_tiny("llama", 0, layers=3, vocab_size=336), prompt_of(12)[None]
    ours, theirs = new_cache(model), DynamicCache(config=model.config)
    places = set()
    for begin, end, crop in ((0, 5, 0), (5, 9, -2), (7, 8, 0), (8, 12, 0)):
        logits = [model(input_ids=ids[:, begin:end], past_key_values=cache).logits for cache in (ours, theirs)]
        assert torch.equal(*logits)
        for cache in (ours, theirs):
            cache.crop(crop)
            assert cache.get_seq_length() == end + crop
        places.add(tuple(layer.keys.data_ptr() for layer in ours.layers))
    assert len(places) == 1


@torch.inference_mode()
def test_a_full_layer_makes_room_and_keeps_what_it_held() -> None:
    layer, states = PreallocatedLayer(), torch.randn(1, 2, 2000, 4)
    layer.crop(-3)  # still empty, as in layers that use another layer's states
    assert layer.get_seq_length() == 0
    places = set()
    for begin in range(0, 2000, 8):
        keys, values = layer.update(states[:, :, begin : begin + 8], -states[:, :, begin : begin + 8])
        assert torch.equal(keys, states[:, :, : begin + 8]) and torch.equal(values, -keys)
        places.add(keys.data_ptr())
    assert len(places) < 6


def test_sliding_windows_keep_transformers_own_layers() -> None:
    layers = new_cache(shared_tiny("gemma2", 0, layers=3, vocab_size=336)).layers
    assert {type(layer) is PreallocatedLayer for layer in layers} == {True, False}
    assert not any(type(layer) is DynamicLayer for layer in layers)


# --- windows that a config names -------------------------------------------------------------------------------------

WINDOW = 24  # more than the check of the lean forward reads
ALL, TURNS = ["sliding_attention"] * 4, ["sliding_attention", "full_attention"] * 2
STRAY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"sliding_window": WINDOW}),
    "gpt2": ("gpt2", {"sliding_window": WINDOW}),
    "gpt_neox": ("gpt_neox", {"sliding_window": WINDOW}),
    "bloom": ("bloom", {"sliding_window": WINDOW}),
    "opt": ("opt", {"sliding_window": WINDOW}),
    "not to be used": ("llama", {"sliding_window": WINDOW, "use_sliding_window": False, "max_window_layers": 2}),
    "every layer": ("llama", {"sliding_window": WINDOW, "layer_types": ALL}),
    "some layers": ("llama", {"sliding_window": WINDOW, "layer_types": TURNS}),
    "chunks": ("gpt2", {"attention_chunk_size": WINDOW}),
    "chunks in some layers": (
        "llama",
        {"attention_chunk_size": WINDOW, "layer_types": ["chunked_attention", "full_attention"] * 2},
    ),
    "chunks in a family with windows": ("mistral", {"sliding_window": None, "attention_chunk_size": WINDOW}),
}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "mistral, named by layer": ("mistral", {"sliding_window": WINDOW, "layer_types": ALL}),
    "mistral, named as full": ("mistral", {"sliding_window": WINDOW, "layer_types": ["full_attention"] * 4}),
    "phi3": ("phi3", {"sliding_window": WINDOW}),
    "gemma2": ("gemma2", {"sliding_window": WINDOW}),
    "gemma3": ("gemma3", {"sliding_window": WINDOW}),
    "qwen2": ("qwen2", {"sliding_window": WINDOW, "use_sliding_window": True, "layer_types": TURNS}),
    "qwen2, not to be used": ("qwen2", {"sliding_window": WINDOW, "use_sliding_window": False}),
    "smollm3": ("smollm3", {"sliding_window": WINDOW, "use_sliding_window": True, "layer_types": TURNS}),
    "smollm3, not to be used": (
        "smollm3",
        {"sliding_window": WINDOW, "use_sliding_window": False, "layer_types": TURNS},
    ),
    "llama, full in every layer": ("llama", {"sliding_window": WINDOW, "layer_types": ["full_attention"] * 4}),
}


def with_windows(family: str, settings: dict[str, Any]) -> PreTrainedModel:
    config = copy.deepcopy(shared_tiny(family, layers=4).config)
    for name, value in settings.items():
        setattr(config, name, value)
    with isolated_rng(0):
        model = AutoModelForCausalLM.from_config(config).eval()
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


@pytest.mark.parametrize("name", [*STRAY, *OWN])
def test_a_text_beyond_a_window_equals_generate(name: str) -> None:
    """``generate`` has the windows of its cache, whether the model's masks have them or not."""
    model = with_windows(*(STRAY | OWN)[name])
    assert unmasked_window(model) == (WINDOW if name in STRAY else None)
    prompt_ids, params = prompt_of(WINDOW - 8), specdec.SamplingParams(max_new_tokens=26)
    draft = specdec.EarlyExit(2) if "some" in name else noisy_copy(model, scale=0.01)
    events = list(specdec.speculative(specdec.Pair(model, draft), prompt_ids, gamma=4, params=params))
    assert ids_of(events) == generated(model, prompt_ids, 26)


def test_a_window_in_the_part_of_a_config_that_is_for_text() -> None:
    config = small_config(CONFIG_MAPPING["emu3"])
    config.text_config.sliding_window = WINDOW
    model = small_model(config)
    prompt_ids, params = prompt_of(WINDOW - 8, VOCABULARY), specdec.SamplingParams(max_new_tokens=24)
    pair = specdec.Pair(model, noisy_copy(model, scale=0.01))
    events = list(specdec.speculative(pair, prompt_ids, gamma=4, params=params))
    assert ids_of(events) == generated(model, prompt_ids, 24) and unmasked_window(model) == WINDOW


def test_hidden_states_beyond_a_window_are_those_of_all_rows() -> None:
    """A head that reads hidden states gets a row for each token, though each token had its own pass."""
    model = with_windows(*STRAY["llama"])
    pair = specdec.Pair(model, Eagle3(head_of(config_of())))
    prompt_ids, params = prompt_of(WINDOW - 8), specdec.SamplingParams(max_new_tokens=26)
    events = list(specdec.speculative(pair, prompt_ids, gamma=4, params=params))
    assert ids_of(events) == generated(model, prompt_ids, 26)


@pytest.mark.parametrize("settings", [{"layer_types": TURNS}, {"layer_types": ["unheard_of"] * 4}])
def test_a_config_that_no_cache_can_be_made_from(settings: dict[str, Any]) -> None:
    """``generate`` fails with an error of Python there."""
    model = with_windows("llama", settings)
    with pytest.raises(specdec.IncompatiblePair, match="layer_types"):
        list(specdec.speculative(specdec.Pair(model), prompt_of(4), gamma=0, params=specdec.SamplingParams(4)))


@torch.inference_mode()
def test_the_input_of_a_layer_that_the_target_skips_cannot_be_read() -> None:
    """Without a picture, Mllama skips its cross-attention. The inputs of its other layers are read."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = MllamaTextConfig(vocab_size=336, num_hidden_layers=3, cross_attention_layers=[1], pad_token_id=0, **sizes)
    passes = HFForward(MllamaForCausalLM(config).eval())
    passes.tap([0, 2])
    passes.logits(prompt_of(6), 0, 1)
    assert passes.features().shape == (6, 64)
    passes.tap([0, 1])
    with pytest.raises(specdec.IncompatiblePair, match="reads what enters layer 1 of the target, and the target skips"):
        passes.logits(prompt_of(6), 6, 1)
