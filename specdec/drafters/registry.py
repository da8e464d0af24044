"""The table of the ways to draft. The command line, the pair check, the loader and the page go through it."""

from __future__ import annotations

from specdec import entry_points
from specdec.drafters.base import DraftMethod
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.eagle3 import Eagle3
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.suffix import Suffix

# In the order of the page's choices.
METHODS: tuple[type[DraftMethod], ...] = (DraftModel, PromptLookup, Suffix, EarlyExit, Eagle3, Mtp)


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


def _of_others() -> tuple[type[DraftMethod], ...]:
    offered = entry_points.loaded(entry_points.DRAFTERS, DraftMethod, ("kind", "label", "form", "example"))
    return tuple(offered.values())
