"""Runs the trials of a plan so that they can be kept: first what they belong to, then the trials."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from specdec.measure.plan import Plan, Trial
from specdec.measure.results.file import results_of_pair
from specdec.measure.results.text import ResultsText
from specdec.measure.trials import trials
from specdec.models.pair import Pair


class Begun(NamedTuple):
    """What is known before the first call: the writer of the results, and the trials that exist already."""

    lines: ResultsText
    found: list[Trial]


def kept_trials(
    pair: Pair, plan: Plan, before: tuple[str, str] | None = None
) -> Generator[Begun | Trial | None, None, None]:
    """Yield a ``Begun``, then the plan's trials that ``before`` (name and text of a results file) does not have."""
    lines = results_of_pair(pair, plan)
    name, text = before or ("", "")
    found = lines.read(text, name)
    yield Begun(lines, found)
    yield from trials(pair, plan, {trial.key for trial in found})
