"""Run the trials of a plan so that they can be kept: first it is known what they are of, then come the trials."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from specdec.measure.plan import Plan, Trial
from specdec.measure.results_file import ResultsText
from specdec.measure.trials import trials
from specdec.models.pair import Pair


class Begun(NamedTuple):
    """What is known on the device before the first call: what writes the results, and the trials that are made."""

    lines: ResultsText
    found: list[Trial]


def kept_trials(
    pair: Pair, plan: Plan, before: tuple[str, str] | None = None
) -> Generator[Begun | Trial | None, None, None]:
    """Yield a ``Begun``, then the trials of the plan that are not in ``before``: name and text of a file of results."""
    lines = ResultsText(pair, plan)
    name, text = before or ("", "")
    found = lines.read(text, name)
    yield Begun(lines, found)
    yield from trials(pair, plan, {trial.key for trial in found})
