"""Measure a pair on this machine over a prompt set: ``python -m specdec.measure.bench``.

Prompts x lanes x draft lengths x runs, interleaved (``specdec.measure.trials``). A lane's figure in a run is its
decode tokens over its decode seconds (those after the first token), all prompts together; its speed-up is that over
plain ``generate``'s in the same run. The table shows medians over the runs, with the lowest and highest. With
``--results`` an interrupted run goes on where it was; under ``accelerate launch`` each process takes its share of the
prompts.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from specdec.cli.arguments import add_pair_arguments, console_of, gamma_of, leave_a_core, pair_of
from specdec.engine.request import machine, versions
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.lanes.transformers_lanes import cannot_assist
from specdec.measure.direct import driven_over_direct
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.summary import BASELINE, COLUMNS, best_gamma, cells, find, rows, summarise
from specdec.measure.trials import INTERVAL, Plan, ResultsFile, Trial, entrants_of, trials
from specdec.models.pair import Pair, quiet
from specdec.report import words
from specdec.report.why import headline, reasons

LANES = ("generate", "gamma-0", "speculative", "assisted", "prompt-lookup")


def measure(pair: Pair, plan: Plan, path: Path | None) -> list[Trial]:
    """Run a plan, with what ``path`` holds of it taken as done; in each process of a launch its share of the prompts.

    Every process returns all trials. ``path`` lies on the main process's machine; the others write beside it. What one
    process refuses, all of them raise: none may wait for one that has left.
    """
    state = PartialState()
    main = state.is_main_process
    file = ResultsFile(path, pair, plan, state.process_index) if path else None
    known: list[Trial] = []
    with _together():
        known = file.read() if file else []
    known = _all(known)
    if file:
        # In this order a kill at any time leaves every trial in some file.
        for turn in (main, not main):
            with _together():
                if turn:
                    file.begin(known)
    done = {trial.key for trial in known}
    with state.split_between_processes([item.name for item in plan.prompts]) as names:
        mine = set(names)
    left = sum(item.name in mine and (run, item.name, *entrant) not in done for run, item, entrant in plan.steps())
    with _together():
        steps = trials(pair, plan, done, mine)
    found: list[Trial] = []
    with Progress(*Progress.get_default_columns(), transient=True, disable=not main) as bar:
        task = bar.add_task("Measuring", total=left)
        for trial in filter(None, steps):
            found.append(trial)
            bar.advance(task)
            if file:
                file.add(trial)
    every = _all([*known, *found] if main else found)
    if file:
        if main:
            file.merge(every)
        state.wait_for_everyone()
        file.clear()
    return every


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Raise in every process what any of them refuses."""
    problem = None
    try:
        yield
    except SpecdecError as error:
        problem = str(error)
    if problems := [found for found in gather_object([problem]) if found]:
        raise InvalidInput(problems[0])


def _all(found: list[Trial]) -> list[Trial]:
    """The trials of all processes, each once."""
    return list({trial.key: trial for trial in gather_object(found)}.values())


def table(trials: Sequence[Trial]) -> Table:
    """The figures of every category and entrant."""
    out = Table(title="Decode speed after the first token; medians over the runs (lowest\u2013highest)")
    for place, column in enumerate(COLUMNS):
        out.add_column(column, justify="left" if place < 2 else "right")
    for row in rows(trials):
        out.add_row(*cells(row))
    return out


def markdown(trials: Sequence[Trial]) -> str:
    """The same as a Markdown table."""
    lines = [COLUMNS, ["---"] * 2 + ["---:"] * (len(COLUMNS) - 2), *map(cells, rows(trials))]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines) + "\n"


def as_csv(trials: Sequence[Trial]) -> str:
    """The rows as plain numbers: seconds, factors and shares, not percent."""
    found, out = rows(trials), io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


def as_json(pair: dict[str, Any], plan: Plan, trials: Sequence[Trial]) -> str:
    """Everything: what was measured on what, the rows, and every trial."""
    about = {"pair": pair, "params": asdict(plan.params), "versions": versions(), "runs": plan.runs}
    return json.dumps(about | {"rows": rows(trials), "trials": [asdict(trial) for trial in trials]}, indent=1) + "\n"


EXPORTS = {".csv": as_csv, ".md": markdown}


def auto_share(trials: Iterable[Trial]) -> dict[str, float]:
    """Speed at "auto" over that at the best fixed draft length, one figure a prompt; empty without both or two runs.

    The best is picked on every second run and both are scored on the others, so that luck does not choose it. Each
    speed is one over plain ``generate``'s in the same run.
    """
    rates = {trial.key: trial.metrics.tokens_per_second for trial in trials}
    runs = sorted({run for run, *_ in rates})
    fixed = {(lane, g) for _, _, lane, g in rates if lane == "gamma-0" or (lane == "speculative" and g != "auto")}
    if ("speculative", "auto") not in {key[2:] for key in rates} or not fixed or len(runs) < 2:
        return {}

    def gain(entrant: tuple, prompt: str, scored: list[int]) -> float:
        return median(rates[run, prompt, *entrant] / rates[run, prompt, *BASELINE] for run in scored)

    shares = {}
    for prompt in dict.fromkeys(key[1] for key in rates):
        best = max(fixed, key=lambda entrant: gain(entrant, prompt, runs[::2]))
        shares[prompt] = gain(("speculative", "auto"), prompt, runs[1::2]) / gain(best, prompt, runs[1::2])
    return shares


