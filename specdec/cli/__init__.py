# PYTHON_ARGCOMPLETE_OK
"""The command ``specdec``: one module of this folder for each subcommand, and its arguments in ``parsers``."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Any

from specdec.cli.parsers import COMMANDS, parser_of, whole_parser
from specdec.cli.terminal import refused, terminal
from specdec.errors import LibraryChanged
from specdec.forward.native.build import SWITCH

# The extra of pyproject.toml that installs a package which not every use needs.
EXTRAS = {"rich": "cli", "gradio": "page", "plotly": "page", "jinja2": "page", "starlette": "page"}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand at the beginning of ``argv``; if that is none of ``COMMANDS``, ``run``.

    The arguments are read before its module is imported, because torch takes seconds to load. No other command's
    module is imported.
    """
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how a command line can go on
        from argcomplete import autocomplete

        autocomplete(whole_parser())  # ends the program
    words = list(sys.argv[1:] if argv is None else argv)
    with terminal():
        first = words[0] if words else "help"
        if first == "help":
            whole_parser().print_help()
        elif first in ("-h", "--help", "--version"):
            whole_parser().parse_args(words)
        elif first in COMMANDS:
            arguments = parser_of(first).parse_intermixed_args(words[1:])
            _start(first, arguments)
        else:
            refuse_command(first)
            arguments = parser_of("run").parse_intermixed_args(words)
            refuse_command(arguments.prompt)
            _start("run", arguments)


def _start(command: str, arguments: Namespace) -> None:
    if getattr(arguments, "no_native", False):
        os.environ[SWITCH] = "0"
    if getattr(arguments, "files", None) and command == "page" and arguments.static is None:
        parser_of(command).error(f"{arguments.files[0]}: files are only for --static")
    _module("view" if getattr(arguments, "static", None) else command).main(arguments)


def _module(command: str) -> Any:
    """The module of a command. Ends as ``imported`` does."""
    return imported(f"specdec.cli.{command}", command)


def imported(name: str, command: str) -> Any:
    """The module ``name``, for a command. Ends with a sentence if a package is missing, or is of another version."""
    try:
        return importlib.import_module(name)
    except LibraryChanged as error:
        raise refused(error) from error
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        extra = "page" if command in ("page", "view") else EXTRAS[missing]
        raise SystemExit(
            f"specdec {command} needs the package {missing}, which is not installed. In a checkout of the repository "
            f'write: pip install ".[{extra}]"'
        ) from None


def refuse_command(word: str) -> None:
    """End if a prompt that is given without ``run`` looks like a mistyped command: one word, close to one of them.

    Any other word is a prompt. Raises ``SystemExit``.
    """
    single = len(word.split()) == 1 and not word.startswith("-")
    if single and (close := get_close_matches(word.strip().lower(), COMMANDS, 1, cutoff=0.7)):
        raise SystemExit(
            f"specdec: {word!r} is not a command here. Did you mean specdec {close[0]}? To race a pair on this word as "
            f"a prompt, write: specdec run {quote(word)}"
        )
