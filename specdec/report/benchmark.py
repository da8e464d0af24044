"""The tables of a benchmark, for a terminal and as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from specdec.lanes.table import BASELINE, LOOP, Entrant
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.plan import Plan, Trial
from specdec.measure.summary import auto_share, find, rows, summarise
from specdec.report import words
from specdec.report.overall import overall
from specdec.report.summary import COLUMNS, cells


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


def as_json(about: dict[str, Any], plan: Plan, trials: Sequence[Trial]) -> str:
    """Everything: what was measured on what (``about``: pair, machine and versions), the rows, and every trial."""
    asked = {"params": asdict(plan.params), "runs": plan.runs}
    found = {"rows": rows(trials), "trials": [asdict(trial) for trial in trials]}
    return json.dumps(about | asked | found, indent=1) + "\n"


EXPORTS = {".csv": as_csv, ".md": markdown}


def repetition(trials: Iterable[Trial]) -> str:
    """Share of repeated 4-grams in plain ``generate``'s text: text that runs in circles flatters every acceptance."""
    shares = {t.prompt: repeated_ngrams(t.token_ids) for t in trials if t.entrant == BASELINE}
    if len(shares) > 8:
        return f"Repeated 4-grams in the median text: {words.percent(median(shares.values()))}."
    return "Repeated 4-grams: " + ", ".join(f"{name} {words.percent(share)}" for name, share in shares.items()) + "."


def against_assisted(trials: Sequence[Trial]) -> str:
    """Our speed-up over transformers' assisted generation, at each draft length that both ran at."""
    lengths = sorted({t.gamma for t in trials if t.lane == "assisted" and isinstance(t.gamma, int)})
    rivals = {
        gamma: find(summarise(trials, Entrant("assisted", gamma)), Entrant("speculative", gamma)) for gamma in lengths
    }
    return ", ".join(
        f"\u03b3 {gamma} {words.times(rival.gains)}" for gamma, rival in rivals.items() if rival and rival.gains
    )


def report(console: Console, about: dict[str, Any], plan: Plan, trials: Sequence[Trial]) -> None:
    """Everything there is to say in a terminal."""
    console.print(f"Pair: {words.pair_line(about['pair'])}\nMachine: {about['machine']} {about['versions']}")
    console.print(f"{len(plan.prompts)} prompts, {plan.params.max_new_tokens} tokens each, {plan.runs} runs.")
    console.print(table(trials))
    console.print(repetition(trials))
    summaries = summarise(trials)
    if shares := auto_share(trials):
        each = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        console.print(
            f"\u03b3 auto against the best fixed \u03b3: {median(shares.values()):.2f} in the median ({each})."
        )
    found = overall(trials, plan)
    console.print(" ".join([found.headline, *found.notes]))
    outside = [(s.gamma, s.middle("overhead_share")) for s in summaries if s.lane == LOOP.lane and s.gamma]
    told = ", ".join(f"\u03b3 {gamma} {words.percent(share, 1)}" for gamma, share in outside if share is not None)
    console.print(f"Time outside the models' passes: {told or 'nothing was drafted'}.")
    if rivals := against_assisted(trials):
        console.print(f"Against assisted generation at the same \u03b3: {rivals}.")
