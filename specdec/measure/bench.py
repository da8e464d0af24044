"""Measures a pair over a prompt set, in one process or in several.

It runs prompts x lanes x draft lengths x runs, interleaved (``specdec.measure.trials``). A lane's figure in a run is
its decode tokens / its decode seconds (after the first token), all prompts together. Its speed-up is that figure / the
figure of plain ``generate`` in the same run. An interrupted measurement can be continued. Under ``accelerate launch``
each process takes its share of the prompts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from accelerate import PartialState
from accelerate.utils import gather_object
from rich.progress import Progress

from specdec.errors import SpecdecError
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.file import ResultsFile
from specdec.measure.trials import trials
from specdec.models.pair import Pair


def run_plan_distributed(pair: Pair, plan: Plan, path: Path | None) -> list[Trial]:
    """Run the trials of a plan that ``path`` does not hold. Each process of a launch runs its share of the prompts.

    Every process returns all trials. ``path`` is on the main process's machine; the other processes write files beside
    it. An error of one process is raised in all of them, so that none waits for a process that has ended.
    """
    state = PartialState()
    main = state.is_main_process
    file = ResultsFile(path, pair, plan, state.process_index) if path else None
    known: list[Trial] = []
    with _together():
        known = file.read() if file else []
    known = _all(known)
    done = {trial.key for trial in known}
    with state.split_between_processes([item.name for item in plan.prompts]) as names:
        mine = set(names)
    left = sum(item.name in mine and (run, item.name, *config) not in done for run, item, config in plan.steps())
    with _together():
        steps = trials(pair, plan, done, mine)  # before a file is written: it refuses what cannot run
    if file:
        # In this order every trial stays in some file, whenever the process is killed.
        for turn in (main, not main):
            with _together():
                if turn:
                    file.begin(known)
    found: list[Trial] = []
    with Progress(*Progress.get_default_columns(), transient=True, disable=not main) as bar:
        task = bar.add_task("Measuring", total=left)
        for trial in filter(None, steps):
            found.append(trial)
            bar.advance(task)
            if file:
                file.add(trial)
    every = _all([*known, *found] if main else found)
    if file:
        if main:
            file.merge(every)
        state.wait_for_everyone()
        file.clear()
    return every


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Raise an error of one process in all processes."""
    problem = None
    try:
        yield
    except SpecdecError as error:
        problem = error
    if problems := [found for found in gather_object([problem]) if found]:
        raise problems[0]


def _all(found: list[Trial]) -> list[Trial]:
    """The trials of all processes, each once."""
    return list({trial.key: trial for trial in gather_object(found)}.values())
