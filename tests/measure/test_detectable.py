"""What a chi-square test can see: the stated bias is found as often as stated, whatever its kind, on simulated tables.

Bounds on simulated rates would be exceeded once in 10,000 choices of a seed.
"""

from __future__ import annotations

import pytest
import torch
from comparison import FULL
from scipy import stats

from specdec.measure.detectable import LEVEL, POWER, between_samples, chi_square_tail, fit, needed
from specdec.measure.losslessness import chi_square

TIMES = 2000 if FULL else 400


@pytest.mark.parametrize(("degrees", "noncentrality"), [(1, 0.0), (7, 3.5), (40, 60.0), (120, 400.0)])
def test_the_tail_is_that_of_scipy(degrees: int, noncentrality: float) -> None:
    for statistic in (0.0, 5.0, 60.0, 500.0):
        exact = stats.ncx2.sf(statistic, degrees, noncentrality) if noncentrality else stats.chi2.sf(statistic, degrees)
        assert chi_square_tail(statistic, degrees, noncentrality) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def test_the_needed_noncentrality_gives_the_stated_power() -> None:
    for degrees in (1, 5, 30):
        critical = stats.chi2.isf(LEVEL, degrees)
        assert stats.ncx2.sf(critical, degrees, needed(degrees)) == pytest.approx(POWER, abs=1e-6)


def test_four_times_as_many_draws_see_half_the_bias() -> None:
    assert between_samples(2000, 2000, 20) == pytest.approx(between_samples(500, 500, 20) / 2)
    assert between_samples(500, 500, 1) is None
    assert between_samples(10, 10, 5) is None, "no bias is above 1"


def biased(shares: torch.Tensor, size: float, kind: str) -> torch.Tensor:
    """Another distribution at this total variation: one half of the mass grows, one cell grows, or two swap mass."""
    rises = torch.zeros(len(shares))
    if kind == "every cell":
        rises[shares.cumsum(0) <= shares.sum() / 2] = 1.0
    else:
        rises[0] = 1.0
    falls = 1 - rises if kind != "two cells" else torch.eye(len(shares))[1]
    return shares + size * (shares * rises / (shares * rises).sum() - shares * falls / (shares * falls).sum())


@pytest.mark.parametrize("kind", ["every cell", "one cell", "two cells"])
def test_a_bias_of_the_stated_size_between_samples_is_found(kind: str) -> None:
    """The hardest kind changes every cell in proportion. It is found about as often as stated, others more often."""
    shares, draws, rng = torch.tensor([6.0, 4.0, *[1.0] * 10]), 500, torch.Generator().manual_seed(0)
    shares = shares / shares.sum()
    size = between_samples(draws, draws, len(shares))
    other, found = biased(shares, size, kind), 0
    assert float((shares - other).abs().sum() / 2) == pytest.approx(size) and float(other.min()) >= 0
    for _ in range(TIMES):
        ours, theirs = (
            torch.multinomial(p, draws, True, generator=rng).bincount(minlength=12) for p in (shares, other)
        )
        found += chi_square(ours, ours + theirs) < LEVEL
    least, most = stats.binom.ppf([1e-4, 1 - 1e-4], TIMES, POWER)
    assert found >= least
    if kind == "every cell":
        assert found <= most + 0.05 * TIMES, "the stated size is not far from the smallest one"


def steps(size: float, kind: int, rng: torch.Generator, count: int = 600) -> list:
    """Draws of classes whose chances change from place to place, with a shift to or from the first ``kind`` classes."""
    chances = torch.distributions.Dirichlet(torch.tensor([4.0, 2.0, 1.0])).sample((count,))
    rises = (torch.arange(3) < kind).float()
    shifted = chances + size * (
        chances * rises / (chances * rises).sum(1, keepdim=True)
        - chances * (1 - rises) / (chances * (1 - rises)).sum(1, keepdim=True)
    )
    drawn = torch.multinomial(shifted.clamp(min=0), 1, generator=rng)[:, 0]
    return list(zip(chances.tolist(), drawn.tolist(), strict=True))


@pytest.mark.parametrize("kind", [1, 2])
def test_a_bias_of_the_stated_size_per_token_is_found(kind: int) -> None:
    torch.manual_seed(0)
    rng, found = torch.Generator().manual_seed(0), 0
    for _ in range(TIMES // 4):
        size = fit(steps(0.0, kind, rng), LEVEL).detectable
        found += fit(steps(size, kind, rng), LEVEL).p_value < LEVEL
    assert found >= stats.binom.ppf(1e-4, TIMES // 4, POWER)


def test_draws_that_have_their_chances_are_seldom_flagged() -> None:
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(1)
    p_values = [fit(steps(0.0, 1, rng, 150), LEVEL).p_value for _ in range(TIMES // 2)]
    for level in (LEVEL, 0.01, 0.1):
        assert sum(p < level for p in p_values) <= stats.binom.ppf(1 - 1e-4, TIMES // 2, level), level


def test_classes_that_are_seldom_expected_are_joined() -> None:
    """With an expected count below ten a class joins the one before; with a single class nothing is tested."""
    assert fit([([0.5, 0.45, 0.05], 2)] * 100, LEVEL).p_value == fit([([0.5, 0.5], 1)] * 100, LEVEL).p_value < 1e-6
    assert fit([([0.99, 0.01], 1)] * 100, LEVEL) == (1.0, None) == fit([], LEVEL)
