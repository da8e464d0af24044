"""The arguments of ``specdec load``."""

from __future__ import annotations

from pathlib import Path

from specdec.cli.parsers.servers import add_server_arguments
from specdec.cli.parsers.shared import TABLES, Parser, add_export_argument, add_pair_arguments
from specdec.events import MAX_GAMMA
from specdec.measure.load import PASSES, TRANSFORMERS
from specdec.measure.prompts import EXAMPLES
from specdec.report.link_settings import GAMMA

AT_ONCE, RUNS = 8, 3
CONTEXTS = (64, 256, 1024)
CHART = ".html"  # the ending of the file that holds the chart


def load_test_arguments(parser: Parser) -> None:
    parser.description = (
        "Measure servers that run already with 1, 2, 4 ... calls at once, in turns, and say up to how many speculation "
        "pays: specdec load plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001. Servers started with different "
        "numbers of guesses are compared with each other too. Without servers it is the pair, whose passes over 1, 2, "
        "4 ... sequences are timed here; the gains are computed from them and from the pair's acceptance."
    )
    parser.add_argument(
        "words", nargs="*", metavar="NAME=URL", help="two or more servers, the plain one first; then prompts, if any"
    )
    add_server_arguments(parser)
    add_pair_arguments(parser)
    parser.set_defaults(draft_weights="same")  # the passes that are timed read them so
    parser.add_argument(
        "--gamma",
        type=int,
        choices=range(1, MAX_GAMMA + 1),
        metavar="N",
        default=GAMMA,
        help=f"the longest draft of a pair; all up to it are computed (default {GAMMA})",
    )
    parser.add_argument(
        "--contexts",
        type=int,
        nargs="+",
        metavar="N",
        help=f"cached tokens of a pair's sequences (default: those of {', '.join(map(str, CONTEXTS))} that fit)",
    )
    parser.add_argument(
        "--passes",
        choices=PASSES,
        default=TRANSFORMERS,
        help="which passes of a pair are timed: those of transformers, lean ones, or lean ones captured as CUDA "
        f"graphs, which need a CUDA device (default {TRANSFORMERS})",
    )
    parser.add_argument("--prompts", type=Path, default=EXAMPLES, help="default: the example prompts")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help=f"most calls at once (default {AT_ONCE})")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"of each server, or of the passes, at each load (default {RUNS})"
    )
    add_export_argument(parser, f"the table, or with {CHART} its chart too,", (*TABLES, CHART))
