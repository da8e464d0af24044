"""Serve the page: ``specdec page``, or ``python app.py``; then open the address it prints."""

from __future__ import annotations

import ipaddress
import os
import sys
from argparse import Namespace
from dataclasses import replace
from typing import Any

if os.environ.get("SPACES_ZERO_GPU"):
    import spaces  # noqa: F401 - it replaces parts of torch and gradio, so it comes before whatever imports them

from specdec.cli.arguments import leave_a_core, plan_of
from specdec.cli.terminal import refused
from specdec.errors import SpecdecError
from specdec.models.pair_slot import Slot
from specdec.servers.address import require_names
from specdec.ui.jobs.limits import LOCAL, PUBLIC, Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.page import build
from specdec.ui.server.launch import serve_until_stopped
from specdec.ui.server.log_lines import log_to_terminal

OPEN_TO_ALL = (
    "Anyone who has the address can use this page, within the limits of a public page. "
    "--auth USER:PASSWORD asks them for a password."
)


def main(args: Namespace) -> None:
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
        servers = [replace(server, model=args.model) for server in args.server]
        if servers:
            require_names(servers)
        elif args.model is not None:
            raise SpecdecError("--model is of servers, and none is named; --target and --draft name a pair.")
        slot = Slot(plan_of(args))
    except SpecdecError as error:
        raise refused(error) from error
    if public and not space and auth is None:
        print(OPEN_TO_ALL, file=sys.stderr)
    journal, proxies = JobLog(args.log_prompts), args.behind_proxy or (None if tunnel else 0)
    options: dict[str, Any] = {"proxies": proxies, "servers": servers}
    if os.environ.get("SPACES_ZERO_GPU"):
        from specdec.ui.jobs.zerogpu import zero_run

        page = build(slot, PUBLIC, zero_run(slot.pair), journal, **options)  # ZeroGPU's processes know only this pair
    else:
        page = build(slot, _limits(public, args.allow_pairs), None, journal, **options)
    serve_until_stopped(page, server_name=host, server_port=args.port, share=share, auth=auth, root_path=args.root_path)


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
