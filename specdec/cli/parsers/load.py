"""The arguments of ``specdec load``."""

from __future__ import annotations

from pathlib import Path

from specdec.cli.parsers.servers import add_server_arguments
from specdec.cli.parsers.shared import TABLES, Parser, output_file
from specdec.measure.prompts import EXAMPLES

AT_ONCE, RUNS = 8, 3


def load_test_arguments(parser: Parser) -> None:
    parser.description = (
        "Measure servers that run already with 1, 2, 4 ... calls at once, in turns, and say up to how many speculation "
        "pays: specdec load plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001. Servers started with different "
        "numbers of guesses are compared with each other too."
    )
    parser.add_argument(
        "words", nargs="+", metavar="NAME=URL", help="two or more servers, the plain one first; then prompts, if any"
    )
    add_server_arguments(parser)
    parser.add_argument("--prompts", type=Path, default=EXAMPLES, help="default: the example prompts")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help=f"most calls at once (default {AT_ONCE})")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each server at each load (default {RUNS})")
    parser.add_argument(
        "--export", type=output_file(TABLES), nargs="+", default=[], metavar="FILE", help="files to write the table to"
    )
