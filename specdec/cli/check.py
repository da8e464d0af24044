"""Check whether a target and a draft work together: ``specdec check TARGET DRAFT``."""

from __future__ import annotations

from argparse import Namespace

from specdec.cli.arguments import console_of
from specdec.cli.terminal import refused
from specdec.drafters.base import Finding
from specdec.errors import IncompatiblePair, SpecdecError
from specdec.models.loading import plan_pair
from specdec.models.pair import silence_libraries
from specdec.models.pair_check import check_pair
from specdec.models.settings import LoadOptions

SIGNS = {"good": "+", "note": "!", "bad": "x"}


def main(arguments: Namespace) -> None:
    silence_libraries()
    console = console_of(highlight=False)
    try:
        options = LoadOptions(arguments.device, arguments.dtype, arguments.dtype)
        findings = check_pair(plan_pair(arguments.target, arguments.draft, options))
    except IncompatiblePair as error:
        findings = [Finding("bad", "Pair", str(error))]
    except SpecdecError as error:
        raise refused(error) from error
    for finding in findings:
        console.print(f"{SIGNS[finding.level]} {finding.topic}: {finding.sentence}")
    raise SystemExit(any(finding.level == "bad" for finding in findings))
