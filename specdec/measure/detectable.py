"""Says which difference a chi-square test can see: the smallest one that it finds in at least 9 of 10 tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import torch

LEVEL = 0.001  # how often a test finds a difference where there is none
POWER = 0.9  # how often it finds one that is as large as the stated one
LEAST_EXPECTED = 10  # draws in a class of ``fit``, for the chi-square distribution to be valid

Draw = tuple[list[float], int]  # the chance of each class, and the class that was drawn


class Fit(NamedTuple):
    """How well draws fit their chances, and the smallest mean shift of the chances, in total variation, that is found.

    ``detectable`` is None where none is found.
    """

    p_value: float
    detectable: float | None


def chi_square_tail(statistic: float, degrees: int, noncentrality: float = 0.0) -> float:
    """The chance that a chi-square variable is above ``statistic``; with ``noncentrality`` a noncentral one."""
    half = noncentrality / 2
    terms = torch.arange(math.ceil(half + 12 * math.sqrt(half) + 1 if half else 1), dtype=torch.float64)
    # A noncentral chi-square variable has 2 N more degrees of freedom, where N is a Poisson variable of mean ``half``.
    weights = (terms * math.log(half) - half - torch.lgamma(terms + 1)).exp() if half else torch.ones_like(terms)
    tails = torch.special.gammaincc(degrees / 2 + terms, torch.full_like(terms, statistic / 2))
    return float((weights * tails).sum())


@lru_cache
def needed(degrees: int, level: float = LEVEL) -> float:
    """The noncentrality at which a chi-square test at ``level`` finds a difference with the chance ``POWER``."""
    critical = _root(lambda value: level - chi_square_tail(value, degrees))
    return _root(lambda value: chi_square_tail(critical, degrees, value) - POWER)


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of a positive number is 0."""
    low, high = 0.0, 1.0
    while rising(high) < 0:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return high


def between_samples(first: int, second: int, cells: int) -> float | None:
    """The smallest total variation between two distributions over ``cells`` that a test of homogeneity would find.

    It holds for every difference of that size, however it is spread over the cells: with shares p and q and their mean
    m, the noncentrality is first * second / (first + second) times the sum of (p - q)^2 / m, and by Cauchy and Schwarz
    that sum is at least 4 times the total variation squared. None where not even 1 would be found.
    """
    if cells < 2:
        return None
    found = math.sqrt(needed(cells - 1) * (first + second) / (4 * first * second))
    return found if found <= 1 else None


def fit(draws: Sequence[Draw], level: float) -> Fit:
    """Test whether each of ``draws``, given those before it, has the chances that it states.

    Classes that are seldom expected are joined with the one before.
    """
    if not draws:
        return Fit(1.0, None)
    chances = torch.tensor([row for row, _ in draws], dtype=torch.float64)
    drawn = torch.tensor([number for _, number in draws])
    while len(chances.T) > 1 and chances[:, -1].sum() < LEAST_EXPECTED:
        last = len(chances.T) - 2
        chances = torch.cat([chances[:, :last], chances[:, last:].sum(1, keepdim=True)], 1)
        drawn = drawn.clamp(max=last)
    expected = chances.sum(0)
    classes = len(expected)
    if classes < 2 or expected[0] < LEAST_EXPECTED:
        return Fit(1.0, None)
    covariance = expected.diag() - chances.T @ chances
    off = (drawn.bincount(minlength=classes) - expected)[:-1]
    p_value = chi_square_tail(float(off @ torch.linalg.solve(covariance[:-1, :-1], off)), classes - 1)
    # If the chances of a set of classes rise by this total variation, on average over n draws, the noncentrality is at
    # least (n * total variation)^2 / the variance of the number of draws in the set.
    sets = torch.tensor(list(product((0.0, 1.0), repeat=classes)), dtype=torch.float64)
    largest = float((sets @ covariance * sets).sum(1).max())
    shift = math.sqrt(needed(classes - 1, level) * largest) / len(draws)
    return Fit(p_value, shift if shift <= 1 else None)
