"""The arguments of ``specdec servers``."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from specdec.cli.parsers.shared import Parser, add_export_argument, add_grammar_arguments, add_sampling_arguments

SECONDS = 600.0  # the deadline of a call, unless another one is given
LONGEST = 86_400  # seconds
RUNS = 3  # of a measurement over prompts
SERVER_FILES = (".jsonl", ".json", ".csv", ".md")  # the endings of files that hold a race on servers


def servers_arguments(parser: Parser) -> None:
    parser.description = (
        "Race servers that run already: specdec servers plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001 "
        '"Once upon a time". The first one decodes without speculation; the others are compared with it, one after '
        "another and in turns. vLLM tells each round if it was started with --per-request-spec-decode-metrics detailed."
    )
    parser.add_argument(
        "words", nargs="+", metavar="NAME=URL", help="two or more servers, then the prompt; - reads it from the input"
    )
    add_server_arguments(parser)
    parser.add_argument("--prompts", type=Path, help="measure over these prompts instead (JSON lines or a JSON list)")
    parser.add_argument(
        "--runs",
        type=int,
        help="how often each server runs; default: until the verdict is clear, at most five times and 10 seconds in "
        f"all; over prompts {RUNS} times",
    )
    add_export_argument(parser, "the race, or the measurement over prompts,", SERVER_FILES)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """The settings of a call on servers."""
    parser.add_argument("--model", help="the model's name in requests; needed where a server has several")
    add_sampling_arguments(parser)
    add_grammar_arguments(parser)
    parser.add_argument("--ignore-eos", action="store_true", help="write on after an end-of-text token")
    parser.add_argument("--chat", action="store_true", help="send the prompt as a message of a chat")
    add_deadline(parser)


def add_deadline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=_deadline, default=SECONDS, help=f"deadline of a server's call (default {SECONDS:g})"
    )


def _deadline(text: str) -> float:
    """Read a time in seconds: not a number, or none at all, would be no deadline."""
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= LONGEST:
            return seconds
    raise argparse.ArgumentTypeError(f"{text} is no deadline; give seconds, above 0 and up to {LONGEST:,}")
