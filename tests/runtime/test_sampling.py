"""Logits go through the processors that transformers' ``generate`` builds from the same settings."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from specdec.events import SamplingParams
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer

V = 12


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=32, n_embd=8, n_layer=1, n_head=2))


@pytest.mark.filterwarnings("ignore:Passing `repetition_penalty`")  # the warning overlooks that ids come with the call
@pytest.mark.parametrize(
    "settings",
    [
        {},
        *({"temperature": value} for value in (0.5, 2.0)),
        *({"top_k": value} for value in (1, 3, V + 1)),
        *({"top_p": value} for value in (0.1, 0.6, 1.0)),
        *({"min_p": value} for value in (0.05, 0.9)),
        *({"repetition_penalty": value} for value in (0.5, 2.0)),
        {"temperature": 1.7, "top_k": 8, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.3},
    ],
    ids=str,
)
def test_each_row_is_processed_as_generate_processes_it(model: GPT2LMHeadModel, settings: dict) -> None:
    """Each of three rows is processed with its own prefix: a penalty ignores the tokens after a row's position."""
    params = SamplingParams(**{"temperature": 1.0} | settings)
    rng = torch.Generator().manual_seed(0)
    ids, logits = torch.randint(V, (7,), generator=rng), 3 * torch.randn(3, V, generator=rng)
    context = TokenBuffer(ids, 16)
    config = GenerationConfig(
        do_sample=True, temperature=params.temperature, top_k=params.top_k, top_p=params.top_p,
        min_p=params.min_p or None, repetition_penalty=params.repetition_penalty,
    )  # fmt: skip
    theirs = model._get_logits_processor(config, device="cpu")
    expected = torch.cat([theirs(ids[None, : 5 + row], logits[row : row + 1].clone()) for row in range(3)])
    assert torch.equal(Sampler(params, rng).process(logits, context, 7), expected)
