"""What commands print, and how they read a prompt. Needs no torch."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from specdec.cli.terminal import harmless, readable
from specdec.errors import InvalidInput
from specdec.measure.prompts import EXAMPLES

# The kinds of token, as on the page.
STYLES = {
    "accepted": "black on #d3e5fb",
    "correction": "underline #b8740a",
    "bonus": "bold",
    "target": "",
    "prompt": "dim",
}


def prompt_of(text: str) -> str:
    """The prompt of an argument; ``-`` reads it from the standard input, without its last line end.

    Raises ``InvalidInput``.
    """
    if text == "-":
        try:
            text = sys.stdin.read() if sys.stdin else ""
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"The standard input is not valid {error.encoding} text; give the prompt in that encoding."
            ) from error
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidInput("The prompt is empty; write at least one character.")
    return text


def require_one_source(words: Sequence[str], file: Path) -> None:
    """Raise ``InvalidInput`` for prompts that are given both as words and as a file: one would be ignored."""
    if words and file != EXAMPLES:
        raise InvalidInput("Give prompts as words or --prompts FILE, not both.")


class Output(Console):
    """A console whose text cannot steer the terminal, and is what its encoding can hold."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every sentence, title and cell of a table comes through here before it is laid out."""
        return super().render_str(readable(text, self.encoding), **options)

    def write(self, text: str, style: str = "") -> None:
        """Write a piece of a model's text: its spaces, tabs and line ends as they are, without wrapping."""
        parts = re.split("(\n)", harmless(text))  # a style at a line end would colour the rest of the line
        pieces = (Segment(part, None if part == "\n" else self.get_style(style)) for part in parts if part)
        self.print(Segments(pieces), crop=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # ``terminal`` ends the command


def console_of(piped: int | None = None, **options: Any) -> Output:
    """A console that prints text unchanged: names of prompts and tokens may contain "[a]", which is no markup here.

    ``piped`` is its width in columns if the output is no terminal.
    """
    return Output(width=None if Console().is_terminal else piped, markup=False, emoji=False, **options)


def legend() -> Text:
    words = {"accepted": "accepted: guess kept", "correction": "correction: the target's replacement"}
    words |= {"bonus": "bonus: extra token after a perfect round"}
    parts = [piece for kind, text in words.items() for piece in ((text, STYLES[kind]), "   ")]
    return Text.assemble(*parts[:-1])
