"""The arguments of ``specdec bench``."""

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
from specdec.lanes.table import LANES, LOOP
from specdec.measure.prompts import EXAMPLES
from specdec.models.presets import SHAPES


def bench_arguments(parser: Parser) -> None:
    parser.description = "Measure a pair on this machine over a prompt set."
    add_pair_arguments(parser)
    parser.add_argument(
        "--shape",
        metavar="TARGET:DRAFT",
        help=f"build both models with random weights; each is one of {', '.join(SHAPES)}",
    )
    parser.add_argument(
        "--agreement",
        type=float,
        help="only with --shape: the share of guesses that are the target's next token, 0 to 1 (default 0.8)",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        default=EXAMPLES,
        help=SETS,
    )
    parser.add_argument("--first", type=int, metavar="N", help="only the first N prompts of each category")
    parser.add_argument(
        "--chat", action="store_true", help="send every prompt as a chat message, and not only conversations"
    )
    parser.add_argument(
        "--lanes",
        nargs="+",
        choices=[lane.key for lane in LANES if lane.bench is not None],
        help=f"{LOOP.key} is our loop without a draft; default: " + " ".join(lane.key for lane in LANES if lane.bench),
    )
    parser.add_argument(
        "--gammas",
        type=draft_length,
        nargs="+",
        default=[2, 3, 4, 5, 6, 8],
        help="draft lengths, 0 to 16, auto, or confidence:0.4",
    )
    parser.add_argument("--runs", type=int, default=5, help="calls of each lane and prompt (default 5)")
    add_measured_text_arguments(parser, 128)
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="FILE", help="only put these results files into one table"
    )
    add_measurement_arguments(parser)
