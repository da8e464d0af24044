"""The arguments of every command. Nothing here loads torch, so help and wrong options are answered at once."""

from __future__ import annotations

from specdec.cli.parsers.bench import bench_arguments
from specdec.cli.parsers.check import check_arguments
from specdec.cli.parsers.load import load_test_arguments
from specdec.cli.parsers.lossless import lossless_arguments
from specdec.cli.parsers.page import page_arguments
from specdec.cli.parsers.run import run_arguments
from specdec.cli.parsers.servers import servers_arguments
from specdec.cli.parsers.shared import Parser
from specdec.cli.parsers.sweep import sweep_arguments
from specdec.cli.parsers.view import view_arguments
from specdec.cli.parsers.why import why_arguments
from specdec.version import VERSION

# For each command, what it does in a line, and what adds its arguments to a parser.
COMMANDS = {
    "run": ("race a pair on one prompt (the default: specdec PROMPT)", run_arguments),
    "sweep": ("measure every draft length", sweep_arguments),
    "bench": ("measure lanes over a prompt set", bench_arguments),
    "check": ("check whether a target and a draft work together", check_arguments),
    "why": ("name what limits speculation", why_arguments),
    "servers": ("race servers that run already, by their addresses", servers_arguments),
    "load": ("measure servers that run already with many calls at once", load_test_arguments),
    "lossless": ("compare the texts of two servers that run already", lossless_arguments),
    "page": ("serve the page, or write recorded races as a page without a server", page_arguments),
    "view": ("open recorded races in the browser, without a server", view_arguments),
}


def whole_parser() -> Parser:
    """The parser of ``specdec`` with all its commands, for its own help and options."""
    parser = Parser(prog="specdec", epilog="specdec COMMAND --help lists the options of a command.")
    parser.add_argument("--version", action="version", version=f"specdec {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (text, add_arguments) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=text))
    return parser


def parser_of(command: str) -> Parser:
    """The parser of one command. Its message on an unknown option shows the usage of that command."""
    parser = Parser(prog=f"specdec {command}")
    _, add_arguments = COMMANDS[command]
    add_arguments(parser)
    return parser
