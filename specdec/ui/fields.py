"""Number fields that keep what was typed, and checks that turn their content, or a script's data, into values.

The fields are not sliders, because Gradio's sliders silently change a number that is out of range to the nearest end,
and an empty field to the lowest number.
"""

from __future__ import annotations

from typing import Any, TypeVar

import gradio as gr
from pydantic_core import from_json

from specdec.errors import InvalidInput, quoted
from specdec.ui.assets import ROUTE

_Number = TypeVar("_Number", int, float)

# What the page calls each setting: the labels of its fields, and the names in its messages.
LABELS = {
    "max_new_tokens": "New tokens", "temperature": "Temperature", "top_k": "Top-k", "top_p": "Top-p", "min_p": "Min-p",
    "repetition_penalty": "Repetition penalty", "seed": "Seed", "gamma": "Draft length \u03b3",
    "least_confidence": "Confidence", "accept_top_k": "Lossy: accept if in the target's top k",
    "ignore_eos": "Ignore end of text", "runs": "Runs", "prompts": "Prompts", "draws": "Draws",
    "first": "Prompts per category", "grammar": "The text must obey",
}  # fmt: skip


_ERRORS = f"""
import(new URL("{ROUTE}/lib/errors.js", document.baseURI).href).then((errors) => errors.watchErrors(element, props));
"""


def number_field(value: float, label: str, **settings: Any) -> gr.Number:
    """A field without bounds. The engine and the page's limits refuse values, and say why."""
    return gr.Number(value, label=label, min_width=90, **settings)


def message_place(elem_id: str, value: str = "", **settings: Any) -> gr.HTML:
    """A place for messages as HTML. Its errors go when their cause may be gone."""
    return gr.HTML(value, js_on_load=_ERRORS, elem_id=elem_id, apply_default_css=False, **settings)


def read_number(name: str, value: float | None) -> float:
    """The value of a field; an ``int`` for a whole number, also for 5.0. Raises ``InvalidInput`` if empty."""
    if value is None:
        raise InvalidInput(f"{name} is empty; write a number. Nothing ran.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def integer(name: str, value: float | None) -> int:
    """The same for a field that takes whole numbers only."""
    found = read_number(name, value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidInput(f"{name} is {found}; give a whole number. Nothing ran.")
    return found


def whole_or_none(name: str, text: str | None) -> int | None:
    """The number in a text field; None if it is empty, which a number field would send as 0."""
    try:
        return parsed(text.strip(), int) if text and text.strip() else None
    except InvalidInput as error:
        raise InvalidInput(f"{name} is {quoted(text)}; {error}. Nothing ran.") from error


def parsed(text: str, kind: type[_Number]) -> _Number:
    """A number written as text. Raises ``InvalidInput``, whose message is a part of a sentence."""
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidInput("not a whole number" if kind is int else "not a number") from error


def sent(text: Any) -> dict[str, Any]:
    """Read a JSON object from the page's scripts.

    Raises ``InvalidInput``, because a forged request may contain anything.
    """
    try:
        found = from_json(text)  # allows 200 levels at most
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("The page sent data that cannot be read. Reload it and try again.")
    return found


def given(event: gr.EventData, name: str) -> Any:
    """A value that the page's scripts sent with an event; None if a forged request has none."""
    try:
        return getattr(event, name)
    except (AttributeError, TypeError):
        return None
