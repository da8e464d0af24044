"""The arguments by which every program names its pair, and the pair they name."""

from __future__ import annotations

import argparse

from specdec.models import Pair, load_pair


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """``--target``, ``--draft``, ``--device`` and ``--dtype``."""
    parser.add_argument("--target", help="hub id or folder; default: the embedded pair")
    parser.add_argument("--draft", help="hub id or folder")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16; for both models")


def pair_of(arguments: argparse.Namespace) -> Pair:
    """Load the pair; an empty name counts as none. Raises as ``load_pair`` does."""
    return load_pair(
        arguments.target or None,
        arguments.draft or None,
        device=arguments.device,
        dtype=arguments.dtype,
        draft_dtype=arguments.dtype,
    )
