"""The table of the ways to draft. The command line, the pair check, the loader and the page go through it."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib.metadata import entry_points

from specdec.drafters.base import DraftMethod
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.eagle3 import Eagle3
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.suffix import Suffix

# In the order of the page's choices.
METHODS: tuple[type[DraftMethod], ...] = (DraftModel, PromptLookup, Suffix, EarlyExit, Eagle3, Mtp)


GROUP = "specdec.drafters"  # the entry points by which other packages offer a way to draft: subclasses of DraftMethod


def methods(others: bool = True) -> tuple[type[DraftMethod], ...]:
    """The table, and after it what installed packages offer. A page for strangers asks without ``others``."""
    return (*METHODS, *(_of_others() if others else ()))


def method_of(text: str, others: bool = True) -> DraftMethod | None:
    """The method that ``text`` names; None for an empty text.

    The first row takes every text for the name of a model, so it is asked last. No other package can take a text of
    this table.
    """
    first, *rest = METHODS
    rows = (*reversed(rest), *methods(others)[len(METHODS) :], first)
    return next((method for row in rows if (method := row.parse(text)) is not None), None)


def forms() -> str:
    """How to write each method, for the help of a command line."""
    return "; or ".join(row.form for row in methods())


@lru_cache(maxsize=1)
def _of_others() -> tuple[type[DraftMethod], ...]:
    """What installed packages offer. What cannot be loaded is left out with a warning."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            row = point.load()
        except Exception as error:
            warnings.warn(f"The way to draft {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)
            continue
        named = all(isinstance(getattr(row, name, None), str) for name in ("kind", "label", "form", "example"))
        if named and isinstance(row, type) and issubclass(row, DraftMethod):
            found.append(row)
        else:
            warnings.warn(f"{point.name!r} ({point.value}) is no whole DraftMethod, and is left out.", stacklevel=2)
    return tuple(found)
