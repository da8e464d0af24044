"""Measure every draft length on this machine: ``specdec sweep``. Ctrl-C stops and keeps what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from specdec.cli.arguments import (
    SETS,
    Parser,
    add_pair_arguments,
    console_of,
    draft_length,
    leave_a_core,
    pair_of,
    prompt_of,
)  # fmt: skip
from specdec.cli.terminal import refused
from specdec.errors import SpecdecError
from specdec.events import SamplingParams
from specdec.lanes.table import BASELINE, LOOP, entrants_of
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.measure.roofline import limit_of, limit_record
from specdec.measure.sweep import ENTRANTS, NEW_TOKENS, RUNS
from specdec.measure.trials import trials
from specdec.models.pair import silence_libraries
from specdec.report import provenance
from specdec.report.limit import shares_of_limit, show_limit
from specdec.report.sweep import sweep_table, theory_note
from specdec.report.sweep_verdict import overall


def main(argv: Sequence[str]) -> None:
    parser = Parser(prog="specdec sweep", description=__doc__)
    add_pair_arguments(parser)
    parser.add_argument("prompt", nargs="*", help="default: the example prompts; - reads one from the standard input")
    parser.add_argument(
        "--gammas", type=draft_length, nargs="+", help="draft lengths, beside 0; default: 0 to 16 and auto"
    )
    parser.add_argument("--prompts", type=Path, default=EXAMPLES, help=SETS)
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"calls of each draft length and prompt (default {RUNS})"
    )
    parser.add_argument(
        "--tokens", type=int, default=NEW_TOKENS, help=f"new tokens of each call (default {NEW_TOKENS})"
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    arguments = parser.parse_args(argv)
    silence_libraries()
    leave_a_core()
    console = console_of(piped=120)
    found: list[Trial] = []
    problem: SpecdecError | None = None
    try:
        items = [PromptItem(str(i), "given", prompt_of(text)) for i, text in enumerate(arguments.prompt, start=1)]
        params = SamplingParams(arguments.tokens, arguments.temperature, seed=0, ignore_eos=True)
        entrants = ENTRANTS
        if arguments.gammas:
            entrants = entrants_of((BASELINE.lane, LOOP.lane), tuple(dict.fromkeys((0, *arguments.gammas))))
        plan = Plan(tuple(items or read_prompts(arguments.prompts)), entrants, params, arguments.runs)
        pair = pair_of(arguments)
        steps, limit = trials(pair, plan), limit_of(pair)
        bar = Progress(TextColumn("Measuring"), BarColumn(), TimeRemainingColumn())
        task = bar.add_task("", total=len(plan))
        with Live(bar, console=console, transient=True) as live, contextlib.suppress(KeyboardInterrupt):
            for trial in filter(None, steps):
                found.append(trial)
                bar.advance(task)
                live.update(Group(sweep_table(found, plan), bar))
    except SpecdecError as error:
        if not found:
            raise refused(error) from error
        problem = error  # what was measured before it is shown
    console.print(f"Pair: {provenance.pair_line(pair.facts())}")
    count = len(plan.prompts)
    console.print(f"{count} prompt{'s' * (count != 1)}, {arguments.tokens} tokens each.")
    console.print(sweep_table(found, plan))
    record = limit_record(limit, pair, plan, found)
    result = overall(found, plan, of_limit=shares_of_limit(record))
    console.print(" ".join(filter(None, [result.headline, *result.notes, theory_note(found)])))
    if found:
        show_limit(console, record)
    if problem:
        raise refused(problem) from problem
