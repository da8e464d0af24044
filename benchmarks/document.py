"""Writes sections of a document. Each is between two marks, and the rest of the document stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PERFORMANCE = ROOT / "docs" / "performance.md"


def marks(name: str) -> tuple[str, str]:
    """The lines around the section that ``python -m benchmarks.NAME`` writes; NAME is ``name`` up to a colon."""
    return f"<!-- {name}: written by python -m benchmarks.{name.partition(':')[0]} -->", f"<!-- /{name} -->"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; all columns but the first ``left`` are aligned to the right."""
    marks = ["---"] * left + ["---:"] * (len(columns) - left)
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, marks, *rows))


def write(name: str, text: str, *paths: Path) -> None:
    """Print a section and write it into its documents; without ``paths`` into docs/performance.md."""
    print(text)
    for path in paths or (PERFORMANCE,):
        path.write_text(with_section(path.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def with_section(document: str, name: str, text: str) -> str:
    """The document with ``text`` in its section ``name``. Without the two marks, the section is added at the end."""
    begin, end = marks(name)
    block = f"{begin}\n{text.strip()}\n{end}"
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if begun and not ended:
        raise SystemExit(f"The document has the mark {begin} and not {end}. Add it where the section ends.")
    return f"{before}{block}{after}" if begun else f"{document.rstrip()}\n\n{block}\n"
