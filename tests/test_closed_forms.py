"""The closed forms, against brute force."""

from __future__ import annotations

import pytest

from specdec.closed_forms import expected_speedup, least_alpha

GAMMAS = range(1, 17)


@pytest.mark.parametrize("c", [0.0, 0.01, 0.1, 0.35, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("v", [0.95, 1.0, 1.1, 1.5, 3.0, 20.0])
def test_the_least_alpha_is_where_the_best_draft_length_begins_to_gain(c: float, v: float) -> None:
    """On a grid of rates no draft length gains below the least alpha, and one does above it."""
    grid = [step / 2000 for step in range(2001)]
    gaining = [alpha for alpha in grid if max(expected_speedup(alpha, g, c, v) for g in GAMMAS) > 1]
    found = least_alpha(c, v)
    if not gaining:
        assert found is None or found > 0.999
    else:
        assert found == pytest.approx(gaining[0], abs=1 / 2000)


@pytest.mark.parametrize("c", [0.02, 0.3, 0.99])
def test_in_the_papers_a_draft_pays_where_alpha_exceeds_the_cost_coefficient(c: float) -> None:
    """Corollary 3.9 of Leviathan et al.: a draft pays where alpha > c, if a check costs as much as one token."""
    assert least_alpha(c) == pytest.approx(c)
