"""Measure a pair on this machine over a prompt set: ``specdec bench``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from accelerate import PartialState

from specdec.cli.arguments import leave_a_core, pair_of
from specdec.cli.exports import export_trials, write_exports
from specdec.cli.output import console_of
from specdec.cli.parsers.shared import measured_params_of
from specdec.cli.terminal import OPTIONS, refused, warn
from specdec.engine.policy import policy_of
from specdec.engine.request import Request, make_request
from specdec.errors import InvalidInput, SpecdecError, with_names
from specdec.lanes.race import start
from specdec.lanes.table import BASELINE, FREE_DRAFT, LANES, Lane, lane_configs, row_of
from specdec.measure.bench import run_plan_distributed
from specdec.measure.plan import Plan
from specdec.measure.prompts import EXAMPLES, NAME, Choice, read_prompts
from specdec.measure.results.file import ResultsFile, measured_on, results_text
from specdec.measure.results.format import read_results
from specdec.measure.roofline import limit_of, limit_record
from specdec.measure.shapes import recorded
from specdec.models.pair import Pair, silence_libraries
from specdec.models.shapes import shape_pair
from specdec.report import sentences
from specdec.report.benchmark import report, show_table
from specdec.report.compare import COMPARED, compare_results, comparison_table
from specdec.text import whole_text

NAMES = OPTIONS | {"gamma": "--gammas"}


def main(arguments: Namespace) -> None:
    if arguments.compare:
        _compare(arguments.compare, arguments.export)
        return
    silence_libraries()
    leave_a_core()
    # Before the models, because it gives each process of a launch its GPU. The slowest process may take days longer.
    PartialState(cpu=arguments.device == "cpu", timeout=timedelta(days=7))
    console = console_of(piped=132)
    pair = plan = limit = None
    try:
        asked = _asked(arguments)  # first, so that wrong settings are refused before models are read or made
        pair = _pair_of(arguments)
        plan, left_out = _with_configs(asked, arguments, pair)
        if arguments.shape:
            pair = recorded(pair, plan.prompts, plan.params)
        if PartialState().is_main_process:
            limit = limit_of(pair)
        found = run_plan_distributed(pair, plan, arguments.results)
    except SpecdecError as error:
        raise refused(error, NAMES) from error
    except KeyboardInterrupt:
        if PartialState().is_main_process:
            warn(_kept(arguments.results, pair, plan))
        raise SystemExit(130) from None
    if limit is None:  # not the main process
        return
    about, record = measured_on(pair), limit_record(limit, pair, plan, found)
    written = export_trials(arguments.export, about, plan, found, record)
    report(console, about, plan, found, record, left_out)
    if not written:
        raise SystemExit(1)


def _asked(arguments: Namespace) -> Plan:
    """The plan without its configs, which depend on the pair."""
    for gamma in arguments.gammas:
        policy_of(gamma)
    params = measured_params_of(arguments)
    name = NAME if arguments.prompts == EXAMPLES else whole_text(arguments.prompts.name)
    choice = Choice(name, arguments.first, arguments.chat)
    return Plan(choice.of(read_prompts(arguments.prompts)), (), params, arguments.runs, choice)


def _with_configs(asked: Plan, arguments: Namespace, pair: Pair) -> tuple[Plan, list[str]]:
    """The plan with the lanes that were asked for, or all that the pair can run, and why each of the others cannot."""
    request = make_request(pair, asked.prompts[0].message(pair.tokenizer), asked.params)
    refusals = {lane.key: _refusal(lane, request, arguments.gammas) for lane in LANES if lane.bench}
    lanes = arguments.lanes or [key for key, refusal in refusals.items() if not refusal]
    if asked.params.grammar is not None and not arguments.lanes:
        lanes.append(FREE_DRAFT)  # what obeying changes
    if BASELINE.key not in lanes:
        raise InvalidInput("All lanes are compared with the lane generate; add it to --lanes.")
    left_out = [
        sentences.LEFT_OUT.format(lane=row_of(key).choice, reason=refusal)
        for key, refusal in refusals.items()
        if refusal and not arguments.lanes
    ]
    return replace(asked, configs=lane_configs(lanes, arguments.gammas)), left_out


def _refusal(lane: Lane, request: Request, gammas: Sequence[int | str]) -> str | None:
    """Why a lane that was not asked for is left out; transformers' lanes refuse some draft lengths and settings."""
    if reason := lane.refusal(request.pair):
        return reason
    try:
        for config in lane_configs([lane.key], gammas) if lane.lengths == "fixed" else ():
            start(request, config)
    except SpecdecError as error:
        return with_names(error, NAMES)
    return None


def _compare(paths: Sequence[Path], exported: Sequence[Path]) -> None:
    """Put several results files into one table."""
    try:
        found = compare_results([read_results(results_text(path), path.name) for path in paths])
    except SpecdecError as error:
        raise refused(error, {}) from error  # it names the fields of a file
    names = [path.name for path in paths]
    written = write_exports(exported, {suffix: partial(export, found, names) for suffix, export in COMPARED.items()})
    console = console_of(piped=180)
    show_table(console, comparison_table(found))
    if found.sentence:
        console.print(found.sentence)
    if not written:
        raise SystemExit(1)


def _pair_of(arguments: Namespace) -> Pair:
    """The named pair, or the pair of a shape."""
    if not arguments.shape:
        if arguments.agreement is not None:
            raise InvalidInput("--agreement needs --shape, which is not given; add --shape, or leave --agreement out.")
        return pair_of(arguments)
    if arguments.target or arguments.draft or arguments.bits:
        raise InvalidInput("--shape names both models; leave --target, --draft and --bits out.")
    if arguments.temperature:
        raise InvalidInput(
            "--temperature is given, but the draft of a shape works only with greedy text; leave it out."
        )
    agreement = 0.8 if arguments.agreement is None else arguments.agreement
    options = (arguments.device, arguments.dtype, arguments.engine, arguments.draft_weights)
    return shape_pair(arguments.shape, agreement, *options)


def _kept(results: Path | None, pair: Pair | None, plan: Plan | None) -> str:
    """What is kept of an interrupted measurement, in a sentence."""
    if pair is None or plan is None:
        return "Stopped before anything was measured."
    if results is None:
        return (
            "Stopped; nothing is kept. With --results FILE, every call is kept and the same command continues from it."
        )
    calls = len(ResultsFile(results, pair, plan).read())
    return f"Stopped: {calls} of {len(plan)} calls are kept in {results}; the same command continues from there."
