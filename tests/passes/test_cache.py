"""The KV cache of a call has the content of transformers' own and rarely copies it."""

from __future__ import annotations

import torch
from fakes import prompt_of, shared_tiny
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from specdec.passes.cache import RoomyLayer, new_cache


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
    layer, states = RoomyLayer(), torch.randn(1, 2, 2000, 4)
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
    assert {type(layer) is RoomyLayer for layer in layers} == {True, False}
    assert not any(type(layer) is DynamicLayer for layer in layers)
