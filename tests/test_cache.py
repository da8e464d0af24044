"""The KV cache of a call: it holds what transformers' own would hold, without ever moving it."""

from __future__ import annotations

import torch
from fakes import prompt_of, shared_tiny
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from specdec.cache import RoomyLayer, new_cache


@torch.inference_mode()
def test_states_stay_where_they_are_and_logits_are_those_of_a_dynamic_cache() -> None:
    model, ids = shared_tiny("llama", 0, layers=3, vocab_size=336), prompt_of(12)[None]
    ours, theirs = new_cache(model, capacity=12), DynamicCache(config=model.config)
    places = set()
    for begin, end, crop in ((0, 5, 0), (5, 9, -2), (7, 8, 0), (8, 12, 0)):
        logits = [model(input_ids=ids[:, begin:end], past_key_values=cache).logits for cache in (ours, theirs)]
        assert torch.equal(*logits)
        for cache in (ours, theirs):
            cache.crop(crop)
            assert cache.get_seq_length() == end + crop
        places.add(tuple(layer.keys.data_ptr() for layer in ours.layers))
    assert len(places) == 1


def test_sliding_windows_keep_transformers_own_layers() -> None:
    layers = new_cache(shared_tiny("gemma2", 0, layers=3, vocab_size=336), capacity=12).layers
    assert {type(layer) is RoomyLayer for layer in layers} == {True, False}
    assert not any(type(layer) is DynamicLayer for layer in layers)
