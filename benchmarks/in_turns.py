"""Measures calls in turns, so that a change of the machine's speed affects all of them alike."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from specdec.cli.arguments import leave_a_core
from specdec.events import SamplingParams
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import PromptItem
from specdec.measure.summary import Summary, find, summarise
from specdec.measure.trials import trials
from specdec.models.pair import Pair, silence_libraries
from specdec.report import numbers

COLUMNS = ("over plain generate", "from speculation", "c", "v", "kept")


def asked_runs(description: str | None) -> int:
    """The number of runs from the command line. From here on the passes leave a core to others."""
    runs: int = asked(description).runs
    return runs


def asked(description: str | None, *names: str) -> argparse.Namespace:
    """The same with further options, whose values are texts or None."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    for name in names:
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    leave_a_core()
    silence_libraries()
    return given


class Turn(NamedTuple):
    """A pair at some draft lengths, with its own sampling."""

    pair: Pair
    gammas: Sequence[int | str]
    params: SamplingParams = SamplingParams(128, temperature=0.0, seed=0, ignore_eos=True)


def in_turns(turns: Mapping[str, Turn], items: Sequence[PromptItem], runs: int) -> dict[tuple[str, int | str], Summary]:
    """The result of each turn at each of its draft lengths, by the turn's name and the length."""
    found: dict[str, list[Trial]] = defaultdict(list)
    for run in range(runs):
        for name, turn in turns.items():
            configs = (BASELINE, LOOP, *(LaneConfig("speculative", gamma) for gamma in turn.gammas))
            plan = Plan(tuple(items), configs, turn.params, runs=1)
            found[name] += [replace(trial, run=run) for trial in trials(turn.pair, plan) if trial]
    return {
        (name, gamma): find(summarise(found[name]), LaneConfig("speculative", gamma))
        for name, turn in turns.items()
        for gamma in turn.gammas
    }


def cells(lane: Summary) -> list[str]:
    """A row's cells under ``COLUMNS``: medians, gains with lowest and highest."""
    costs = [
        [cost for side in lane.sides if (cost := getattr(side, name)) is not None]
        for name in ("cost_coefficient", "verify_growth")
    ]
    return [
        numbers.times(lane.gains),
        numbers.times([side.speculation for side in lane.sides]),
        *(f"{median(values):.2f}" if values else "" for values in costs),
        numbers.percent(lane.figure("alpha")),
    ]
