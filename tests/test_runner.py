"""A model's passes: the logits are those of its own ``forward``, however few steps it takes to them."""

from __future__ import annotations

import functools

import pytest
import torch
from fakes import count_passes, prompt_of, shared_tiny
from transformers import DynamicCache

from specdec.runner import Runner

STEPS = ((0, 6, 0), (6, 7, 0), (7, 8, 0), (8, 11, -2), (9, 10, -1), (9, 10, 0), (10, 11, 0))  # from, to, crop


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@torch.inference_mode()
def test_fewer_steps_lead_to_the_same_logits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the last bit, before and behind a rollback; ``forward`` sees the prefill only."""
    model, ids = shared_tiny(family, 0, layers=3, vocab_size=336), prompt_of(16)
    cache, theirs = DynamicCache(config=model.config), []
    for begin, end, crop in STEPS:
        theirs.append(model(input_ids=ids[None, begin:end], past_key_values=cache).logits[0])
        cache.crop(crop)
    fed, forward = [], type(model).forward

    @functools.wraps(forward)  # which looks as it came
    def note(self, input_ids, **kwargs):
        fed.append(input_ids.shape[-1])
        return forward(self, input_ids, **kwargs)

    monkeypatch.setattr(type(model), "forward", note)
    runner = Runner(model)
    for (begin, end, crop), logits in zip(STEPS, theirs, strict=True):
        assert torch.equal(runner.forward(ids[begin:end]), logits)
        runner.crop_to(end + crop)
    assert fed == [6]


@torch.inference_mode()
def test_who_listens_to_a_model_hears_every_pass() -> None:
    model, ids = shared_tiny("llama", 0, layers=3, vocab_size=336), prompt_of(8)
    with count_passes(model) as fed:
        runner = Runner(model)
        for begin, end in ((0, 6), (6, 7), (7, 8)):
            runner.forward(ids[begin:end])
    assert fed == [6, 1, 1]
