"""Measure every draft length on this machine: ``specdec sweep``. Ctrl-C stops and shows what was measured."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from specdec.cli.arguments import leave_a_core, pair_of
from specdec.cli.exports import export_trials
from specdec.cli.output import Output, console_of, prompt_of, require_one_source
from specdec.cli.parsers.shared import measured_params_of
from specdec.cli.terminal import OPTIONS, refused, warn
from specdec.errors import SpecdecError
from specdec.events import longest_draft
from specdec.facts import takes_one_pass
from specdec.lanes.table import BASELINE, LOOP, lane_configs
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import PromptItem, read_prompts
from specdec.measure.results.file import ResultsFile, measured_on
from specdec.measure.roofline import limit_of, limit_record
from specdec.measure.summary import summarise
from specdec.measure.sweep import CONFIGS, within
from specdec.measure.trials import trials
from specdec.models.pair import Pair, silence_libraries
from specdec.report import provenance
from specdec.report.benchmark import benchmark_json, shares_of_limit, show_limit, terminal_table
from specdec.report.sweep import block_note, marked, overall, sweep_rows, sweep_table, theory_note

NAMES = OPTIONS | {"gamma": "--gammas"}


def main(arguments: Namespace) -> None:
    silence_libraries()
    leave_a_core()
    console = console_of(piped=120)
    found: list[Trial] = []
    problem: SpecdecError | None = None
    stopped = False
    try:
        plan = _asked(arguments)  # refuses bad settings before the pair is loaded
        pair = pair_of(arguments)
        plan = plan if arguments.gammas else within(plan, longest_draft(pair.facts()))
        file = ResultsFile(arguments.results, pair, plan) if arguments.results else None
        known = file.read() if file else []
        steps = trials(pair, plan, {trial.key for trial in known})  # refuses what cannot run
        limit = limit_of(pair)
        if file:
            file.begin(known)
        found += known
        stopped = not _measure(console, plan, steps, file, found, arguments.json, takes_one_pass(pair.facts()))
    except SpecdecError as error:
        if not found:
            raise refused(error, NAMES) from error
        problem = error  # what was measured before it is shown
    about, record = measured_on(pair), limit_record(limit, pair, plan, found)
    written = not found or export_trials(arguments.export, about, plan, found, record)
    if arguments.json:
        sys.stdout.write(benchmark_json(about, plan, found, record))
    else:
        _report(console, pair, plan, found, record)
    if problem:
        raise refused(problem, NAMES) from problem
    if stopped:
        warn(_stopped(arguments.results, len(found), len(plan)))
        raise SystemExit(130)
    if not written:
        raise SystemExit(1)


def _stopped(results: Path | None, calls: int, planned: int) -> str:
    kept = f" They are kept in {results}; the same command continues from there." if results else ""
    return f"Stopped: {calls} of {planned} calls are measured.{kept}"


def _asked(arguments: Namespace) -> Plan:
    require_one_source(arguments.prompt, arguments.prompts)
    items = [PromptItem(str(i), "given", prompt_of(text)) for i, text in enumerate(arguments.prompt, start=1)]
    params = measured_params_of(arguments)
    configs = CONFIGS
    if arguments.gammas:
        configs = lane_configs((BASELINE.lane, LOOP.lane), tuple(dict.fromkeys((0, *arguments.gammas))))
    return Plan(tuple(items or read_prompts(arguments.prompts)), configs, params, arguments.runs)


def _measure(
    console: Output,
    plan: Plan,
    steps: Iterable[Trial | None],
    file: ResultsFile | None,
    found: list[Trial],
    silent: bool,
    one_pass: bool,
) -> bool:
    """Add the trials to ``found`` and to the file; the table grows meanwhile, unless ``silent``. False after Ctrl-C."""
    bar = Progress(TextColumn("Measuring"), BarColumn(), TimeRemainingColumn())
    task = bar.add_task("", total=len(plan), completed=len(found))
    shown = contextlib.nullcontext() if silent else Live(bar, console=console, transient=True)
    with shown as live, contextlib.suppress(KeyboardInterrupt):
        for trial in filter(None, steps):
            found.append(trial)
            if file:
                file.add(trial)
            bar.advance(task)
            if live:
                live.update(Group(_table(found, plan, one_pass), bar))
        return True
    return False


def _table(found: Sequence[Trial], plan: Plan, one_pass: bool) -> RenderableType:
    rows = sweep_rows(summarise(found), one_pass)
    return terminal_table(sweep_table(rows, marked(rows, found, plan)))


def _report(console: Output, pair: Pair, plan: Plan, found: list[Trial], limit: dict[str, Any]) -> None:
    facts = pair.describe()
    console.print(f"Pair: {provenance.pair_line(facts)}")
    count = len(plan.prompts)
    console.print(f"{count} prompt{'s' * (count != 1)}, {plan.params.max_new_tokens} tokens each.")
    one_pass = takes_one_pass(facts)
    console.print(_table(found, plan, one_pass))
    result = overall(found, plan, shares_of_limit(limit), one_pass)
    more = [block_note(facts), theory_note(sweep_rows(summarise(found), one_pass))]
    console.print(" ".join(filter(None, [result.headline, *(note.text for note in result.notes), *more])))
    if found:
        show_limit(console, limit)
