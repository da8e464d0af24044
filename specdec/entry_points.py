"""What installed packages offer by entry points: ways to draft, and acceptance rules."""

from __future__ import annotations

import inspect
import warnings
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

DRAFTERS, ACCEPTANCE = "specdec.drafters", "specdec.acceptance"  # the groups


def names_of(group: str) -> tuple[str, ...]:
    """The names under which packages offer something in a group. Nothing of theirs is loaded."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


@lru_cache
def loaded(group: str, base: type, attributes: tuple[str, ...]) -> dict[str, Any]:
    """The subclasses of ``base`` that packages offer in a group, by the name of their entry point.

    Each must have the class ``attributes``. What cannot be loaded or is not whole is left out with a warning.
    """
    found = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        what = f"{point.name!r} ({point.value}) of the entry points {group}"
        try:
            row = point.load()
        except Exception as error:
            warnings.warn(f"{what} cannot be loaded: {error}", stacklevel=2)
            continue
        whole = isinstance(row, type) and issubclass(row, base) and not inspect.isabstract(row)
        if whole and all(isinstance(getattr(row, name, None), (str, bool)) for name in attributes):
            found[point.name] = row
        else:
            warnings.warn(f"{what} is no whole {base.__name__}, and is left out.", stacklevel=2)
    return found
