"""Values as literals of Python and JSON, and texts as words of a shell, for code that is written for a person."""

from __future__ import annotations

import json
import shlex
import unicodedata
from typing import Any


def _escaped(mark: str) -> str:
    """The escape, in Python and JSON, of a character that is invisible or that a terminal acts on."""
    hidden = ord(mark) < 0x10000 and unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return f"\\u{ord(mark):04x}" if hidden else mark


def literal(value: Any) -> str:
    """A value as JSON."""
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def python(value: Any) -> str:
    """A value as Python. Texts are written as JSON, which means the same in Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(python, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{python(key)}: {python(each)}' for key, each in value.items())}}}"
    return repr(value) if value is None or isinstance(value, bool) else literal(value)


def keywords(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def command(*parts: str) -> str:
    return " \\\n  ".join(parts) + "\n"


def shell_quoted(text: str) -> str:
    """A text for bash. One with characters that a terminal acts on has their escapes."""
    if not any(unicodedata.category(mark).startswith("C") for mark in text):
        return shlex.quote(text)
    return "$'" + literal(text)[1:-1].replace("'", "\\'") + "'"
