"""The example of the names that other tools have for the same figures."""

from __future__ import annotations

import pytest

from specdec.report.other_names import NAMES, TOOLS, example, other_names


def test_the_figures_of_the_example_are_those_of_the_definitions() -> None:
    """Of five rounds with five guesses each 5, 2, 0, 5 and 3 are kept: three rounds have a rejected guess."""
    found = example()
    assert (found.drafted, found.accepted, found.rejected, found.discarded) == (25, 15, 3, 7)
    assert found.alpha == pytest.approx(15 / 18) and found.draft_acceptance_rate == pytest.approx(15 / 25)
    assert found.mean_acceptance_length == pytest.approx(1 + 15 / 5)
    assert found.kept_at == (4, 4, 3, 2, 2) and found.tested_at == (5, 4, 4, 3, 2)
    assert found.passes_of[1:] == (1, 0, 1, 1, 0, 2)


def test_every_figure_has_a_name_or_none_in_each_tool() -> None:
    assert all(len(others) == len(TOOLS) for _, _, others in NAMES)
    assert "| tested guesses kept | 15 / 18 = 83 % |" in other_names()
