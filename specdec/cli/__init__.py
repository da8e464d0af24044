"""The command ``specdec``: one module of this folder for each subcommand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Any

from specdec.cli.terminal import terminal
from specdec.version import VERSION

COMMANDS = {
    "run": "race a pair on one prompt (the default: specdec PROMPT)",
    "sweep": "measure every draft length",
    "bench": "measure lanes over a prompt set",
    "check": "check whether a target and a draft work together",
    "page": "serve the page",
}
# The extra of pyproject.toml that installs a package which not every use needs.
EXTRAS = {"rich": "cli", "gradio": "page", "plotly": "page", "jinja2": "page", "starlette": "page"}
_HELP = "usage: specdec [COMMAND] ...\n\n" + "".join(f"  {name:6} {text}\n" for name, text in COMMANDS.items())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand at the beginning of ``argv``; if that is none of ``COMMANDS``, ``run``.

    Only its module is imported, because others would load torch and gradio for nothing.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with terminal():
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(
                f"{_HELP}\nspecdec COMMAND --help lists the options of a command. specdec --version prints the version."
            )
        elif arguments[0] == "--version":
            print(f"specdec {VERSION}")
        elif arguments[0] in COMMANDS:
            _module(arguments[0]).main(arguments[1:])
        else:
            refuse_command(arguments[0])
            _module("run").main(arguments, named=False)


def _module(command: str) -> Any:
    """The module of a command. Ends with a sentence if a package of its extra is not installed."""
    try:
        return importlib.import_module(f"specdec.cli.{command}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        extra = "page" if command == "page" else EXTRAS[missing]
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
