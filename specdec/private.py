"""Access to private names of other libraries, which may change with any version of theirs.

A package's private names stand in one module, such as ``forward/torch_private.py``. Each is looked up through a
``Package``, which raises ``LibraryChanged`` for a name that is missing. This matters most for assignments: Python
accepts an assignment to a name that nothing reads any more.
"""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from specdec.errors import LibraryChanged

_MISSING = object()


class Package:
    """An installed package by its name in a package index, such as "torch"."""

    def __init__(self, name: str):
        self.name = name

    def get(self, owner: Any, name: str) -> Any:
        """The attribute ``name`` of ``owner``, an object of the package. Raises ``LibraryChanged`` without one."""
        found = getattr(owner, name, _MISSING)
        if found is _MISSING:
            raise self.changed(f"{_described(owner)}.{name}")
        return found

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give an attribute that exists another value. Raises ``LibraryChanged`` without one, and then sets nothing."""
        self.require(owner, name)
        setattr(owner, name, value)

    def function(self, module: str, name: str) -> Any:
        """What ``module`` of the package calls ``name``. Raises ``LibraryChanged`` without the module or the name."""
        try:
            home = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise self.changed(module) from error
        return self.get(home, name)

    def require(self, owner: Any, *names: str) -> None:
        """Raise ``LibraryChanged`` unless ``owner`` has all these attributes."""
        for name in names:
            self.get(owner, name)

    def changed(self, missing: str) -> LibraryChanged:
        """The error about a name that the installed version does not have."""
        try:
            installed = f"{self.name} {version(self.name)}"
        except PackageNotFoundError:
            installed = self.name
        return LibraryChanged(
            f"{installed} has no {missing}, which specdec uses. Install a version of {self.name} that this version of "
            "specdec is made for; its requirements.txt names the tested ones."
        )


def _described(owner: Any) -> str:
    """The name of a module or a class, or that of an object's class."""
    if inspect.ismodule(owner):
        return owner.__name__
    kind = owner if inspect.isclass(owner) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"
