"""Number fields that hold what was typed, and the way from that to a value or to a sentence about it;
and what the page's scripts send.

Not sliders: Gradio's move a number that is out of range to the nearest end, and an empty field to the lowest number,
without a word.
"""

from __future__ import annotations

from typing import Any, TypeVar

import gradio as gr
from pydantic_core import from_json

from specdec.errors import InvalidInput

_Number = TypeVar("_Number", int, float)


def number_field(value: float, label: str, **settings: Any) -> gr.Number:
    """A field without bounds of its own: the engine and the page's limits name what they do not take."""
    return gr.Number(value, label=label, min_width=90, **settings)


def number(name: str, value: float | None) -> float:
    """What a field holds; a whole number as an ``int``, as browsers send 5.0 for 5."""
    if value is None:
        raise InvalidInput(f"{name} is empty; write a number. Nothing ran.")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def integer(name: str, value: float | None) -> int:
    """The same for what is counted."""
    found = number(name, value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise InvalidInput(f"{name} is {found}; give a whole number. Nothing ran.")
    return found


def parsed(text: str, kind: type[_Number]) -> _Number:
    """A number written as text."""
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidInput("not a whole number" if kind is int else "not a number") from error


def sent(text: Any) -> dict[str, Any]:
    """An object that the page's scripts wrote as JSON. A forged request may hold anything else."""
    try:
        found = from_json(text)  # nests 200 levels at most
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("The page sent what cannot be read. Reload it and try again.")
    return found
