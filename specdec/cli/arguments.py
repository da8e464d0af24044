"""What the commands share: the arguments that name a pair, the pair they name, and the console."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from rich.console import Console

from specdec.drafters.methods import forms, method_of
from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA
from specdec.models.loading import PairPlan, load, plan_pair
from specdec.models.pair import ENGINES, Pair


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """The pair, where it runs and in which numbers."""
    parser.add_argument("--target", help="hub id or folder; default: the embedded pair")
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
        "graph on a GPU (not run on one so far)",
    )


def draft_length(text: str) -> int | str:
    """A draft length on a command line. The parser would name the function that refused it, and not what to write."""
    try:
        return gamma_of(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a draft length; give a whole number from 0 to {MAX_GAMMA}, auto, or confidence:0.4"
        ) from error


def leave_a_core() -> None:
    """One thread less for the passes: a core is left to what shows the events, the server and a browser above all.

    Without, a Stop on the page is answered when all is over. Every program does it, so that their figures compare.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def console_of(piped: int | None = None, **options: Any) -> Console:
    """A console that shows text as it is: names of prompts and tokens may hold anything, and "[a]" is not markup.

    ``piped`` is its width in columns where the output is no terminal.
    """
    return Console(width=None if Console().is_terminal else piped, markup=False, emoji=False, **options)


def plan_of(arguments: argparse.Namespace) -> PairPlan:
    """The pair that was named, before its weights are here; an empty name counts as none."""
    return plan_pair(
        arguments.target or None,
        method_of(arguments.draft or ""),
        device=arguments.device,
        dtype=arguments.dtype,
        draft_dtype=arguments.dtype,
        bits=arguments.bits,
        engine=arguments.engine,
    )


def pair_of(arguments: argparse.Namespace) -> Pair:
    """The pair that was named. Raises as ``load_pair`` does."""
    return load(plan_of(arguments))
