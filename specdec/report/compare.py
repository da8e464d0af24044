"""Puts several results into one table: other pairs, machines or settings, each lane at its best draft length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from specdec.facts import takes_one_pass
from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.results.format import Results
from specdec.measure.summary import Summary, best_lengths, find, share_of, summarise, summary_figures
from specdec.report import numbers, provenance, sentences
from specdec.report.cost_map import Point, point
from specdec.report.figure_table import FigureTable, csv_table, markdown_table
from specdec.report.recording import plain_json

COLUMNS = (
    "File", "Pair", "Machine", "Lane", "speed-up", "tokens/s", "acceptance", "tokens per pass", "settings that differ",
)  # fmt: skip
TITLE = (
    "Each lane at its best \u03b3 over all prompts; figures of the run with the median speed-up (lowest\u2013highest), "
    "after the first token; speed-up over the plain lane of the same file, whose tokens/s are lowest\u2013highest"
)
MINOR = ("Machine", "tokens/s", "acceptance", "tokens per pass", "settings that differ")
DECISIVE = ("prompts", "new tokens", "temperature")  # settings that change the work itself


@dataclass(frozen=True)
class ComparisonRow:
    """A lane of a file. Files are numbered from 1. Pair, machine and ``differs`` are in the first row of a file only.

    ``differs`` has the settings that are not the same in all files. ``one_pass``: a draft of the pair takes one pass.
    """

    file: int
    pair: str
    machine: str
    summary: Summary
    differs: str
    one_pass: bool


@dataclass(frozen=True)
class ResultsComparison:
    """``sentence`` says whether the rows can be compared directly.

    ``by_temperature`` has the temperature and the summary of every lane that drafts, in rising order of temperature.
    It is empty unless the files differ in temperature and in nothing else that decides the work.
    """

    rows: list[ComparisonRow]
    sentence: str
    by_temperature: list[tuple[float, Summary]]

    @property
    def points(self) -> list[Point]:
        """The lanes that draft, for the map of acceptance against cost, labelled with the number of their file."""
        drafting = [row for row in self.rows if _drafts(row)]
        return [found for row in drafting if (found := point(str(row.file), row.summary, row.one_pass))]


def compare_results(files: Sequence[Results]) -> ResultsComparison:
    asked = [_asked(results) for results in files]
    names = dict.fromkeys(name for each in asked for name in each)
    differing = [name for name in names if len({each.get(name) for each in asked}) > 1]
    rows = []
    for number, (results, said) in enumerate(zip(files, asked, strict=True), start=1):
        texts = [said[name][0] for name in differing if name in said]
        share = share_of(results.trials, results.plan)
        if share.calls < share.planned:
            texts.append(f"{share.calls:,} of {share.planned:,} calls")
        summaries = summarise(results.trials)
        plain, about = find(summaries, BASELINE), results.about
        lanes = [*([plain] if plain else []), *best_lengths(summaries)]
        whole = (provenance.pair_line(about["pair"]), provenance.hardware(about["machine"]), ", ".join(texts))
        for place, summary in enumerate(lanes):
            pair, machine, differs = ("", "", "") if place else whole
            one_pass = takes_one_pass(about["pair"])
            rows.append(ComparisonRow(number, pair, machine, summary, differs, one_pass))
    decisive = [name for name in DECISIVE if name in differing]
    sentence = _sentence(len(files), decisive)
    heated: list[tuple[float, Summary]] = []
    if decisive == ["temperature"] and _same_pair_and_machine(files):
        heated = [(files[row.file - 1].plan.params.temperature, row.summary) for row in rows if _drafts(row)]
    return ResultsComparison(rows, sentence if rows else sentences.NOTHING_COMPARED, sorted(heated, key=itemgetter(0)))


def _drafts(row: ComparisonRow) -> bool:
    return row.summary.lane_config not in (BASELINE, LOOP)


def _same_pair_and_machine(files: Sequence[Results]) -> bool:
    first = files[0].about
    return all(each.about[part] == first[part] for each in files for part in ("pair", "machine"))


def _sentence(files: int, differing: Sequence[str]) -> str:
    if files == 1:
        return ""
    if differing:
        return sentences.UNLIKE.format(settings=sentences.listed(differing))
    return sentences.ALIKE_ASKED


def _asked(results: Results) -> dict[str, tuple[str, object]]:
    """The settings by name: the words for each, and the value to compare."""
    plan = results.plan
    prompts = provenance.prompts(plan.chosen, len(plan.prompts))
    return {
        "prompts": (prompts, plan.prompts),
        "new tokens": (f"{plan.params.max_new_tokens} new tokens", None),
        "temperature": (f"temperature {plan.params.temperature:g}", None),
        "runs": (numbers.runs(plan.runs), None),
        **{f"version of {name}": (f"{name} {at}", None) for name, at in results.about["versions"].items()},
    }


def comparison_cells(row: ComparisonRow) -> list[str]:
    """The cells of a row, under ``COLUMNS``."""
    found, plain = row.summary, row.summary.lane_config == BASELINE
    alpha, tokens = found.figure("alpha"), found.figure("mean_acceptance_length")
    return [
        str(row.file),
        row.pair,
        row.machine,
        found.lane_config.label,
        "1" if plain else numbers.speedups(found.gains, found.gain),
        numbers.ends(found.rates, numbers.rate)
        if plain
        else numbers.spread(found.rates, numbers.rate, found.figure("tokens_per_second")),
        "" if alpha is None else numbers.percent(alpha),
        "" if plain else numbers.number(tokens),
        row.differs,
    ]


def comparison_table(found: ResultsComparison) -> FigureTable:
    """The same for a person to read."""
    return FigureTable(TITLE, COLUMNS, [*map(comparison_cells, found.rows)], range(4, 8), minor=MINOR)


def records(found: ResultsComparison, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as plain values by column name. Each has the name of its file (of ``names``), pair and machine."""
    firsts = {row.file: row for row in reversed(found.rows)}  # the first row of each file
    return [
        {"file": names[row.file - 1], "pair": firsts[row.file].pair, "machine": firsts[row.file].machine}
        | summary_figures(row.summary)
        | {"settings_that_differ": firsts[row.file].differs}
        for row in found.rows
    ]


def comparison_csv(found: ResultsComparison, names: Sequence[str]) -> str:
    return csv_table(records(found, names)) if found.rows else ""


def comparison_json(found: ResultsComparison, names: Sequence[str]) -> str:
    return plain_json({"rows": records(found, names), "sentence": found.sentence}, indent=1) + "\n"


def comparison_markdown(found: ResultsComparison, names: Sequence[str]) -> str:
    """The table that is printed, with the names of the files above it and the sentence below."""
    head = "".join(f"{number}. {name}\n" for number, name in enumerate(names, start=1))
    rest = f"\n{found.sentence}\n" if found.sentence else ""
    return f"{head}\n{TITLE}.\n\n{markdown_table(comparison_table(found))}{rest}"


COMPARED = {".csv": comparison_csv, ".json": comparison_json, ".md": comparison_markdown}
