"""Draws follow the given probabilities. All other exact tests rely on these two functions."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from specdec.runtime import draws

LEVEL = 1e-4  # seeds are fixed, so a run gives the same verdict each time


@pytest.mark.parametrize(
    "row", [[1.0], [0.5, 0.5], [0.0, 0.7, 0.0, 0.3], [0.9, 0.09, 0.009, 0.001], [1 / 7] * 7], ids=len
)
def test_tokens_are_drawn_by_their_probabilities(row: list[float]) -> None:
    """Tokens are drawn by their probabilities, for one row and for many. A token of probability 0 is never drawn."""
    rng, p, times = torch.Generator().manual_seed(0), torch.tensor(row), 200_000
    counts = draws.draw(p.expand(times, -1).contiguous(), rng).bincount(minlength=len(row))
    assert counts[p == 0].sum() == 0
    if len(row) > 1:
        expected = p[p > 0].double() / p.sum(dtype=torch.double) * times
        assert stats.chisquare(counts[p > 0].double().numpy(), expected.numpy()).pvalue > LEVEL


def test_rows_are_drawn_independently_of_each_other() -> None:
    rng, p = torch.Generator().manual_seed(1), torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    drawn = torch.stack([draws.draw(p, rng) for _ in range(4_000)])
    cells = (2 * drawn[:, 0] + drawn[:, 1]).bincount(minlength=4)
    assert stats.chisquare(cells.double().numpy(), [400, 1600, 400, 1600]).pvalue > LEVEL


def test_uniform_numbers_fill_the_interval() -> None:
    """Uniform numbers are in [0, 1): a probability of 1 is always accepted and one of 0 never."""
    numbers = draws.uniform(200_000, torch.Generator().manual_seed(2), like=torch.zeros(1))
    assert 0 <= numbers.min() and numbers.max() < 1 and numbers.dtype == torch.float32
    assert stats.kstest(numbers.double().numpy(), "uniform").pvalue > LEVEL
    assert torch.corrcoef(torch.stack([numbers[1:], numbers[:-1]]))[0, 1].abs() < 0.01


def test_the_generator_that_is_handed_in_is_the_only_one() -> None:
    p, state = torch.full((50, 9), 1 / 9), torch.random.get_rng_state()
    drawn = [
        (draws.draw(p, rng).tolist(), draws.uniform(20, rng, like=p).tolist())
        for rng in (torch.Generator().manual_seed(seed) for seed in (3, 3, 4))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.random.get_rng_state(), state)
