"""The arguments of ``specdec why``."""

from __future__ import annotations

from specdec.cli.parsers.servers import add_deadline
from specdec.cli.parsers.shared import Parser, add_grammar_arguments, add_pair_arguments, draft_length
from specdec.report.link_settings import GAMMA, NEW_TOKENS

RUNS = 3


def why_arguments(parser: Parser) -> None:
    parser.description = (
        'Name what limits speculation, with one thing to do about each cause: specdec why "Once upon a time" for a '
        'pair on this machine, specdec why plain=URL spec=URL "Once upon a time" for servers that run already. What '
        "load does to servers, specdec load measures."
    )
    parser.add_argument("words", nargs="+", metavar="PROMPT", help="the prompt; before it two servers, if any")
    parser.add_argument("--gamma", type=draft_length, default=GAMMA, help=f"draft length of a pair (default {GAMMA})")
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help=f"new tokens (default {NEW_TOKENS})")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of the race (default {RUNS})")
    parser.add_argument("--chat", action="store_true", help="send the prompt as a message of a chat")
    parser.add_argument("--model", help="the model's name in requests to servers; needed where one has several")
    add_deadline(parser)
    add_grammar_arguments(parser)
    add_pair_arguments(parser)
