"""Findings as HTML in the page's own style. Every text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def verdict(sentence: str, factor: str | None = None, notes: Iterable[str] = ()) -> str:
    """The sentence that is seen first, its figure beside it, and what there is to say about it."""
    big = f'<div class="sd-factor" aria-hidden="true">{html.escape(factor)}</div>' if factor else ""
    said = "".join(f"<p>{html.escape(note)}</p>" for note in notes if note)
    words = f'<p class="sd-headline">{html.escape(sentence)}</p><div class="sd-paragraph">{said}</div>'
    return f'<section class="sd-verdict">{big}<div>{words}</div></section>'


def status(text: str, done: float | None = None) -> str:
    """What is going on, with a bar where it is known how much of it is done."""
    bar = "" if done is None else f'<progress max="1" value="{done:.3f}"></progress>'
    return f'<p class="sd-status" role="status">{html.escape(text)}</p>{bar}' if text else ""


def error(message: str) -> str:
    return f'<p class="sd-error" role="alert">{html.escape(message)}</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str, marked: int | None = None) -> str:
    """A table whose rows stack on a phone; ``marked`` is the row that stands out."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr class="marked">{_cells(columns, row)}</tr>' if place == marked else f"<tr>{_cells(columns, row)}</tr>"
        for place, row in enumerate(rows)
    )
    text = html.escape(caption)
    return (
        f'<table class="sd-table"><caption>{text}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def facts(found: Iterable[dict[str, str]]) -> str:
    """Figures with their names and definitions."""
    parts = (
        f"<div><dt>{html.escape(fact['label'])}</dt><dd>{html.escape(fact['value'])}</dd>"
        f'<dd class="sd-hint">{html.escape(fact["definition"])}</dd></div>'
        for fact in found
    )
    return f'<dl class="sd-facts">{"".join(parts)}</dl>'


def _cells(columns: Sequence[str], row: Sequence[str]) -> str:
    first, *rest = row
    cells = (
        f'<td data-label="{html.escape(name)}">{html.escape(text)}</td>'
        for name, text in zip(columns[1:], rest, strict=True)
    )
    return f'<th scope="row">{html.escape(first)}</th>' + "".join(cells)
