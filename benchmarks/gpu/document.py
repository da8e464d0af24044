"""Writes a campaign's results into the documents: the tables, and in one place the sentence on where it has run."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import table, with_section
from benchmarks.gpu import load
from benchmarks.gpu.campaign import STEPS, Found, line_of_record
from specdec.cli.graphs_tried import GRAPHS_TRIED
from specdec.report import numbers

REHEARSAL = (
    "**A rehearsal on a CPU, with models a thousandth of the size. These figures say nothing about a GPU and are no "
    "result.**"
)
COLUMNS = (
    "Target and draft", "`generate`", "assisted", "our loop, eager", "our loop, graph", "speculative, eager",
    "speculative, graph", "of that speculation", "c", "v", "same text", "share of the limit", "outside passes",
)  # fmt: skip
WIDTH, LINE = 125, 120  # characters of a line, of a document and of code
ROWS = (1, 2, 5, 9, 17)  # whose growth is shown
WITH = "- {tried} [Performance](docs/performance.md#on-a-gpu) has the figures. All others are from CPUs."


class CampaignResults:
    """The results of a campaign by step and part."""

    def __init__(self, folder: Path):
        self.steps: dict[str, dict[str, Found]] = {}
        self.rehearsal = False
        for step in STEPS:
            path = folder / f"{step}.json"
            if path.exists():
                known = json.loads(path.read_text(encoding="utf-8"))
                self.steps[step], self.rehearsal = known["parts"], known["rehearsal"]
        if "machine" not in self.found("facts", "facts"):
            raise SystemExit(f"{folder} has no results of this program; run it with --out {folder} first.")

    def found(self, step: str, part: str) -> Found:
        """What a part has found; {} if it has not run."""
        return self.steps.get(step, {}).get(part, {}).get("found", {})

    def shapes(self, compiled: bool = False) -> list[Found]:
        """What the parts of the table have found, if they have lanes; with ``compiled`` those of compiled passes."""
        found = [record["found"] for record in self.steps.get("table", {}).values()]
        return [each for each in found if each.get("lanes") and ("compiling_seconds" in each) is compiled]


def write_all(results: Path, root: Path) -> None:
    """Write the results in the folder ``results`` into the documents of the checkout ``root``."""
    known = CampaignResults(results)
    tried = sentence(known)
    sections = [("docs/performance.md", "gpu:performance", performance(known))]
    if not known.rehearsal:
        sections += [
            ("README.md", "gpu:readme", readme(known)),
            ("README.md", "gpu:limits", WITH.format(tried=tried)),
            ("docs/guide.md", "gpu:guide", tried),
        ]
    for name, section, text in sections:
        path = root / name
        path.write_text(with_section(path.read_text(encoding="utf-8"), section, wrapped(text)), encoding="utf-8")
    module = root / "specdec" / "cli" / "graphs_tried.py"
    usual, _, _ = module.read_text(encoding="utf-8").partition("GRAPHS_TRIED")
    whole = len(json.dumps(tried)) <= LINE - 4  # as the formatter writes it
    parts = "".join(f"    {json.dumps(part)}\n" for part in ([tried] if whole else re.split(r"(?<=: )", tried)))
    module.write_text(f"{usual}GRAPHS_TRIED = (\n{parts})\n", encoding="utf-8")
    print(tried)


def wrapped(text: str) -> str:
    """The lines of a section, wrapped where they are not those of a table."""
    lines = []
    for line in text.splitlines():
        indent = "  " * line.startswith("- ")
        plain = not line.startswith("|") and len(line) > WIDTH
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) if plain else [line]
    return "\n".join(lines)


def sentence(known: CampaignResults) -> str:
    """Where the graph engine has run, and whether its texts were right there."""
    rows = known.found("right", "texts").get("rows", [])
    ran = [row for row in rows if row["engine"] == "graph"]
    if known.rehearsal or not ran:
        return GRAPHS_TRIED
    facts = known.found("facts", "facts")
    right = sum(row["same"] or row["tie"] for row in ran)
    return (
        f"The graph engine has run on {facts['machine']['gpu']}, with torch {facts['versions']['torch']}: "
        f"{right} of {len(ran)} of its greedy texts are those of generate."
    )


def performance(known: CampaignResults) -> str:
    """The section of docs/performance.md."""
    facts = known.found("facts", "facts")
    parts = [REHEARSAL] * known.rehearsal
    parts += [f"{about(known)} {facts.get('line', '').partition(': ')[2]}.", checks(known)]
    if shapes := known.shapes():
        parts += [settings(shapes[0]), without_empty(COLUMNS, map(cells, shapes))]
    if shapes := [found for found in shapes if found.get("passes")]:
        parts.append("Seconds of a target pass by its rows, over those of one row, captured (and eager):")
        parts.append(table(("Target", *map(str, ROWS)), map(growth, shapes)))
    if (found := known.found("table", "under load")).get("rows"):
        parts.append(load.as_table(found))
    parts += map(compiled, known.shapes(compiled=True))
    return "\n\n".join(part.strip() for part in parts if part)


def readme(known: CampaignResults) -> str:
    """The table of README.md; nothing as long as it would be empty."""
    if not (shapes := known.shapes()):
        return ""
    shown = (0, 1, 2, 3, 4, 6, 7)
    rows = [[cells(found)[at] for at in shown] for found in shapes]
    asked = shapes[0]["settings"]
    text = (
        f"{about(known)} Random weights (synthetic): times are real, texts mean nothing, and how often a guess agrees "
        f"is set ({asked['agreement']:g}, at γ {asked['gamma']}) and not measured. Factors are over plain `generate`, "
        f"medians of {numbers.runs(asked['runs'])}. A pass of `generate` mostly waits for the host. Our loop waits "
        "less, and its captured passes hardly wait at all: what it gains without a draft is no gain of speculation.\n\n"
    )
    return text + without_empty([COLUMNS[at] for at in shown], rows)


def about(known: CampaignResults) -> str:
    facts = known.found("facts", "facts")
    machine, versions = facts["machine"], facts["versions"]
    return (
        f"`python -m benchmarks.gpu` on {machine.get('gpu', machine['cpu'])}, torch {versions['torch']}, transformers "
        f"{versions['transformers']}."
    )


def checks(known: CampaignResults) -> str:
    """A line for each part that checks something, and for each that did not end."""
    lines = []
    for step in STEPS:
        for name, record in known.steps.get(step, {}).items():
            if step in ("right", "faults", "recordings") or record["state"] != "done":
                notes = record["found"].get("notes", ())
                lines.append(" ".join([f"- {step}, {name}: {line_of_record(record)}", *notes]))
    return "\n".join(lines)


def settings(found: Found) -> str:
    asked = found["settings"]
    return (
        f"Pairs of known shapes with random weights; guesses agree with probability {asked['agreement']:g}, γ "
        f"{asked['gamma']}, {asked['tokens']} greedy tokens after one prompt, {numbers.runs(asked['runs'])} in turns. "
        "Medians, with (lowest–highest) where all runs were kept. Factors are over plain `generate`. "
    )


def without_empty(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table without the columns that no row fills."""
    rows = list(rows)
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def cells(found: Found) -> list[str]:
    """A row under ``COLUMNS``. What has not been measured is empty."""
    lanes = {(lane["lane"], lane["gamma"]): lane for lane in found["lanes"]}
    gamma = found["settings"]["gamma"]
    keys = (
        ("assisted-agreeing", gamma),
        ("eager-loop", None),
        ("speculative", 0),
        ("eager", gamma),
        ("speculative", gamma),
    )
    rates, best = lanes.get(("generate", None), {}).get("tokens_per_second"), lanes["speculative", gamma]
    reached = {(row["lane"], row["gamma"]): row["share_of_limit"] for row in found.get("limit", {}).get("rows", [])}
    same, compared = (sum(lane.get(what, 0) for lane in found["lanes"]) for what in ("same_text", "compared"))
    share = reached.get(("speculative", gamma))
    return [
        _pair(found),
        f"{numbers.spread(rates, numbers.rate)} tok/s" if rates else "",
        *(numbers.times(lanes[key]["gain"]) for key in keys),
        numbers.times(best["speculation"]) if best.get("speculation") else "",
        _two(best.get("c")),
        _two(best.get("v")),
        f"{same} of {compared}" if compared else "",
        _percent(share),
        _percent(best.get("outside_passes")),
    ]


