"""The one table that all parts print."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass
class Report:
    """Rows of the table: what was done, what was asked for, and what was measured."""

    rows: list[tuple[str, str, str, str, bool]] = field(default_factory=list)
    part: str = ""

    def note(self, done: str, asked: str, measured: str, ok: bool) -> None:
        self.rows.append((self.part, done, asked, measured, ok))
        print(f"  {'ok    ' if ok else 'FAILED'} {done}: {asked}; {measured}", flush=True)

    @contextmanager
    def named(self, part: str) -> Iterator[None]:
        """A failing part becomes a row of the table, and the other parts still run."""
        self.part, began = part, time.monotonic()
        print(f"{part}:", flush=True)
        try:
            yield
        except Exception as error:
            import traceback

            traceback.print_exc()
            self.note("the part itself", "runs to its end", f"{type(error).__name__}: {error}"[:300], False)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)

    def show(self) -> None:
        table = Table(show_lines=True)
        for column in ("part", "done", "asked", "measured", ""):
            table.add_column(column, overflow="fold")
        for part, done, asked, measured, ok in self.rows:
            table.add_row(part, done, asked, measured, "ok" if ok else "FAILED")
        Console(width=160, highlight=False, markup=False).print(table)

    @property
    def whole(self) -> bool:
        return all(row[-1] for row in self.rows)


Part = Callable[[Report], None]
