"""The table of a sweep over draft lengths, and its closing sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specdec.measure.summary import Summary, best_gamma
from specdec.measure.sweep import Row, prediction_error, sweep_rows
from specdec.report import words
from specdec.report.why import reasons

COLUMNS = ("\u03b3", "speed-up", "acceptance", "tokens a pass", "gain over \u03b3 0", "predicted", "c", "v")


def cells(row: Row, best: Summary | None) -> list[str]:
    """A row as a person reads it, under ``COLUMNS``."""
    found, m = row.terms, row.summary.metrics
    mark = " \u2190 best" if best is not None and row.summary.entrant == best.entrant else ""
    return [
        f"{row.gamma}{mark}",
        words.times(row.summary.gains),
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
