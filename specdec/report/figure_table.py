"""A table of figures as data, and as Markdown. ``ui.html`` shows it on the page, ``report.benchmark`` in a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Columns and rows of words and of figures with their units, ready to be read.

    caption  what is counted, and how a figure of several runs is chosen; without a final full stop
    figures  the numbers of the columns with figures, which are set to the right
    marked   the number of the row to point out; None for no row
    minor    the columns that a narrow screen leaves out
    of_minor what more there is to say of them, as ``caption``
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: range
    marked: int | None = None
    minor: Collection[str] = ()
    of_minor: str = ""

    def part(self, rows: Sequence[int], columns: slice) -> FigureTable:
        """The rows with these numbers, and some of the columns."""
        left_out = columns.start or 0
        return replace(
            self,
            columns=self.columns[columns],
            rows=[self.rows[at][columns] for at in rows],
            figures=range(max(0, self.figures.start - left_out), self.figures.stop - left_out),
            marked=rows.index(self.marked) if self.marked in rows else None,
        )


def markdown_table(table: FigureTable) -> str:
    """The table in Markdown, without its caption."""
    rules = ["---:" if place in table.figures else "---" for place in range(len(table.columns))]
    lines = (table.columns, rules, *table.rows)
    cells = ((" ".join(text.split("\n")).replace("|", "\\|") for text in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def csv_table(found: Sequence[dict[str, Any]]) -> str:
    """One or more rows of plain values with the same columns as CSV."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fieldnames=list(found[0]))  # with its own line ends it quotes every kind of them
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue().replace("\r\n", "\n")
