"""Logits go through the processors that transformers' ``generate`` builds from the same settings."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from specdec.events import SamplingParams
from specdec.runtime.sampling import Sampler, chance_of, up_to_unsure
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


def test_a_setting_without_effect_costs_no_operator() -> None:
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    logits = torch.randn(2, V)
    sampler = Sampler(params, torch.Generator())
    assert sampler.process(logits, TokenBuffer(torch.arange(4), 8), 4) is logits
    torch.testing.assert_close(sampler.probabilities(logits), logits.exp() / logits.exp().sum(1, keepdim=True))


def test_the_chance_of_a_token_is_that_of_its_own_row() -> None:
    logits = torch.tensor([[1.0, 3.0, 0.0], [2.0, 0.0, 1.0]]).log()
    torch.testing.assert_close(chance_of(logits, torch.tensor([1, 2])), torch.tensor([0.75, 1 / 3]))


@pytest.mark.parametrize(
    ("chances", "count"),
    [
        ([], 0),
        ([0.9], 1),
        ([0.4], 1),
        ([0.5, 0.5], 2),
        ([0.9, 0.4, 0.9], 2),
        ([0.4, 0.4, 0.4], 1),
        ([0.9, 0.8, 0.7], 3),
    ],
)
def test_a_draft_ends_with_the_first_token_below_the_confidence(chances: list[float], count: int) -> None:
    """That token is drafted too; one that is exactly at the confidence is not below it."""
    assert int(up_to_unsure(torch.tensor(chances), 0.5)) == count
