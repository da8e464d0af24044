"""The arguments of ``specdec sweep``."""

from __future__ import annotations

from pathlib import Path

from specdec.cli.parsers.shared import (
    SETS,
    Parser,
    add_measured_text_arguments,
    add_measurement_arguments,
    add_pair_arguments,
    draft_length,
)
from specdec.measure.prompts import EXAMPLES
from specdec.measure.sweep import NEW_TOKENS, RUNS


def sweep_arguments(parser: Parser) -> None:
    parser.description = "Measure every draft length on this machine. Ctrl-C stops and shows what was measured."
    add_pair_arguments(parser)
    parser.add_argument("prompt", nargs="*", help="default: the example prompts; - reads one from the standard input")
    parser.add_argument(
        "--gammas", type=draft_length, nargs="+", help="draft lengths, beside 0; default: 0 to 16 and auto"
    )
    parser.add_argument("--prompts", type=Path, default=EXAMPLES, help=SETS)
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"calls of each draft length and prompt (default {RUNS})"
    )
    add_measured_text_arguments(parser, NEW_TOKENS)
    add_measurement_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, and nothing else")
