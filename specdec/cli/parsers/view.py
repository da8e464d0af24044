"""The arguments of ``specdec view``."""

from __future__ import annotations

from pathlib import Path

from specdec.cli.parsers.shared import Parser

RECORDINGS = (
    "recordings (run --export race.jsonl, or the page's Share menu), or traces (run --json, or your own loop's)"
)


def view_arguments(parser: Parser) -> None:
    parser.description = "Open recorded races in the browser, without a server: specdec view race.jsonl."
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=RECORDINGS)