def repetition(trials: Iterable[Trial]) -> str:
    """Share of repeated 4-grams in plain ``generate``'s text: text that runs in circles flatters every acceptance."""
    shares = {t.prompt: repeated_ngrams(t.token_ids) for t in trials if t.entrant == BASELINE}
    if len(shares) > 8:
        return f"Repeated 4-grams in the median text: {words.percent(median(shares.values()))}."
    return "Repeated 4-grams: " + ", ".join(f"{name} {words.percent(share)}" for name, share in shares.items()) + "."


def against_assisted(trials: Sequence[Trial]) -> str:
    """Our speed-up over transformers' assisted generation, at each draft length that both ran at."""
    lengths = sorted({trial.gamma for trial in trials if trial.lane == "assisted"})
    rivals = {gamma: find(summarise(trials, ("assisted", gamma)), ("speculative", gamma)) for gamma in lengths}
    return ", ".join(f"\u03b3 {gamma} {rival.spread}" for gamma, rival in rivals.items() if rival and rival.gains)


def report(console: Console, pair: Pair, plan: Plan, trials: Sequence[Trial]) -> None:
    """Everything there is to say in a terminal."""
    console.print(f"Pair: {words.pair_line(pair.describe())}\nMachine: {machine(pair.device)} {versions()}")
    console.print(f"{len(plan.prompts)} prompts, {plan.params.max_new_tokens} tokens each, {plan.runs} runs.")
    console.print(table(trials))
    console.print(repetition(trials))
    summaries = summarise(trials)
    if shares := auto_share(trials):
        each = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        console.print(
            f"\u03b3 auto against the best fixed \u03b3: {median(shares.values()):.2f} in the median ({each})."
        )
    console.print(f"{headline(summaries)} {reasons(summaries)}")
    shares = [(s.gamma, s.typical.overhead_share) for s in summaries if s.lane == "speculative"]
    told = ", ".join(f"\u03b3 {gamma} {words.percent(share, 1)}" for gamma, share in shares if share is not None)
    console.print(f"Time outside the models' passes: {told or 'nothing was drafted'}.")
    if rivals := against_assisted(trials):
        console.print(f"Against assisted generation at the same \u03b3: {rivals}.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdec.measure.bench", description=__doc__.split("\n\n")[0])
    add_pair_arguments(parser)
    parser.add_argument(
        "--prompts", type=Path, default=EXAMPLES, help="JSON lines: ours, Spec-Bench, MT-bench, HumanEval"
    )
    parser.add_argument("--lanes", nargs="+", choices=LANES, help="default: all but prompt-lookup")
    parser.add_argument("--gammas", type=gamma_of, nargs="+", default=[2, 3, 4, 5, 6, 8], help="lengths, or auto")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--direct", action="store_true", help="also measure what the decoding thread costs a lane")
    parser.add_argument("--results", type=Path, help="JSON lines to keep every call in, and to go on from")
    parser.add_argument("--export", type=Path, nargs="+", default=[], help="tables to write: .csv, .json or .md")
    arguments = parser.parse_args()
    quiet()
    leave_a_core()
    # Before the models: it gives each process of a launch its GPU. The slowest one may take days longer than the rest.
    PartialState(cpu=arguments.device == "cpu", timeout=timedelta(days=7))
    if unknown := [path for path in arguments.export if path.suffix not in {*EXPORTS, ".json"}]:
        parser.error(f"{unknown[0]} ends in none of .csv, .json and .md")
    if missing := [path for path in arguments.export if not path.parent.is_dir()]:
        parser.error(f"the folder of {missing[0]} does not exist")
    console = console_of(piped=132)
    try:
        pair = pair_of(arguments)
        lanes = arguments.lanes or [lane for lane in LANES[:4] if lane != "assisted" or not cannot_assist(pair)]
        if "generate" not in lanes:
            raise InvalidInput("The lane generate is what all others are compared with; add it to --lanes.")
        params = SamplingParams(arguments.tokens, temperature=arguments.temperature, seed=0, ignore_eos=True)
        items = tuple(read_prompts(arguments.prompts))
        plan = Plan(items, entrants_of(lanes, arguments.gammas), params, arguments.runs)
        found = measure(pair, plan, arguments.results)
    except SpecdecError as error:
        raise SystemExit(f"specdec: {error}") from error
    if not PartialState().is_main_process:
        return
    report(console, pair, plan, found)
    for path in arguments.export:
        text = as_json(pair.describe(), plan, found) if path.suffix == ".json" else EXPORTS[path.suffix](found)
        path.write_text(text, encoding="utf-8")
    if arguments.direct:
        best = best_gamma(summarise(found))
        gamma = best.gamma if best and best.gamma else 5
        prompts = [item.prompt for item in plan.prompts]
        for lane, ratios in driven_over_direct(pair, prompts, params, gamma, plan.runs, INTERVAL).items():
            console.print(f"{lane}, \u03b3 {gamma}: through the decoding thread / directly {words.times(ratios)}")


if __name__ == "__main__":
    main()
