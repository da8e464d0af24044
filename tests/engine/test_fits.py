"""The line from estimated to measured costs learns within a short text."""

from __future__ import annotations

import pytest

from specdec.engine.fits import Line


def test_a_wrong_slope_of_the_estimates_is_found_in_twenty_rounds() -> None:
    """Each guess is estimated three times too expensive, and the fixed part of a draft is missing."""
    line = Line()
    for guesses in [3, 4, 5, 4] * 5:
        line.add(0.112 * guesses, 0.13 + 0.034 * guesses)
    for guesses in (1, 8, 16):  # lengths that were never measured
        assert line.at(0.112 * guesses) == pytest.approx(0.13 + 0.034 * guesses, rel=0.06)


def test_before_two_samples_costs_are_proportional_and_never_fall() -> None:
    line = Line()
    assert line.at(1.0) == 0
    line.add(2.0, 0.5)
    assert line.at(4.0) == pytest.approx(1.0)
    for estimated, measured in ((1.0, 0.5), (3.0, 0.3)):
        for _ in range(20):
            line.add(estimated, measured)
    assert line.at(16.0) >= line.at(1.0) > 0
