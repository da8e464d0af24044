"""Writes a measurement or a race to the files of ``--export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from specdec.cli.terminal import warn
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.format import About
from specdec.measure.results.text import ResultsText
from specdec.report.benchmark import EXPORTS, benchmark_json
from specdec.report.race_export import RACE_EXPORTS, FinishedRace


def export_trials(
    paths: Sequence[Path],
    about: About,
    plan: Plan,
    trials: Sequence[Trial],
    limit: dict[str, Any] | None,
    results: ResultsText | None = None,
) -> bool:
    """Write a measurement's files. ``results`` writes those that end in .jsonl. False if one failed."""
    exports = {suffix: partial(export, about, plan, trials) for suffix, export in EXPORTS.items()}
    exports[".json"] = partial(benchmark_json, about, plan, trials, limit)
    if results is not None:
        exports[".jsonl"] = partial(results.write, trials)
    return write_exports(paths, exports)


def export_race(paths: Sequence[Path], race: FinishedRace) -> bool:
    """Write the files of a race. False if one failed."""
    return write_exports(paths, {suffix: partial(export, race) for suffix, export in RACE_EXPORTS.items()})


def write_exports(paths: Sequence[Path], exports: Mapping[str, Callable[[], str]]) -> bool:
    """Write the exports, before anything is printed: nobody may read the output to its end. False if one failed."""
    problems = []
    for path in paths:
        try:
            # A name may hold bytes that are no text; they are written as escapes.
            path.write_text(exports[path.suffix](), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            problems.append(f"specdec: {path} cannot be written ({error.strerror}); it is left out.")
    for problem in problems:  # after the last file, because the standard error may be closed too
        warn(problem)
    return not problems
