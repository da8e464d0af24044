"""The closed forms, against brute force."""

from __future__ import annotations

import pytest

from specdec.closed_forms import expected_speedup, expected_tokens, least_alpha

GAMMAS = range(1, 17)


def constant(v: float, longest: int = 16) -> dict[int, float]:
    return dict.fromkeys(range(1, longest + 1), v)


@pytest.mark.parametrize("one_pass", [False, True])
@pytest.mark.parametrize("c", [0.0, 0.01, 0.1, 0.35, 0.8, 1.0, 1.3])
@pytest.mark.parametrize(
    "growth",
    [*map(constant, (0.95, 1.0, 1.1, 1.5, 3.0, 20.0)), constant(1.2, 7), {g: 0.9 + g / 5 for g in (2, 4, 8)}, {1: 2.5}],
)
def test_the_least_alpha_is_where_the_best_draft_length_begins_to_gain(c, growth, one_pass) -> None:
    """On a grid of rates none of the draft lengths gains below the least alpha, and one does above it."""
    grid = [step / 2000 for step in range(2001)]
    gaining = [a for a in grid if max(expected_speedup(a, g, c, v, one_pass) for g, v in growth.items()) > 1]
    found = least_alpha(c, growth, one_pass)
    if not gaining:
        assert found is None or found > 0.999
    else:
        assert found == pytest.approx(gaining[0], abs=1 / 2000)


@pytest.mark.parametrize("c", [0.02, 0.3, 0.99])
def test_in_the_papers_a_draft_pays_where_alpha_exceeds_the_cost_coefficient(c: float) -> None:
    """Corollary 3.9 of Leviathan et al.: a draft pays where alpha > c, if a check costs as much as one token."""
    assert least_alpha(c, constant(1.0)) == pytest.approx(c)


@pytest.mark.parametrize("c", [0.1, 0.6, 1.7])
def test_a_block_drafter_is_paid_once_at_every_length(c: float) -> None:
    """A round costs c + v, so at one guess both kinds cost the same, and a longer draft costs no more to make."""
    for gamma in GAMMAS:
        gain = expected_speedup(0.8, gamma, c, 1.4, one_pass=True)
        assert gain == pytest.approx(expected_tokens(0.8, gamma) / (c + 1.4))
        assert gain > expected_speedup(0.8, gamma, c, 1.4) or gamma == 1
    assert expected_speedup(0.8, 0, c, 1.0, one_pass=True) == 1, "no guess, no pass"
    assert least_alpha(c, constant(1.0), one_pass=True) < min(c, 1), "it pays at a lower acceptance"
