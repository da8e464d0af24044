"""The fields for what a text must obey: the kind of a grammar, and its text."""

from __future__ import annotations

import gradio as gr

from specdec.events import GRAMMAR_KINDS, GRAMMAR_NAMES, Grammar
from specdec.report.link_settings import grammar_in
from specdec.ui.fields import LABELS

_KINDS = [("nothing", ""), *((GRAMMAR_NAMES[kind], kind) for kind in GRAMMAR_KINDS)]


def grammar_fields(elem_id: str) -> tuple[gr.Radio, gr.Textbox]:
    """The fields of kind and text. That of the text shows where a kind is chosen (``page.css``)."""
    text = {"lines": 6, "max_lines": 12, "elem_id": f"{elem_id}-text", "elem_classes": "sd-grammarText"}
    return (
        gr.Radio(_KINDS, value="", label=LABELS["grammar"], elem_id=elem_id, elem_classes="sd-grammar"),
        gr.Textbox("", label="Schema, expression or grammar", **text),
    )


def grammar_from_fields(kind: str | None, text: str | None) -> Grammar | None:
    """The grammar of the fields' values; None if no kind is chosen. Raises ``InvalidInput``."""
    return grammar_in(f"{kind}:{text or ''}" if kind else "")


def grammar_named(kind: str | None) -> str:
    """A kind in words; empty if none is chosen."""
    return dict(GRAMMAR_NAMES).get(kind or "", "")  # type: ignore[call-overload]
