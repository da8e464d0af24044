"""The arguments of ``specdec lossless``."""

from __future__ import annotations

from pathlib import Path

from specdec.cli.parsers.servers import add_server_arguments
from specdec.cli.parsers.shared import Parser
from specdec.measure.prompts import EXAMPLES

DRAWS = 500


def lossless_arguments(parser: Parser) -> None:
    parser.description = (
        "Ask whether a server that speculates writes what a plain one writes: specdec lossless "
        "plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001. Greedy texts are compared token by token; with "
        f"--temperature above 0, {DRAWS} short continuations of one prompt from each server."
    )
    parser.add_argument(
        "words", nargs="+", metavar="NAME=URL", help="two servers, the plain one first; then prompts, if any"
    )
    add_server_arguments(parser)
    parser.add_argument("--prompts", type=Path, default=EXAMPLES, help="default: the example prompts")
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help=f"continuations of each server with a temperature (default {DRAWS})"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, and nothing else")
