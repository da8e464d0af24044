"""The table of the ways to draft. The command line, the pair check, the loader and the page go through it."""

from __future__ import annotations

from specdec.drafters.base import DraftMethod
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.eagle3 import Eagle3
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.suffix import Suffix

# In the order of the page's choices.
METHODS: tuple[type[DraftMethod], ...] = (DraftModel, PromptLookup, Suffix, EarlyExit, Eagle3, Mtp)


def method_of(text: str) -> DraftMethod | None:
    """The method that ``text`` names; None for an empty text.

    The table is read from its end, because the first row takes every text for the name of a model.
    """
    return next((method for row in reversed(METHODS) if (method := row.parse(text)) is not None), None)


def forms() -> str:
    """How to write each method, for the help of a command line."""
    return "; or ".join(row.form for row in METHODS)
