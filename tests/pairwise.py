"""Choices that are independent of each other need not be tried in every combination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from allpairspy import AllPairs
from comparison import FULL


def pairwise(**choices: Sequence[Any]) -> Any:
    """A mark that runs a test with as few cases as show every pair of choices; with ``--full`` with all combinations.

    A fault that shows only where three choices meet is left to ``--full``, and to the enumerations.
    """
    return _every(choices) if FULL else _some(choices, [tuple(case) for case in AllPairs(list(choices.values()))])


def few(values: Sequence[Any], count: int) -> Sequence[Any]:
    """The first ``count`` of the values; with ``--full`` all of them."""
    return values if FULL else list(values)[:count]


def each_once(**choices: Sequence[Any]) -> Any:
    """The same for tests that take long: each choice is tried at least once."""
    longest = max(map(len, choices.values()))
    cases = [tuple(each[at % len(each)] for each in choices.values()) for at in range(longest)]
    return _every(choices) if FULL else _some(choices, cases)


def _some(choices: dict[str, Sequence[Any]], cases: list[tuple[Any, ...]]) -> Any:
    return pytest.mark.parametrize(list(choices), cases)


def _every(choices: dict[str, Sequence[Any]]) -> Any:
    def mark(test: Any) -> Any:
        for name, each in choices.items():
            test = pytest.mark.parametrize(name, each)(test)
        return test

    return mark
