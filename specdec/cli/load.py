"""Speculation under load: of servers, ``specdec load plain=URL spec=URL``, or of a pair, ``specdec load``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from specdec.cli import imported
from specdec.cli.exports import write_exports
from specdec.cli.output import Output, console_of, prompt_of, require_one_source
from specdec.cli.parsers.load import CHART, CONTEXTS
from specdec.cli.parsers.shared import params_of
from specdec.cli.servers import asked_of, gathered, require_no_pair, require_no_server, split
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import InvalidInput, SpecdecError
from specdec.lanes.table import require_runs
from specdec.measure.prompts import PromptItem, read_prompts
from specdec.report import provenance, sentences
from specdec.report.benchmark import terminal_table
from specdec.report.figure_table import FigureTable, csv_table, markdown_table
from specdec.report.load import (
    ENDED,
    GAIN_CHART,
    NO_LIMIT,
    NO_ROOM,
    LoadGain,
    LoadRow,
    best_gains,
    computed_gains,
    gain_record,
    gain_table,
    gain_verdict,
    load_rows,
    load_table,
    load_verdict,
    row_record,
)
from specdec.report.recording import plain_json
from specdec.servers.address import connected, named_addresses
from specdec.servers.load import LoadRun, levels_to, under_load, warmed_up
from specdec.servers.race import lanes_of


def main(arguments: Namespace) -> None:
    console = console_of(piped=140, highlight=False, soft_wrap=True)
    if any(path.suffix == CHART for path in arguments.export):
        imported("specdec.ui.charts.chart_page", "load")  # before anything is measured
    try:
        measure = _servers if any(named_addresses(arguments.words)) else _pair
        written = measure(console, arguments)
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
    if not written:
        raise SystemExit(1)


def _servers(console: Output, arguments: Namespace) -> bool:
    """Measure servers and print what was found. False if a file could not be written."""
    require_no_pair(arguments, "load", "gamma", "contexts", "passes")
    named, rest = split(arguments.words)
    params = params_of(arguments)
    require_runs(arguments.runs)
    levels = levels_to(arguments.at_once)
    require_one_source(rest, arguments.prompts)
    texts = [prompt_of(text) for text in rest] or [item.prompt for item in read_prompts(arguments.prompts)]
    asked = [asked_of(arguments, params, text) for text in texts]
    with connected(named, arguments.model) as servers:
        names = list(lanes_of(servers))
        guesses = warmed_up(servers, asked[0])
        found: list[LoadRun] = []

        def tell(run: LoadRun) -> None:
            said = f"{run.at_once} at once, {run.server}, run {run.run + 1}: {run.rate:.0f} tokens/s"
            console.print(said, style="dim")

        ended = gathered(under_load(servers, asked, levels, arguments.runs), found, tell)
    rows = load_rows(found, names)
    if ended and not rows:
        raise ended
    table, planned = load_table(rows, names), len(levels) * arguments.runs * len(names)
    said, records = load_verdict(rows, guesses), [row_record(row) for row in rows]
    if ended:
        said.append(ENDED.format(made=len(found), planned=planned))
    record = {"rows": records, "runs": [asdict(run) for run in found], "planned_runs": planned}
    page = partial(_servers_page, rows, said, table)
    written = _written(arguments.export, record, records, table, said, page)
    console.print(terminal_table(table))
    for sentence in said:
        console.print(sentence)
    console.print(sentences.AT_THE_CLIENT_TOO, style="dim")
    if ended:
        raise ended
    return written


def _pair(console: Output, arguments: Namespace) -> bool:
    """Time a pair's passes under load, and print the computed gains. False if a file could not be written."""
    from specdec.cli.arguments import leave_a_core, pair_of
    from specdec.forward.pass_size import experts_of
    from specdec.measure.batched_passes import (
        all_pass_times,
        contexts_of,
        draft_model_of,
        machine_limit,
        recorded_acceptance,
        require_passes,
    )
    from specdec.measure.results.file import measured_on
    from specdec.models.pair import silence_libraries

    require_no_server(arguments)
    silence_libraries()
    leave_a_core()
    params, gamma = params_of(arguments), arguments.gamma
    require_runs(arguments.runs)
    levels = levels_to(arguments.at_once)
    require_one_source(arguments.words, arguments.prompts)
    given = [prompt_of(text) for text in arguments.words]
    items = [PromptItem(str(number), "given", text, arguments.chat) for number, text in enumerate(given, 1)]
    pair = pair_of(arguments)
    draft_model_of(pair)
    require_passes(pair, arguments.passes)
    contexts = contexts_of(pair, arguments.contexts, CONTEXTS, gamma)
    kept, ids = recorded_acceptance(pair, items or read_prompts(arguments.prompts), params, gamma)
    limit = machine_limit(pair)
    found = []
    for times in all_pass_times(pair, ids, contexts, levels, gamma, arguments.runs, arguments.passes):
        found.append(times)
        console.print(f"{times.batch} at once, {times.context} tokens of context: timed", style="dim")
    timed = {(each.context, each.batch) for each in found}
    left_out = [f"{n} at once, context {c}" for c in contexts for n in levels if (c, n) not in timed]
    no_room = NO_ROOM.format(each="; ".join(left_out))
    if not found:
        raise InvalidInput(no_room)
    gains = computed_gains(found, None if isinstance(limit, str) else [limit.least(each) for each in found], kept)
    table, records = gain_table(gains), [gain_record(gain) for gain in gains]
    experts = experts_of(pair.target.config)
    passes = [asdict(each) for each in found]
    record = {"computed": records, "passes": passes, "kept_by_place": kept, "experts": experts}
    said = gain_verdict(gains, kept, experts)
    said += [no_room] if left_out else []
    said += [NO_LIMIT.format(reason=limit)] if isinstance(limit, str) else []
    where = provenance.provenance_line(measured_on(pair))
    page = partial(_gains_page, gains, where, said, table)
    written = _written(arguments.export, record, records, table, said, page)
    console.print(f"Pair: {provenance.pair_line(pair.describe())}")
    console.print(terminal_table(table))
    for sentence in said:
        console.print(sentence)
    return written


def _written(
    paths: Sequence[Path],
    record: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    table: FigureTable,
    said: Sequence[str],
    page: Callable[[], str],
) -> bool:
    """Write the files. False if one failed."""
    exports: dict[str, Callable[[], str]] = {
        ".json": partial(plain_json, record, indent=1),
        ".csv": partial(csv_table, rows),
        ".md": lambda: f"{table.caption}.\n\n{markdown_table(table)}\n" + "\n\n".join(said) + "\n",
        CHART: page,
    }
    return write_exports(paths, exports)


def _servers_page(rows: Sequence[LoadRow], said: Sequence[str], table: FigureTable) -> str:
    from specdec.ui.charts.chart_page import chart_page
    from specdec.ui.charts.load import load_figure

    return chart_page("Servers under load", load_figure(rows), sentences.AT_THE_CLIENT_TOO, said, table)


def _gains_page(gains: Sequence[LoadGain], where: str, said: Sequence[str], table: FigureTable) -> str:
    from specdec.ui.charts.chart_page import chart_page
    from specdec.ui.charts.load_gains import gains_figure

    figure, caption = gains_figure(best_gains(gains)), GAIN_CHART.format(passes=gains[0].passes, where=where)
    return chart_page("A pair under load: computed gains", figure, caption, said, table)
