"""What commands do with their arguments: read the prompt, load the pair, and open a console."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from typing import Any

import torch
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from specdec.cli.terminal import harmless, readable
from specdec.errors import InvalidInput
from specdec.models.loading import PairPlan, load, plan_pair
from specdec.models.pair import Pair
from specdec.models.settings import LoadOptions


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


def leave_a_core() -> None:
    """Use one thread less for the passes, and leave a core to the server and the browser.

    Otherwise a Stop on the page would be answered only at the end. The other commands that measure do this too, so that
    figures compare.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))


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
        raise BrokenPipeError  # ``terminal`` ends the command


def console_of(piped: int | None = None, **options: Any) -> Output:
    """A console that prints text unchanged: names of prompts and tokens may contain "[a]", which is no markup here.

    ``piped`` is its width in columns if the output is no terminal.
    """
    return Output(width=None if Console().is_terminal else piped, markup=False, emoji=False, **options)


def plan_of(arguments: Namespace) -> PairPlan:
    """The plan of the named pair, before its weights are loaded. An empty name counts as none."""
    dtype = arguments.dtype
    options = LoadOptions(
        arguments.device, dtype, dtype, arguments.draft_weights, bits=arguments.bits, engine=arguments.engine
    )
    return plan_pair(arguments.target, arguments.draft, options)


def pair_of(arguments: Namespace) -> Pair:
    """Load the named pair. Raises what ``load_pair`` raises."""
    return load(plan_of(arguments))


def load_arguments(arguments: Namespace) -> dict[str, Any]:
    """The arguments of ``load_pair`` that load the same pair, without those that are its defaults."""
    given = {"target": arguments.target, "draft": arguments.draft, "device": arguments.device}
    given |= {"dtype": arguments.dtype, "draft_dtype": arguments.dtype, "bits": arguments.bits}
    given |= {"draft_weights": arguments.draft_weights, "engine": arguments.engine}
    return {name: value for name, value in given.items() if value not in (None, "", "auto")}
