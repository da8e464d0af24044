"""The command ``specdec``: one module of this folder for each subcommand."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "run": "race a pair on one prompt (the default: specdec PROMPT)",
    "sweep": "measure every draft length",
    "bench": "measure lanes over a prompt set",
    "check": "check whether a target and a draft work together",
    "page": "serve the page",
    "space-check": "check this folder before it is uploaded as a Space",
}
_HELP = "usage: specdec [COMMAND] ...\n\n" + "".join(f"  {name:11} {text}\n" for name, text in COMMANDS.items())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand at the beginning of ``argv``; if that is none of ``COMMANDS``, ``run``.

    Only its module is imported, because others would load torch and gradio for nothing.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{_HELP}\nspecdec COMMAND --help lists the options of a command.")
        return
    name = arguments.pop(0) if arguments[0] in COMMANDS else "run"
    try:
        importlib.import_module(f"specdec.cli.{name.replace('-', '_')}").main(arguments)
    except KeyboardInterrupt:  # also while models load
        raise SystemExit(130) from None
