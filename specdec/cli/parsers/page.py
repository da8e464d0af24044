"""The arguments of ``specdec page``."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.cli.parsers.shared import Parser, add_pair_arguments
from specdec.cli.parsers.view import RECORDINGS
from specdec.errors import InvalidInput, quoted

if TYPE_CHECKING:
    from specdec.servers.address import Address

_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[\w.~@+-]+)*", re.ASCII)


def page_arguments(parser: Parser) -> None:
    parser.description = "Serve the page: specdec page, or python app.py; then open the address it prints."
    add_pair_arguments(parser)
    parser.add_argument(
        "--static",
        type=Path,
        metavar="PATH",
        help="serve nothing: write a page of recorded races that needs no server, as the folder PATH, or as one file "
        "if PATH ends in .html",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help=f"for --static: {RECORDINGS}; default: those that ship"
    )
    # On a Space there is no command line, so the environment names the pair.
    parser.set_defaults(target=os.environ.get("SPECDEC_TARGET"), draft=os.environ.get("SPECDEC_DRAFT"))
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 lets other machines in")
    parser.add_argument("--port", type=int, help="port to listen on; default: the first free port from 7860")
    parser.add_argument(
        "--behind-proxy",
        nargs="?",
        type=_count,
        const=1,
        metavar="COUNT",
        help="the page is public, and COUNT trusted proxies in front of it (default: 1) name its visitors in "
        "X-Forwarded-For",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        type=_path,
        default=os.environ.get("GRADIO_ROOT_PATH", ""),
        help="the path under which a proxy shows the page, such as /tool, whether or not the proxy passes it on; the "
        "environment variable GRADIO_ROOT_PATH does the same",
    )
    parser.add_argument("--share", action="store_true", help="open a public link through Gradio's tunnel")
    parser.add_argument(
        "--auth",
        metavar="USER:PASSWORD",
        default=os.environ.get("SPECDEC_AUTH"),
        help="ask visitors for this name and password; the environment variable SPECDEC_AUTH does the same",
    )
    parser.add_argument(
        "--server",
        action="append",
        type=_server,
        default=[],
        metavar="NAME=URL",
        help="a server that visitors may race on the tab Your server, also those of a public page; give two or more, "
        "the one without speculation first. The environment variable SPECDEC_KEY_NAME has its key",
    )
    parser.add_argument("--model", help="the model's name in requests to these servers; needed where one has several")
    parser.add_argument("--allow-pairs", action="store_true", help="visitors of a public page may load listed pairs")
    parser.add_argument("--log-prompts", action="store_true", help="write prompts in the log, not only their lengths")


def _server(text: str) -> Address:
    """Read a server. What cannot be read is not repeated, because it may hold a key."""
    from specdec.servers.address import named_address

    try:
        found = named_address(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found is None:
        raise argparse.ArgumentTypeError("give a name and an address, such as plain=http://127.0.0.1:8000")
    return found


def _count(text: str) -> int:
    """Read the number of proxies."""
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)} is no number of proxies; give how many trusted proxies a request passes, 1 or more"
        )
    return int(text[:9])


def _path(text: str) -> str:
    """Read a path of the page, with or without a slash at its end. Returns it without."""
    path = text.rstrip("/")
    if not _PATH.fullmatch(path) or (text and not text.startswith("/")):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)} is no path of a page; give a path such as /tool: without host and query, of letters, "
            "digits and . _ ~ @ + - between its slashes (the variable GRADIO_ROOT_PATH takes the same)"
        )
    return path
