"""The tables of a benchmark, for a terminal and as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table as TerminalTable

from specdec.facts import on_servers, takes_one_pass
from specdec.lanes.table import BASELINE, ENGINE, LOOP, LaneConfig
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.format import About
from specdec.measure.summary import auto_share, find, summarise, summary_rows
from specdec.report import numbers, provenance, sentences
from specdec.report.figure_table import FigureTable, csv_table, markdown_table
from specdec.report.provenance import provenance_columns, provenance_rows
from specdec.report.recording import plain_json
from specdec.report.sweep import overall, sweep_rows

COLUMNS = (
    "Category", "Lane", "\u03b3", "tokens/s", "speed-up", "time saved", "acceptance", "tokens per pass", "same text",
)  # fmt: skip
MINOR = ("tokens/s", "time saved", "acceptance", "tokens per pass")
MEDIANS = (
    "Each row shows its median run by the speed-up over {plain}, after the first token; lowest to highest of all its "
    "runs in brackets. \u03b3: draft length, the guesses per round"
)
LOOP_ROW = ". Our loop without a draft: the run of the headline"
PLAINS = "Plain: the lowest and highest tokens/s of its runs"
# What the lanes on servers are called in rows that programs read.
ON_SERVERS = {BASELINE.lane: "plain server", LOOP.lane: "speculative server"}
CLOSED_FORM_COLUMNS = ("\u03b3", "acceptance", "c", "v", "predicted", "measured", "measured / predicted")
LIMIT_COLUMNS = ("Lane", "\u03b3", "least ms per token (computed)", "ms per token (measured)", "share of the limit")


def benchmark_table(rows: Sequence[dict[str, Any]], servers: bool = False) -> FigureTable:
    """The rows of ``measure.summary.summary_rows`` for a person to read. ``servers``: servers ran them."""
    caption = MEDIANS.format(plain=sentences.plain(servers)) + LOOP_ROW * (not servers)
    return FigureTable(caption, COLUMNS, [*map(summary_cells, rows)], range(2, 9), minor=MINOR, of_minor=PLAINS)


def gains_table(rows: Sequence[dict[str, Any]], servers: bool = False) -> FigureTable | None:
    """A row for each category, and in it the speed-up of each lane; None for a single category.

    ``rows``: those of ``measure.summary.summary_rows`` without the ones over all categories. ``servers``: servers ran
    them.
    """
    gains: dict[str, dict[LaneConfig, float]] = defaultdict(dict)
    for row in rows:
        found = gains[row["category"]]
        if row["speedup"] and row["lane"] != BASELINE.lane:
            found[LaneConfig(row["lane"], row["gamma"])] = row["speedup"]
    lanes = list(dict.fromkeys(config for found in gains.values() for config in found))
    if len(gains) < 2 or not lanes:
        return None
    cells = [
        [category, *(numbers.speedups([found[config]] if config in found else []) for config in lanes)]
        for category, found in gains.items()
    ]
    columns = ["Category", *map(short_name, lanes)]
    caption = f"Speed-up over {sentences.plain(servers)} in each category of prompts, of the median run"
    loop = "" if servers else ". No draft: our loop alone, in the run of the fastest draft length"
    return FigureTable(caption + loop, columns, cells, range(1, len(columns)))


def short_name(config: LaneConfig) -> str:
    """The name of a lane where there is little room. Our own lanes have their draft length alone."""
    if config == LOOP:
        return "no draft"
    if config.gamma == ENGINE:
        return config.label
    length = f"\u03b3\u00a0{config.gamma}"
    return length if config.lane == LOOP.lane else f"{config.row.label}, {length}"


def benchmark_markdown(about: About, plan: Plan, trials: Sequence[Trial]) -> str:
    """The same as a Markdown table, after lines that say what was measured, whether it is synthetic, and which run."""
    label = provenance.synthetic(about["pair"])
    head = f"{label.capitalize()}\n\n" if label else ""
    head += "".join(f"- {name}: {value}\n" for name, value in provenance_rows(about, plan).items()) + "\n"
    table = benchmark_table(summary_rows(trials), on_servers(about["pair"]))
    return f"{head}{table.caption}. {table.of_minor}.\n\n{markdown_table(table)}"


def benchmark_csv(about: About, plan: Plan, trials: Sequence[Trial]) -> str:
    """The rows as plain numbers (seconds, factors and shares, not percent), each with what was measured."""
    source = provenance_columns(about, plan)
    return csv_table([row | source for row in labelled_rows(about, trials)])


def benchmark_json(about: About, plan: Plan, trials: Sequence[Trial], limit: dict[str, Any] | None = None) -> str:
    """Everything as JSON: what was measured, verdict, rows, closed form, every trial, and the machine's limit.

    The limit (``measure.roofline``) is there if it was computed.
    """
    shares = shares_of_limit(limit) if limit else {}
    one_pass = takes_one_pass(about["pair"])
    said = overall(trials, plan, shares, one_pass, on_servers(about["pair"]))
    notes = [asdict(note) for note in said.notes]
    verdict = {"kind": said.judgement.kind, "sentence": said.headline, "notes": notes}
    asked = asdict(plan) | {"synthetic": provenance.synthetic(about["pair"]) or None, "verdict": verdict}
    found = {"rows": labelled_rows(about, trials), "closed_form": closed_form(trials, one_pass), "limit": limit}
    return plain_json(about | asked | found | {"trials": [asdict(trial) for trial in trials]}, indent=1) + "\n"


EXPORTS = {".csv": benchmark_csv, ".md": benchmark_markdown}


def labelled_rows(about: About, trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The rows of a measurement, each with the label of a synthetic one, else None."""
    label = provenance.synthetic(about["pair"]) or None
    return [row | {"synthetic": label} for row in named_rows(about, summary_rows(trials))]


