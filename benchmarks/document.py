"""Sections of a document that a command writes: each stands between two marks, and the rest is left alone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PERFORMANCE = ROOT / "docs" / "performance.md"


def marks(name: str) -> tuple[str, str]:
    """The lines around the section that ``python -m benchmarks.NAME`` writes."""
    return f"<!-- {name}: written by python -m benchmarks.{name} -->", f"<!-- /{name} -->"


def with_section(document: str, name: str, text: str) -> str:
    """The document with ``text`` in its section ``name``; a document without the two marks gets them at its end."""
    begin, end = marks(name)
    block = f"{begin}\n{text.strip()}\n{end}"
    before, begun, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if begun and not ended:
        raise SystemExit(f"The document has the mark {begin} and not {end}. Add it where the section ends.")
    return f"{before}{block}{after}" if begun else f"{document.rstrip()}\n\n{block}\n"