def growth(found: Found) -> list[str]:
    """How the time of a target pass grows with its rows: captured, and in brackets eager."""
    passes = found.get("passes", {})
    graph, eager = (passes.get(f"target {engine}", {}) for engine in ("graph", "eager"))
    shown = [found["shape"].partition(":")[0]]
    for rows in map(str, ROWS):
        known = rows in graph and rows in eager
        shown.append(f"{graph[rows] / graph['1']:.2f} ({eager[rows] / eager['1']:.2f})" if known else "")
    return shown


def compiled(found: Found) -> str:
    """A sentence on ``generate`` with compiled passes."""
    lanes = {lane["lane"]: lane for lane in found["lanes"] if lane["gamma"] != 0}
    ours, theirs = lanes["speculative"], lanes.get("generate-static-compiled")
    if theirs is None:
        reasons = "; ".join(f"{lane}: {reason}" for lane, reason in found["failed"].items())
        return f"{_pair(found)}: compiled passes of `generate` were not measured. {reasons}"
    over = [a / b for a, b in zip(ours["tokens_per_second"], theirs["tokens_per_second"], strict=True)]
    seconds = found["compiling_seconds"]["generate-static-compiled"]
    return (
        f"{_pair(found)}, in a run of its own: `generate` with a static cache and compiled passes runs at "
        f"{numbers.times(theirs['gain'])} plain `generate` (compiling took {seconds:.0f} s), our speculative decoding "
        f"at {numbers.times(ours['gain'])}: {numbers.times(over)} the compiled one."
    )


def _pair(found: Found) -> str:
    return found["shape"].replace(":", " ← ")


def _two(value: Any) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else numbers.percent(value)
