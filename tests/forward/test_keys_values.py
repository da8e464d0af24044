"""The keys and values that a runner hands over are those of the committed tokens that the next one sees."""

from __future__ import annotations

import pytest
import torch
from comparison import FULL
from fakes import prompt_of, shared_tiny
from transformers import DynamicCache

from specdec.forward.hf import HFForward
from specdec.forward.model_info import why_not_lean
from specdec.forward.runner import Runner

WINDOW = 8  # of ``fakes.tiny``
# A family, whether it has a lean forward, and which of its layers have a window.
FAMILIES = {
    "llama": (True, ()), "mistral": (True, (0, 1)), "gpt_neox": (True, ()), "gemma3": (False, (0,)),
    "gemma2": (False, (0,)),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES if FULL else ("llama", "mistral", "gpt_neox", "gemma3"))
@pytest.mark.parametrize("own", ["lean", "transformers"])
@torch.no_grad()
def test_they_are_those_of_a_pass_over_the_committed_tokens(family: str, own: str) -> None:
    """Before and beyond the window, after rejections too; the pass over the whole text keeps all tokens."""
    model, (lean, windows) = shared_tiny(family, 1), FAMILIES[family]
    assert (why_not_lean(model) is None) == lean
    runner = Runner(model, passes=HFForward(model) if own == "transformers" else None)
    text, wrong = prompt_of(30), prompt_of(30, seed=6)
    for begin, end in ((0, 5), (5, 6), (6, 14), (14, 30)):
        runner.forward(torch.cat([text[begin:end], wrong[:3]]))
        runner.crop_to(end)
        cache = DynamicCache()
        model(input_ids=text[None, :end], past_key_values=cache, use_cache=True)
        for number, layer in enumerate(cache.layers):
            low = max(0, end - WINDOW + 1) if number in windows else 0
            for ours, theirs in zip(runner.keys_values(number), (layer.keys, layer.values), strict=True):
                torch.testing.assert_close(ours, theirs[0, :, low:], rtol=1e-4, atol=1e-4)
