"""Shared by the commands: the arguments that name a pair, loading that pair, and the console."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from specdec.cli.terminal import harmless, readable
from specdec.drafters.registry import forms
from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA
from specdec.models.loading import PairPlan, load, plan_pair
from specdec.models.pair import ENGINES, Pair
from specdec.report.tried import GRAPHS_TRIED

TARGET = "hub id, folder or GGUF file (FILE.gguf here, owner/name:FILE.gguf on the hub)"
SETS = "JSON lines or a JSON list, of your own or of a public set, such as HumanEval, MT-bench, GSM8K or ShareGPT"


class Parser(argparse.ArgumentParser):
    """A parser whose messages repeat no control character of an argument."""

    def error(self, message: str) -> NoReturn:
        super().error(readable(message))


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


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the pair, its device and its number types."""
    parser.add_argument("--target", help=f"{TARGET}; default: the embedded pair")
    parser.add_argument("--draft", help=forms())
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16; for both models")
    parser.add_argument(
        "--bits", type=int, choices=(8, 4), help="load the target's weights with this many bits (needs bitsandbytes)"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="eager: start each pass separately; graph: use fixed buffers, captured as CUDA graphs on a GPU; auto: "
        f"graph on a GPU, else eager. {GRAPHS_TRIED}",
    )


def draft_length(text: str) -> int | str:
    """Read a draft length. Without this, the parser's message would name a function and not say what to write."""
    try:
        return gamma_of(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a draft length; give a whole number from 0 to {MAX_GAMMA}, auto, or confidence:0.4"
        ) from error


def leave_a_core() -> None:
    """Use one thread less for the passes, and leave a core to the server and the browser.

    Otherwise a Stop on the page would be answered only at the end. Every command does this, so their figures compare.
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


def plan_of(arguments: argparse.Namespace) -> PairPlan:
    """The plan of the named pair, before its weights are loaded. An empty name counts as none."""
    return plan_pair(
        arguments.target,
        arguments.draft,
        device=arguments.device,
        dtype=arguments.dtype,
        draft_dtype=arguments.dtype,
        bits=arguments.bits,
        engine=arguments.engine,
    )


def pair_of(arguments: argparse.Namespace) -> Pair:
    """Load the named pair. Raises what ``load_pair`` raises."""
    return load(plan_of(arguments))
