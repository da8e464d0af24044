"""Measured against estimated costs: what is learned within a short text."""

from __future__ import annotations

import pytest

from specdec.engine.fits import Line
from specdec.engine.round_times import PartTimes


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


def test_a_size_that_was_measured_often_has_a_time_of_its_own() -> None:
    """Rows are computed in groups of four, so the line alone is off."""
    times, seconds = PartTimes(), {1: 1.0, 2: 1.0, 4: 1.0, 5: 2.0, 8: 2.0}
    assert not times.known
    for _ in range(40):
        for rows, taken in seconds.items():
            times.add(rows, 1 + 0.1 * rows, taken)
    every = times.every([1 + 0.1 * rows for rows in range(17)])
    for rows, taken in seconds.items():
        assert times.at(rows, 1 + 0.1 * rows) == every[rows] == pytest.approx(taken, rel=0.07)
    assert 2.0 < every[12] < 4.0, "a size that was never measured lies on the line"


def test_a_stalled_round_counts_for_at_most_twice_what_is_known() -> None:
    times = PartTimes()
    for _ in range(20):
        times.add(4, 1.3, 1.0)
    times.add(4, 1.3, 500.0)
    assert times.at(4, 1.3) < 1.2
