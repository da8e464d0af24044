"""Findings as HTML in the page's own style. Every text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence


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


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str,
    marked: int | None = None,
    minor: Collection[str] = (),
) -> str:
    """A table with its caption below; ``marked`` is the row that stands out, ``minor`` columns a phone leaves out."""

    def row(cells: Sequence[str], tag: str) -> str:
        parts = []
        for place, (name, text) in enumerate(zip(columns, cells, strict=True)):
            kind = f'th scope="{"row" if tag == "td" else "col"}"' if tag == "th" or not place else tag
            hidden = ' class="minor"' if name in minor else ""
            parts.append(f"<{kind}{hidden}>{html.escape(text)}</{kind.split()[0]}>")
        return "".join(parts)

    body = "".join(
        f'<tr class="marked">{row(cells, "td")}</tr>' if place == marked else f"<tr>{row(cells, 'td')}</tr>"
        for place, cells in enumerate(rows)
    )
    left_out = " Further columns show on a wider screen." if minor else ""
    said = html.escape(caption) + (f'<span class="sd-narrow">{left_out}</span>' if left_out else "")
    head = f"<thead><tr>{row(columns, 'th')}</tr></thead>"
    return f'<table class="sd-plainTable"><caption>{said}</caption>{head}<tbody>{body}</tbody></table>'


def facts(found: Iterable[dict[str, str]]) -> str:
    """Figures with their names and definitions."""
    parts = (
        f"<div><dt>{html.escape(fact['label'])}</dt><dd>{html.escape(fact['value'])}</dd>"
        f'<dd class="sd-hint">{html.escape(fact["definition"])}</dd></div>'
        for fact in found
    )
    return f'<dl class="sd-facts">{"".join(parts)}</dl>'
