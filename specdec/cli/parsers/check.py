"""The arguments of ``specdec check``."""

from __future__ import annotations

from specdec.cli.parsers.shared import TARGET, Parser, add_device_arguments
from specdec.drafters.forms import forms
from specdec.models.presets import PRESETS


def check_arguments(parser: Parser) -> None:
    parser.description = (
        "Check whether a target and a draft work together: specdec check TARGET DRAFT. Without a draft it lists what "
        "could draft for the target, with the flags of vLLM, SGLang and llama.cpp."
    )
    parser.epilog = f"Known pairs: {', '.join(preset.name for preset in PRESETS)}."
    parser.add_argument("target", help=TARGET)
    parser.add_argument("draft", nargs="?", help=forms())
    add_device_arguments(parser)
