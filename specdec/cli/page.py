"""Serve the page: ``specdec page``, or ``python app.py``; then open the address it prints."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

if os.environ.get("SPACES_ZERO_GPU"):
    import spaces  # noqa: F401 - it replaces parts of torch and gradio, so it comes before whatever imports them

from specdec.cli.arguments import add_pair_arguments, leave_a_core, plan_of
from specdec.errors import SpecdecError
from specdec.models.slot import Slot
from specdec.ui import build, serve
from specdec.ui.limits import LOCAL, PUBLIC


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="specdec page", description=__doc__)
    add_pair_arguments(parser)
    # On a Space there is no command line: the environment names the pair.
    parser.set_defaults(target=os.environ.get("SPECDEC_TARGET"), draft=os.environ.get("SPECDEC_DRAFT"))
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 lets other machines in")
    parser.add_argument("--port", type=int, help="port to listen on; else the first free one from 7860")
    parser.add_argument("--share", action="store_true", help="open a public link through Gradio's tunnel")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING)
    leave_a_core()
    try:
        slot = Slot(plan_of(args))
    except SpecdecError as error:
        sys.exit(str(error))
    demo = build(slot, PUBLIC if os.environ.get("SPACE_ID") else LOCAL)
    serve(demo, server_name=args.host, server_port=args.port, share=args.share)
