"""Which draft length pays best on this machine: ``python -m specdec.measure.sweep``.

Plain ``generate``, our loop at gamma 0 to 16 and "auto", interleaved (``specdec.measure.trials``) on one prompt or
several; the closed form from the measured alpha, c and v stands beside what was measured. Ctrl-C keeps what is there.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from specdec.cli.arguments import add_pair_arguments, console_of, leave_a_core, pair_of
from specdec.errors import SpecdecError
from specdec.events import MAX_GAMMA, SamplingParams
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.measure.summary import LOOP, Summary, best_gamma, summarise
from specdec.measure.trials import Entrant, Plan, Trial, entrants_of, trials
from specdec.models.pair import quiet
from specdec.report import words
from specdec.report.why import Terms, headline, reasons, terms_of

ENTRANTS: tuple[Entrant, ...] = entrants_of(("generate", "speculative"), (*range(MAX_GAMMA + 1), "auto"))
CHECKED = range(1, 9)  # the draft lengths over which the closed form is judged
NEW_TOKENS, RUNS = 64, 3


@dataclass(frozen=True)
class Row:
    """One draft length: its summary, and its terms where a draft was checked against our loop at gamma 0."""

    gamma: int | str
    summary: Summary
    terms: Terms | None

    @property
    def predicted(self) -> float | None:
        """Speed-up over plain ``generate`` by the closed form: its gain over our loop times the loop's own."""
        if self.gamma == 0:
            return None
        return self.terms.predicted * self.terms.engine if self.terms and self.terms.predicted else None


def sweep_rows(summaries: Sequence[Summary]) -> list[Row]:
    """A row a draft length that has been measured, 0 to 16 and then "auto"."""
    lanes = [s for s in summaries if s.gains and (s.entrant == LOOP or s.lane == "speculative")]
    return [Row(0 if s.entrant == LOOP else s.gamma, s, terms_of(summaries, s)) for s in lanes]


def prediction_error(rows: Sequence[Row]) -> float | None:
    """Median over gamma 1 to 8 of |predicted / measured - 1|, both gains over our loop at gamma 0."""
    found = [row.terms for row in rows if row.terms and row.gamma in CHECKED and row.terms.predicted]
    return median(abs(t.predicted / t.measured - 1) for t in found) if found else None


COLUMNS = ("\u03b3", "speed-up", "acceptance", "tokens a pass", "gain over \u03b3 0", "predicted", "c", "v")


def cells(row: Row, best: Summary | None) -> list[str]:
    """A row as a person reads it, under ``COLUMNS``."""
    found, m = row.terms, row.summary.metrics
    mark = " \u2190 best" if best is not None and row.summary.entrant == best.entrant else ""
    return [
        f"{row.gamma}{mark}",
        row.summary.spread,
        "" if m.alpha is None else words.percent(m.alpha),
        words.number(m.mean_acceptance_length, 2),
        f"{found.measured:.2f}x" if found else "",
        f"{found.predicted:.2f}x" if found and found.predicted else "",
        f"{found.cost:.2f}" if found else "",
        f"{found.growth:.2f}" if found else "",
    ]


def table(summaries: Sequence[Summary]) -> Table:
    out = Table(title="Draft lengths; medians over the runs (lowest\u2013highest), speed-up over plain generate")
    for column in COLUMNS:
        out.add_column(column, justify="right")
    best = best_gamma(summaries)
    for row in sweep_rows(summaries):
        out.add_row(*cells(row, best))
    return out


def closing(summaries: Sequence[Summary]) -> str:
    """Why, and how far the closed form is off."""
    error = prediction_error(sweep_rows(summaries))
    if error is None:
        return reasons(summaries)
    judged = f"Over \u03b3 1 to 8 the closed form is off by {words.percent(error)} in the median."
    return f"{reasons(summaries)} {judged}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdec.measure.sweep", description=__doc__.split("\n\n")[0])
    add_pair_arguments(parser)
    parser.add_argument("prompt", nargs="*", help="default: the example prompts")
    parser.add_argument(
        "--prompts", type=Path, default=EXAMPLES, help="JSON lines with prompts, instead of the examples"
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    quiet()
    leave_a_core()
    console = console_of(piped=120)
    found: list[Trial] = []
    try:
        items = [PromptItem(str(i), "given", text) for i, text in enumerate(arguments.prompt, start=1)]
        pair = pair_of(arguments)
        params = SamplingParams(arguments.tokens, arguments.temperature, seed=0, ignore_eos=True)
        plan = Plan(tuple(items or read_prompts(arguments.prompts)), ENTRANTS, params, arguments.runs)
        steps = trials(pair, plan)
        bar = Progress(TextColumn("Measuring"), BarColumn(), TimeRemainingColumn())
        task = bar.add_task("", total=len(plan))
        with Live(bar, console=console, transient=True) as live, contextlib.suppress(KeyboardInterrupt):
            for trial in filter(None, steps):
                found.append(trial)
                bar.advance(task)
                live.update(Group(table(summarise(found)), bar))
    except SpecdecError as error:
        raise SystemExit(f"specdec: {error}") from error
    console.print(f"Pair: {words.pair_line(pair.describe())}")
    console.print(f"{len(plan.prompts)} prompts, {arguments.tokens} tokens each, {len(found)} of {len(plan)} calls.")
    summaries = summarise(found)
    console.print(table(summaries))
    console.print(f"{headline(summaries)} {closing(summaries)}")


if __name__ == "__main__":
    main()
