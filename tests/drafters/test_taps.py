"""Tapped hidden states are those that transformers lists, and no others are kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from fakes import prompt_of, tiny
from test_gemma4_assistant import target_of as gemma4

from specdec.forward.hf import NORMED, HFForward, decoder_layers, tapped

MODELS = {
    **{family: lambda family=family: tiny(family, 3, layers=4, context=512) for family in ("llama", "gpt2", "gemma3")},
    "recurrent state": lambda: tiny("qwen3_5_text", 3, layers=4, context=512),
    "shared keys": lambda: gemma4("shared"),
    "images too": lambda: gemma4("images too"),
}
TAPPED = (2, 0, NORMED)


@pytest.mark.parametrize("kind", MODELS)
def test_states_are_those_that_transformers_lists(kind: str) -> None:
    """Of all rows, whatever logits are asked for, and of the first layers or the last alike."""
    model, ids = MODELS[kind](), prompt_of(12)
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    passes = HFForward(model)
    passes.tap((*TAPPED, depth))
    found = []
    with torch.inference_mode():
        for start, end, keep in ((0, 7, 1), (7, 12, 3)):
            passes.logits(ids[start:end], start, keep)
            passes.forget(0)
            found.append(passes.features())
        listed = model(input_ids=ids[None], output_hidden_states=True).hidden_states
    ours = torch.cat(found).split(listed[0].shape[-1], -1)
    assert len(ours) == 4 and len(ours[0]) == 12
    for number, states in zip(TAPPED, ours, strict=False):
        torch.testing.assert_close(states, listed[number][0], rtol=1e-4, atol=1e-4)
    normed = model.get_decoder().norm if hasattr(model.get_decoder(), "norm") else model.get_decoder().ln_f
    torch.testing.assert_close(normed(ours[3]), listed[NORMED][0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_no_other_states_are_kept(kind: str, monkeypatch) -> None:
    model, asked = MODELS[kind](), []
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *a, **given: asked.append(given) or forward(self, **given))
    passes = HFForward(model)
    passes._takes_positions = True  # the replaced forward names no parameters
    passes.tap(TAPPED)
    with torch.inference_mode():
        passes.logits(prompt_of(7), 0, 1)
    assert asked and not any(given.get("output_hidden_states") for given in asked)
    assert len(passes._hidden) == len(TAPPED)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_pass_of_another_thread_is_not_tapped() -> None:
    model, found = MODELS["llama"](), []

    def other(module: Any, given: Any) -> None:
        if len(found) < 1:
            found.append(None)
            thread = threading.Thread(target=lambda: model(input_ids=prompt_of(3)[None]))
            thread.start()
            thread.join()

    layers = decoder_layers(model)
    assert layers is not None
    layers[3].register_forward_pre_hook(other)
    with torch.inference_mode(), tapped(model, (2, NORMED)) as states:
        model(input_ids=prompt_of(7)[None])
    assert {len(rows[0]) for rows in states.values()} == {7}