def named_rows(about: About, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of ``measure.summary.summary_rows`` for programs; on servers, lanes are called so."""
    names = ON_SERVERS if on_servers(about["pair"]) else {}
    return [row | {"lane": names.get(row["lane"], row["lane"])} for row in rows]


def closed_form(trials: Sequence[Trial], one_pass: bool) -> list[dict[str, Any]]:
    """The gain over our loop without a draft for each draft length: predicted by the closed form, and measured.

    The prediction uses the measured alpha, c and v. Empty if the loop did not run. ``one_pass``: as in ``judge``.
    """
    found = [row.judgement for row in sweep_rows(summarise(trials), one_pass)]
    return [
        {"gamma": j.gamma, "alpha": j.alpha, "c": j.c, "v": j.v, "predicted": j.predicted, "measured": j.speculation}
        for j in found
        if j.predicted and j.speculation
    ]


def closed_form_table(trials: Sequence[Trial], one_pass: bool) -> FigureTable | None:
    """The same for a person to read; None if there is nothing to compare."""
    rows = []
    for found in closed_form(trials, one_pass):
        factors = [numbers.times_or_none(found[name]) for name in ("predicted", "measured")]
        share = numbers.number(found["measured"] / found["predicted"], 2)
        terms = [numbers.number(found[name], 2) for name in ("c", "v")]
        rows.append([str(found["gamma"]), numbers.percent(found["alpha"]), *terms, *factors, share])
    caption = "Gain over our loop without a draft, predicted by theory and measured"
    return FigureTable(caption, CLOSED_FORM_COLUMNS, rows, range(7)) if rows else None


def repetition(trials: Iterable[Trial]) -> str:
    """The share of repeated 4-grams in plain ``generate``'s text: repetitive text raises every acceptance."""
    shares = {t.prompt: repeated_ngrams(t.token_ids) for t in trials if t.lane_config == BASELINE}
    if len(shares) > 8:
        return f"Repeated 4-grams in the median text: {numbers.percent(median(shares.values()))}."
    return "Repeated 4-grams: " + ", ".join(f"{name} {numbers.percent(share)}" for name, share in shares.items()) + "."


def against_assisted(trials: Sequence[Trial]) -> str:
    """Our speed-up over transformers' assisted generation, at each draft length that both ran at."""
    lengths = sorted({t.gamma for t in trials if t.lane == "assisted" and isinstance(t.gamma, int)})
    rivals = {
        gamma: find(summarise(trials, LaneConfig("assisted", gamma)), LaneConfig("speculative", gamma))
        for gamma in lengths
    }
    return ", ".join(
        f"\u03b3 {gamma}: {numbers.times(rival.gains)}" for gamma, rival in rivals.items() if rival and rival.gains
    )


def report(
    console: Console, about: About, plan: Plan, trials: Sequence[Trial], limit: dict[str, Any], left_out: Sequence[str]
) -> None:
    """Print a benchmark's report. ``left_out``: a sentence for each lane that the pair cannot run."""
    label = provenance.synthetic(about["pair"])
    for name, value in provenance_rows(about, plan).items():
        console.print(f"{name}: {value}")
    for sentence in left_out:
        console.print(sentence)
    show_table(console, benchmark_table(summary_rows(trials)), label)
    if not label:  # the text of random weights means nothing
        console.print(repetition(trials))
    summaries = summarise(trials)
    if shares := auto_share(trials):
        each = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        console.print(
            f"\u03b3 auto runs at {median(shares.values()):.2f} times the speed of the best fixed \u03b3, in the runs "
            f"that did not choose it (median of: {each})."
        )
    one_pass = takes_one_pass(about["pair"])
    found = overall(trials, plan, shares_of_limit(limit), one_pass)
    console.print(
        " ".join(filter(None, [label and f"{label.capitalize()}.", found.headline, *(n.text for n in found.notes)]))
    )
    outside = [(s.gamma, s.figure("overhead_share")) for s in summaries if s.lane == LOOP.lane and s.gamma]
    told = ", ".join(f"\u03b3 {gamma}: {numbers.percent(share, 1)}" for gamma, share in outside if share is not None)
    console.print(f"Time outside the models' passes: {told or 'no guesses were made'}.")
    if rivals := against_assisted(trials):
        console.print(f"Speed-up over assisted generation at the same \u03b3: {rivals}.")
    if (compared := closed_form_table(trials, one_pass)) is not None:
        show_table(console, compared, label)
    show_limit(console, limit, label)


def summary_cells(row: dict[str, Any]) -> list[str]:
    """A row under ``COLUMNS``: the figures of the median run, two of them with the lowest and the highest."""
    plain = row["lane"] == BASELINE.lane
    return [
        row["category"],
        LaneConfig(row["lane"], row["gamma"]).row.label,
        "" if row["gamma"] is None else sentences.length(row["gamma"]),
        (numbers.ends if row["tokens_per_second"] is None else numbers.spread)(
            _values(row, "tokens_per_second"), numbers.rate
        ),
        "1x" if plain else numbers.speedups(_values(row, "speedup")),
        "" if plain else numbers.percent(row["latency_reduction"]),
        "" if row["acceptance"] is None else numbers.percent(row["acceptance"]),
        "" if plain else numbers.number(row["tokens_per_target_pass"]),
        "" if row["same_text"] is None else f"{row['same_text']} of {row['compared']}",
    ]


def _values(row: dict[str, Any], name: str) -> list[float]:
    return [value for end in ("_min", "", "_max") if (value := row[name + end]) is not None]


def shares_of_limit(record: dict[str, Any]) -> dict[LaneConfig, float]:
    """The share of the limit that each lane reached; empty if the limit is not known."""
    return {LaneConfig(row["lane"], row["gamma"]): row["share_of_limit"] for row in record.get("rows", ())}


def limit_table(rows: Sequence[dict[str, Any]]) -> FigureTable:
    """The computed limit of each lane, its measured time and the share of the limit that it reached."""
    cells = []
    for row in rows:
        gamma = "" if row["gamma"] is None else str(row["gamma"])
        times = (row["computed_least_seconds_per_token"], row["measured_seconds_per_token"])
        milliseconds = [f"{1000 * seconds:.3g}" for seconds in times]
        label = LaneConfig(row["lane"], row["gamma"]).row.label
        cells.append([label, gamma, *milliseconds, numbers.percent(row["share_of_limit"])])
    return FigureTable("The least possible time per token on this machine", LIMIT_COLUMNS, cells, range(1, 5))


def terminal_table(table: FigureTable) -> TerminalTable:
    """The table for a terminal, with its caption above it."""
    out = TerminalTable(title=". ".join(filter(None, [table.caption, table.of_minor])))
    for place, column in enumerate(table.columns):
        out.add_column(column, justify="right" if place in table.figures else "left", overflow="fold")
    for row in table.rows:
        out.add_row(*row)
    return out


def show_table(console: Console, table: FigureTable, label: str = "") -> None:
    """Print a table. ``label`` is that of a synthetic measurement, for the caption."""
    console.print(terminal_table(replace(table, caption=provenance.title_with_label(table.caption, label))))


def show_limit(console: Console, record: dict[str, Any], label: str = "") -> None:
    """Print the measured rates, then for each lane the computed limit and the share of it that was reached.

    ``label``: the label of a synthetic measurement, for the title.
    """
    if "reason" in record:
        console.print(sentences.NO_LIMIT.format(reason=record["reason"]))
        return
    show_table(console, limit_table(record["rows"]), label)
    for role, rates in record["measured"].items():
        console.print(
            sentences.RATES.format(
                Role=role.capitalize(),
                size=numbers.number(rates["weight_bytes"] / 1e6),
                bandwidth=numbers.number(rates["read_bytes_per_second"] / 1e9),
                operations=numbers.number(rates["operations_per_second"] / 1e9),
            )
        )
