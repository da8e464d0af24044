"""The arguments of ``specdec run``."""

from __future__ import annotations

from specdec.cli.parsers.shared import (
    Parser,
    add_export_argument,
    add_grammar_arguments,
    add_pair_arguments,
    add_sampling_arguments,
    draft_length,
)
from specdec.entry_points import ACCEPTANCE, names_of
from specdec.events import LOSSLESS
from specdec.lanes.table import DEFAULT_KEYS, LANES, LOOP
from specdec.report.link_settings import GAMMA

RACE_FILES = (".jsonl", ".json", ".csv", ".md", ".py")  # the endings of files that hold a race


def run_arguments(parser: Parser) -> None:
    parser.description = 'Race a pair on one prompt: specdec "Once upon a time" --gamma 5.'
    parser.add_argument("prompt", help="the text to continue; - reads it from the standard input")
    parser.add_argument(
        "--gamma",
        type=draft_length,
        default=GAMMA,
        help=f"draft length, 0-16 (default {GAMMA}), auto, or confidence:0.4",
    )
    parser.add_argument(
        "--lanes",
        nargs="+",
        choices=[lane.key for lane in LANES],
        default=DEFAULT_KEYS,
        help=f"{LOOP.key} is our loop without a draft; default: " + " ".join(DEFAULT_KEYS),
    )
    add_sampling_arguments(parser)
    add_grammar_arguments(parser)
    parser.add_argument("--chat", action="store_true", help="send the prompt as a message, by the chat template")
    parser.add_argument(
        "--runs",
        type=int,
        help="run the race so often; default: until its verdict is clear, at most five times and 10 seconds in all",
    )
    parser.add_argument(
        "--acceptance",
        choices=(*LOSSLESS, *names_of(ACCEPTANCE)),
        default="lossless",
        help="the rule that keeps guesses (default lossless). block: with sampling it keeps more of them, and it is "
        "lossless too. Installed packages may offer others",
    )
    add_pair_arguments(parser)
    add_export_argument(parser, "the race", RACE_FILES)
    parser.add_argument("--json", action="store_true", help="print the events as JSON lines, which name the seed")
