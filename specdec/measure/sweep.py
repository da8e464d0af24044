"""Which draft length pays best on this machine: the entrants of a sweep and its rows.

Plain ``generate``, our loop at gamma 0 to 16 and "auto", interleaved (``specdec.measure.trials``) on one prompt or
several; the closed form from the measured alpha, c and v stands beside what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specdec.events import MAX_GAMMA
from specdec.lanes.table import LOOP, Entrant, entrants_of
from specdec.measure.summary import Summary
from specdec.measure.terms import Terms, terms_of

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
    lanes = [s for s in summaries if s.gains and s.lane == LOOP.lane]
    return [Row(s.gamma, s, terms_of(summaries, s)) for s in lanes]


def prediction_error(rows: Sequence[Row]) -> float | None:
    """Median over gamma 1 to 8 of |predicted / measured - 1|, both gains over our loop at gamma 0."""
    found = [row.terms for row in rows if row.terms and row.gamma in CHECKED and row.terms.predicted]
    return median(abs(t.predicted / t.measured - 1) for t in found) if found else None
