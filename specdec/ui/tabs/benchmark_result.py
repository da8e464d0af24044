"""How a benchmark is shown and saved: one of the loaded pair, of servers, or one that is opened."""

from __future__ import annotations

from collections.abc import Iterable

from specdec.facts import on_servers
from specdec.measure.metrics import pool
from specdec.measure.results.format import Results
from specdec.measure.summary import summarise, summary_rows
from specdec.report import sentences
from specdec.report.benchmark import EXPORTS, benchmark_json, benchmark_table, gains_table
from specdec.report.by_prompt import prompts_table
from specdec.report.provenance import Origin
from specdec.report.tables import by_place
from specdec.ui import html
from specdec.ui.charts.benchmark import benchmark_figure
from specdec.ui.tabs.measurement import ResultPanel, Values

RESULTS = "benchmark.results.jsonl"


def shown_benchmark(panel: ResultPanel, results: Results, origin: Origin, more: Iterable[str] = ()) -> Values:
    """The values of verdict, chart and tables. ``more``: notes below the verdict."""
    notes, servers = [*more], on_servers(results.about["pair"])
    if servers:
        told = results.about["pair"]["server"]["exact"]
        notes += [sentences.EXACTNESS[told], sentences.AT_THE_CLIENT_TOO]
    figures = [benchmark_figure(results.trials, servers)]
    return panel.show(results, origin, _tables(results), figures, notes)


def benchmark_files(results: Results, text: str) -> dict[str, str]:
    """The files of a benchmark by name: its tables, and ``text``, which has every call and can be opened again."""
    about, found = results.about, results.trials
    files = {f"benchmark{suffix}": export(about, results.plan, found) for suffix, export in EXPORTS.items()}
    return files | {"benchmark.json": benchmark_json(about, results.plan, found), RESULTS: text}


def _tables(results: Results) -> str:
    """A row for each lane over all prompts, and folds: the speed-ups by category, and all that is measured.

    Of servers it is a row for each prompt too, and the categories only where they say more than that.
    """
    trials, servers = results.trials, on_servers(results.about["pair"])
    summaries, found = summarise(trials), summary_rows(trials)
    every, lanes = benchmark_table(found, servers), len(summaries)
    kept = by_place([(s.lane_config, pool(side.lane for side in s.sides)) for s in summaries if s.sides])
    places = html.folded("By place in the draft", html.table_html(kept)) if kept else ""
    by_prompt = prompts_table(trials, servers) if servers else None
    prompts = html.table_html(by_prompt) if by_prompt else ""
    if (rows := len(every.rows)) == lanes:
        return html.table_html(every) + prompts + places
    overall = html.table_html(every.part(range(rows - lanes, rows), slice(1, None)))
    if prompts and len({trial.category for trial in trials}) == len({trial.prompt for trial in trials}):
        return overall + prompts + places
    gains = gains_table(found[: rows - lanes], servers)
    by_category = html.folded("Speed-up in each category", html.table_html(gains)) if gains else ""
    return overall + prompts + by_category + html.folded("All figures", html.table_html(every)) + places
