"""The table of the ways to draft. The command line, the pair check, the loader and the page go through it."""

from __future__ import annotations

import os
import re
import warnings
from difflib import get_close_matches

from specdec import entry_points
from specdec.drafters.base import DraftMethod
from specdec.drafters.combined import Combined
from specdec.drafters.dflash import DFlash
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.dspark import DSpark
from specdec.drafters.eagle3 import Eagle3
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.forms import FORMS
from specdec.drafters.gemma4_assistant import Gemma4Assistant
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.recycling import Recycling
from specdec.drafters.suffix import Suffix
from specdec.errors import InvalidInput, quoted

# A draft model, what needs nothing but the target, what was trained for a target.
METHODS: tuple[type[DraftMethod], ...] = (
    DraftModel, PromptLookup, Suffix, Recycling, EarlyExit, Combined, Mtp, Eagle3, DFlash, DSpark, Gemma4Assistant,
)  # fmt: skip
ALIASES = {"ngram": PromptLookup.kind, "pld": PromptLookup.kind}  # what other engines call a way to draft


def methods(others: bool = True) -> tuple[type[DraftMethod], ...]:
    """The table, and after it what installed packages offer. A page for strangers asks without ``others``."""
    return (*METHODS, *(_of_others() if others else ()))


def method_of(text: str, others: bool = True) -> DraftMethod | None:
    """The method that ``text`` names; None for an empty text.

    The first row takes every text for the name of a model, so it is asked last. No other package can take a text of
    this table.
    """
    first, *rest = METHODS
    rows = (*reversed(rest), *methods(others)[len(METHODS) :])
    found = next((method for row in rows if (method := row.parse(text)) is not None), None)
    return found or first.parse(_refuse_mistyped(text))


def _refuse_mistyped(text: str) -> str:
    """Return the name of a model. Raises ``InvalidInput`` where it is nearly the name of a way to draft, or no name."""
    forms = {row.kind: row.form for row in METHODS[1:]}
    named = re.split("[:+]", text.lower(), maxsplit=1)[0]
    if not named or "/" in named or os.path.exists(text):
        return text
    meant = [ALIASES[named]] if named in ALIASES else get_close_matches(named, forms, n=1, cutoff=0.8)
    meant = meant or [kind for kind in forms if named in kind.split("-")]
    if meant:
        kind = Combined.kind if "+" in text else meant[0]
        raise InvalidInput(f"There is no way to draft {quoted(text)}. Write {forms[kind]}.")
    if named == "none":
        raise InvalidInput("To draft nothing, leave the draft out and choose \u03b3 0.")
    if ":" in text and not {"/", "\\"} & {*text}:  # no hub id has a colon, and no path
        raise InvalidInput(f"There is no way to draft {quoted(text)}. Write one of: {'; '.join(FORMS.values())}.")
    return text


def _second_of(text: str) -> DraftMethod | None:
    """The second way of a combination. It is one of this package, so that a page for strangers can read it too."""
    return method_of(text, others=False)


Combined.read = _second_of


def _of_others() -> tuple[type[DraftMethod], ...]:
    offered = entry_points.loaded(entry_points.DRAFTERS, DraftMethod, ("kind", "label", "form", "example"))
    for name, row in offered.items():
        if name != row.kind:
            warnings.warn(
                f"The entry point {name!r} offers the way to draft {row.kind!r}; rename it to that.", stacklevel=3
            )
    return tuple(row for name, row in offered.items() if name == row.kind)
