"""Check whether a target and a draft work together: ``specdec check TARGET DRAFT``."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.cli.arguments import TARGET, Parser, console_of
from specdec.cli.terminal import refused
from specdec.drafters.base import Finding
from specdec.drafters.registry import forms
from specdec.errors import IncompatiblePair, SpecdecError
from specdec.models.loading import plan_pair
from specdec.models.pair import silence_libraries
from specdec.models.pair_check import check_pair
from specdec.models.presets import PRESETS

SIGNS = {"good": "+", "note": "!", "bad": "x"}


def main(argv: Sequence[str]) -> None:
    known = ", ".join(preset.name for preset in PRESETS)
    parser = Parser(prog="specdec check", description=__doc__, epilog=f"Known pairs: {known}.")
    parser.add_argument("target", help=TARGET)
    parser.add_argument("draft", help=forms())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args(argv)
    silence_libraries()
    console = console_of(highlight=False)
    try:
        plan = plan_pair(arguments.target, arguments.draft, device=arguments.device, dtype=arguments.dtype)
        findings = check_pair(plan)
    except IncompatiblePair as error:
        findings = [Finding("bad", "Pair", str(error))]
    except SpecdecError as error:
        raise refused(error) from error
    for finding in findings:
        console.print(f"{SIGNS[finding.level]} {finding.topic}: {finding.sentence}")
    raise SystemExit(any(finding.level == "bad" for finding in findings))
