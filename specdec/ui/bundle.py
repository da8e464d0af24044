"""Puts the modules of the page's scripts into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\{[^}]*\}|\[[^\]]*\]|\w+))", re.MULTILINE)
_AS = re.compile(r"\b(\w+) as (\w+)")


class Bundle:
    """``entries`` and the modules that they import, directly or not, in an order in which imports come first.

    ``text`` declares a constant ``m0``, ``m1``, ... for each: an object of what the module exports. ``exports`` has
    these names by the module's path, and ``constants`` its constant. The modules have one style of imports and exports;
    another one raises ``ValueError``.
    """

    def __init__(self, entries: Sequence[Path]):
        self.exports: dict[Path, list[str]] = {}
        self.constants: dict[Path, str] = {}
        self._written: list[str] = []
        for entry in entries:
            self._add(entry.resolve())

    @property
    def text(self) -> str:
        return "".join(self._written)

    def _add(self, path: Path) -> str:
        if path in self.exports:
            if path not in self.constants:
                raise ValueError(f"{path.name} imports itself.")
            return self.constants[path]
        self.exports[path] = []
        source = path.read_text(encoding="utf-8")

        def imported(found: re.Match[str]) -> str:
            names = _AS.sub(r"\1: \2", " ".join(found[1].split()))
            return f"const {{ {names} }} = {self._add((path.parent / found[2]).resolve())};\n"

        source = _IMPORT.sub(imported, source)
        self.exports[path] = names = [name for found in _EXPORT.finditer(source) for name in _bound(found[1])]
        source = _EXPORT.sub("", source)
        if wrong := re.search(r"^(import|export)\b.*", source, re.MULTILINE):
            raise ValueError(f"{path.name} has another form of import or export: {wrong[0]}")
        self.constants[path] = constant = f"m{len(self._written)}"
        self._written.append(f"const {constant} = (() => {{\n{source}\nreturn {{ {', '.join(names)} }};\n}})();\n")
        return constant


def script(entry: Path) -> str:
    """``entry`` and the modules that it imports, directly or not, as one script.

    A browser loads no modules from a disk.
    """
    # An HTML parser ends a script at this sign wherever it stands.
    return '(() => {\n"use strict";\n' + Bundle([entry]).text.replace("</script", "<\\/script") + "})();\n"


def _bound(declared: str) -> list[str]:
    """The names that a declaration binds: ``name``, ``{ found: name }`` or ``[first, second]``."""
    parts = declared.strip("{}[] \n").split(",")
    return [part.split(":")[-1].strip() for part in parts if part.strip()]
