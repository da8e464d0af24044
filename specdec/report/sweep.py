"""The table of a sweep: for each draft length what was measured and what the closed form predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specdec.lanes.table import LOOP
from specdec.measure.plan import Plan, Trial
from specdec.measure.summary import Summary, fastest, share_of, summarise
from specdec.report import numbers, sentences
from specdec.report.figure_table import FigureTable
from specdec.report.judge import Judgement, judge

COLUMNS = ("\u03b3", "speed-up", "acceptance", "tokens per pass", "gain over \u03b3 0", "predicted", "c", "v")
CAPTION = (
    "Speed-up is over plain generate, the median over the runs (lowest\u2013highest); the other figures are those of "
    "that run"
)
CHECKED = range(1, 9)  # the draft lengths for the error of the closed form


@dataclass(frozen=True)
class SweepRow:
    """One draft length: its summary and its judgement."""

    summary: Summary
    judgement: Judgement

    @property
    def gamma(self) -> int | str | None:
        return self.summary.gamma

    @property
    def predicted(self) -> float | None:
        """The predicted speed-up over plain ``generate``: the closed form's gain, times our loop's own gain."""
        found = self.judgement
        return found.predicted * found.engine if found.predicted and found.engine else None


def sweep_rows(summaries: Sequence[Summary]) -> list[SweepRow]:
    """A row for each measured draft length, 0 to 16 and then "auto"."""
    return [SweepRow(s, judge(s.sides, s.gamma)) for s in summaries if s.gains and s.lane == LOOP.lane]


def prediction_error(rows: Sequence[SweepRow]) -> float | None:
    """The median over gamma 1 to 8 of |predicted / measured - 1|. Both are gains over our loop at gamma 0."""
    found = [row.judgement for row in rows if row.gamma in CHECKED]
    errors = [abs(j.predicted / j.speculation - 1) for j in found if j.predicted and j.speculation]
    return median(errors) if errors else None


def marked(rows: Sequence[SweepRow], trials: Sequence[Trial], plan: Plan) -> int | None:
    """The row of our fastest lane, when every draft length has run on every prompt."""
    best = fastest([row.summary for row in rows])
    whole = best is not None and share_of(trials, plan).whole
    return next((at for at, row in enumerate(rows) if row.summary is best), None) if whole else None


def sweep_cells(row: SweepRow, mark: bool) -> list[str]:
    """The cells of a row, under ``COLUMNS``."""
    found = row.judgement
    figures = (found.speculation, found.predicted) if found.split else (None, None)
    return [
        f"{row.gamma} \u2190 fastest" if mark else str(row.gamma),
        numbers.times(row.summary.gains),
        "" if found.alpha is None else numbers.percent(found.alpha),
        numbers.number(found.tokens, 2),
        *("" if value is None else numbers.times_or_none(value) for value in figures),
        *("" if value is None or not found.split else numbers.number(value, 2) for value in (found.c, found.v)),
    ]


def sweep_table(rows: Sequence[SweepRow], best: int | None) -> FigureTable:
    """The rows for a person to read. ``best`` is the row to mark."""
    cells = [sweep_cells(row, at == best) for at, row in enumerate(rows)]
    return FigureTable(CAPTION, COLUMNS, cells, range(8), marked=best, minor=COLUMNS[4:])


def theory_note(trials: Sequence[Trial]) -> str:
    """A sentence on the error of the closed form; empty if it cannot be compared."""
    error = prediction_error(sweep_rows(summarise(trials)))
    return "" if error is None else sentences.FORM_OFF.format(error=numbers.percent(error))
