"""Puts the modules of the page's scripts into one."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\{[^}]*\}|\[[^\]]*\]|\w+))", re.MULTILINE)
_AS = re.compile(r"\b(\w+) as (\w+)")


def script(entry: Path) -> str:
    """``entry`` and the modules that it imports, directly or not, as one script.

    A browser loads no modules from a disk. So each becomes a function that returns what the module exports, in an order
    in which imports come first. The modules have one style of imports and exports; another one raises ``ValueError``.
    """
    numbers: dict[Path, int] = {}
    written: list[str] = []

    def add(path: Path) -> int:
        if path in numbers:
            if numbers[path] < 0:
                raise ValueError(f"{path.name} imports itself.")
            return numbers[path]
        numbers[path] = -1
        source = path.read_text(encoding="utf-8")

        def imported(found: re.Match[str]) -> str:
            names = _AS.sub(r"\1: \2", " ".join(found[1].split()))
            return f"const {{ {names} }} = m{add((path.parent / found[2]).resolve())};\n"

        source = _IMPORT.sub(imported, source)
        names = [name for found in _EXPORT.finditer(source) for name in _bound(found[1])]
        source = _EXPORT.sub("", source)
        if wrong := re.search(r"^(import|export)\b.*", source, re.MULTILINE):
            raise ValueError(f"{path.name} has another form of import or export: {wrong[0]}")
        numbers[path] = len(written)
        written.append(f"const m{len(written)} = (() => {{\n{source}\nreturn {{ {', '.join(names)} }};\n}})();\n")
        return numbers[path]

    add(entry.resolve())
    # An HTML parser ends a script at this sign wherever it stands.
    return '(() => {\n"use strict";\n' + "".join(written).replace("</script", "<\\/script") + "})();\n"


def _bound(declared: str) -> list[str]:
    """The names that a declaration binds: ``name``, ``{ found: name }`` or ``[first, second]``."""
    parts = declared.strip("{}[] \n").split(",")
    return [part.split(":")[-1].strip() for part in parts if part.strip()]
