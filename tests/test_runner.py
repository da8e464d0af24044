"""One model with its cache: what it computes is what the model itself does."""

from __future__ import annotations

import pytest
import torch
from fakes import FAMILIES, MORE_FAMILIES, prompt_of, shared_tiny

from specdec.cache import new_cache
from specdec.runner import Runner


@pytest.mark.parametrize("family", [*FAMILIES, *MORE_FAMILIES])
@torch.inference_mode()
def test_a_pass_over_a_draft_is_the_models_own_to_the_bit(family: str) -> None:
    model, ids = shared_tiny(family), prompt_of(30)
    runner, cache = Runner(model), new_cache(model)
    for begin, end in ((0, 20), (20, 26), (26, 27), (27, 30)):
        own = model(input_ids=ids[None, begin:end], past_key_values=cache).logits[0]
        assert torch.equal(runner.forward(ids[begin:end], keep=end - begin), own)
