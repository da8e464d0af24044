"""Lean passes over several sequences give the logits of transformers' passes over the same batch."""

from __future__ import annotations

import pytest
import torch
from lean_models import CLOSE, MODELS, WINDOWS
from transformers import DynamicCache

from specdec.forward.batched_buffer import BatchedKVBuffer
from specdec.forward.lean_check import lean_model

BATCH, PASSES = 3, (20, 1, 4, 5, 1, 9)  # tokens of each sequence in successive passes
# Heads that share keys, all heads in one matrix by head, learned positions, and windows.
NAMES = ("llama", "gpt_neox", "gpt2", "phi3 with windows")


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_over_a_batch(name: str) -> None:
    model = (MODELS | WINDOWS)[name]()
    lean, cache = lean_model(model), DynamicCache(config=model.config)
    ids = torch.randint(0, 300, (BATCH, sum(PASSES)), generator=torch.Generator().manual_seed(2))
    buffer, start = BatchedKVBuffer(lean, BATCH, sum(PASSES)), 0
    with torch.inference_mode():
        for fed in ids.split(PASSES, dim=1):
            own = model(input_ids=fed, past_key_values=cache).logits
            rejected = torch.zeros_like(fed).T.flatten()
            lean.forward(rejected, buffer, start, None)  # the next pass overwrites its slots
            ours = lean.forward(fed.T.flatten(), buffer, start, None).unflatten(0, (-1, BATCH)).transpose(0, 1)
            assert float((own - ours).abs().max() / (own.max() - own.min())) <= CLOSE
            start += fed.shape[1]


def test_the_last_rows_are_the_last_token_of_each_sequence() -> None:
    model, ids = MODELS["llama"](), torch.randint(0, 300, (BATCH, 8), generator=torch.Generator().manual_seed(3))
    lean = lean_model(model)
    with torch.inference_mode():
        last = lean.forward(ids.T.flatten(), BatchedKVBuffer(lean, BATCH, 8), 0, BATCH)
        torch.testing.assert_close(last, model(input_ids=ids).logits[:, -1])
