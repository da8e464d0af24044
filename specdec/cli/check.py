"""Check whether a target and a draft work together: ``specdec check TARGET DRAFT``."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Console

from specdec.cli.output import console_of
from specdec.cli.terminal import refused
from specdec.drafters.base import Finding
from specdec.errors import IncompatiblePair, SpecdecError
from specdec.models.loading import Part, plan_pair
from specdec.models.pair import silence_libraries
from specdec.models.pair_check import check_pair, own_drafts
from specdec.models.published import published_for
from specdec.models.settings import LoadOptions
from specdec.report.engine_flags import serving
from specdec.report.link_settings import GAMMA

SIGNS = {"good": "+", "note": "!", "bad": "x"}


def main(arguments: Namespace) -> None:
    silence_libraries()
    console = console_of(highlight=False)
    try:
        options = LoadOptions(arguments.device, arguments.dtype, arguments.dtype)
        plan = plan_pair(arguments.target, arguments.draft, options)
        findings = check_pair(plan)
    except IncompatiblePair as error:
        plan, findings = None, [Finding("bad", "Pair", str(error))]
    except SpecdecError as error:
        raise refused(error) from error
    for finding in findings:
        console.print(f"{SIGNS[finding.level]} {finding.topic}: {finding.sentence}")
    if plan is not None and plan.draft is None:
        _show_flags(console, plan.target)
    raise SystemExit(any(finding.level == "bad" for finding in findings))


def _show_flags(console: Console, target: Part) -> None:
    """Print for each draft that the check names how servers are told to use it, at a draft length of ``GAMMA``."""
    described = [method.describe() for method in own_drafts(target)]
    named = [(facts["text"], serving(facts["kind"], "", GAMMA)) for facts in described]
    for draft in published_for(target.checkpoint.name):
        named.append((draft.text, serving(draft.kind, draft.name, GAMMA, draft.parallel)))
    for text, served in named:
        for engine, flags in served.items():
            console.print(f"  {text}, {engine}: {flags}")
