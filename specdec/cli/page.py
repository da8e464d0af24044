"""Serve the page: ``specdec page``, or ``python app.py``; then open the address it prints."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

if os.environ.get("SPACES_ZERO_GPU"):
    import spaces  # noqa: F401 - it replaces parts of torch and gradio, so it comes before whatever imports them

from specdec.cli.arguments import Parser, add_pair_arguments, leave_a_core, plan_of
from specdec.cli.terminal import refused
from specdec.errors import SpecdecError, quoted
from specdec.models.pair_slot import Slot
from specdec.ui import build, serve_until_stopped
from specdec.ui.jobs.limits import LOCAL, PUBLIC, Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.server.log_lines import log_to_terminal

_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[\w.~@+-]+)*", re.ASCII)
OPEN_TO_ALL = (
    "Anyone who has the address can use this page, within the limits of a public page. "
    "--auth USER:PASSWORD asks them for a password."
)


def main(argv: Sequence[str]) -> None:
    parser = Parser(prog="specdec page", description=__doc__)
    add_pair_arguments(parser)
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
    parser.add_argument("--allow-pairs", action="store_true", help="visitors of a public page may load listed pairs")
    parser.add_argument("--log-prompts", action="store_true", help="write prompts in the log, not only their lengths")
    args = parser.parse_args(argv)
    log_to_terminal()
    space = bool(os.environ.get("SPACE_ID"))
    # If they are not given, Gradio reads both from its own variables.
    host = args.host or os.environ.get("GRADIO_SERVER_NAME") or ("0.0.0.0" if space else "127.0.0.1")
    share = not space and (args.share or os.environ.get("GRADIO_SHARE", "").lower() == "true")
    if share and not _is_loopback(host):
        sys.exit(
            "--share works only if the page listens on this machine alone, but --host or GRADIO_SERVER_NAME sets "
            f"{host}. Leave one of them out."
        )
    tunnel = space or share  # with proxies of others, whose number is not known
    public = tunnel or args.behind_proxy is not None or not _is_loopback(host)
    leave_a_core()
    try:
        auth = _auth(args.auth)
        slot = Slot(plan_of(args))
    except SpecdecError as error:
        raise refused(error) from error
    if public and not space and auth is None:
        print(OPEN_TO_ALL, file=sys.stderr)
    journal, options = JobLog(args.log_prompts), {"proxies": args.behind_proxy or (None if tunnel else 0)}
    if os.environ.get("SPACES_ZERO_GPU"):
        from specdec.ui.jobs.zerogpu import zero_run

        page = build(slot, PUBLIC, zero_run(slot.pair), journal, **options)  # ZeroGPU's processes know only this pair
    else:
        page = build(slot, _limits(public, args.allow_pairs), None, journal, **options)
    serve_until_stopped(page, server_name=host, server_port=args.port, share=share, auth=auth, root_path=args.root_path)


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


def _limits(public: bool, allow_pairs: bool) -> Limits:
    """The limits of the page. One that other machines can reach is always public."""
    if not public:
        return LOCAL
    return replace(PUBLIC, pairs="listed") if allow_pairs else PUBLIC


def _auth(text: str | None) -> tuple[str, str] | None:
    user, colon, password = (text or "").partition(":")
    if not text:
        return None
    if not (user and colon and password):
        raise SpecdecError("--auth needs USER:PASSWORD, each with at least one character.")
    return user, password


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
