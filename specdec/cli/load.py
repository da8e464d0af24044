"""Speculation under load: of servers, ``specdec load plain=URL spec=URL``, or of a pair, ``specdec load``."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from functools import partial

from specdec.cli.exports import write_exports
from specdec.cli.output import Output, console_of, prompt_of
from specdec.cli.parsers.load import CONTEXTS
from specdec.cli.parsers.shared import params_of
from specdec.cli.servers import asked_of, split
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import SpecdecError
from specdec.lanes.table import require_runs
from specdec.measure.prompts import PromptItem, read_prompts
from specdec.report import provenance, sentences
from specdec.report.benchmark import terminal_table
from specdec.report.figure_table import csv_table, markdown_table
from specdec.report.load import (
    NO_LIMIT,
    NO_ROOM,
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
from specdec.servers.address import connected, named_address
from specdec.servers.load import LoadRun, levels_to, under_load
from specdec.servers.race import lanes_of


def main(arguments: Namespace) -> None:
    console = console_of(piped=140, highlight=False, soft_wrap=True)
    measure = _servers if any(map(named_address, arguments.words)) else _pair
    try:
        written = measure(console, arguments)
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
    if not written:
        raise SystemExit(1)


def _servers(console: Output, arguments: Namespace) -> bool:
    """Measure servers and print what was found. False if a file could not be written."""
    named, rest = split(arguments.words)
    params = params_of(arguments)
    require_runs(arguments.runs)
    levels = levels_to(arguments.at_once)
    texts = [prompt_of(text) for text in rest] or [item.prompt for item in read_prompts(arguments.prompts)]
    asked = [asked_of(arguments, params, text) for text in texts]
    with connected(named, arguments.model) as servers:
        names = list(lanes_of(servers))
        plain = names[0]
        guesses = {server.name: server.ask(asked[0]).most_guesses for server in servers} | {plain: 0}
        found: list[LoadRun] = []
        for run in under_load(servers, asked, levels, arguments.runs):
            found.append(run)
            console.print(
                f"{run.at_once} at once, {run.server}, run {run.run + 1}: {run.rate:.0f} tokens/s", style="dim"
            )
    rows = load_rows(found, plain)
    table = load_table(rows, plain)
    records = [row_record(row) for row in rows]
    exports = {
        ".json": partial(plain_json, {"rows": records, "runs": [asdict(run) for run in found]}, indent=1),
        ".csv": partial(csv_table, records),
        ".md": partial(markdown_table, table),
    }
    written = write_exports(arguments.export, exports)
    console.print(terminal_table(table))
    for sentence in load_verdict(rows, guesses):
        console.print(sentence)
    console.print(sentences.AT_THE_CLIENT_TOO, style="dim")
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
    )
    from specdec.models.pair import silence_libraries

    silence_libraries()
    leave_a_core()
    params, gamma = params_of(arguments), arguments.gamma
    require_runs(arguments.runs)
    levels = levels_to(arguments.at_once)
    given = [prompt_of(text) for text in arguments.words]
    items = [PromptItem(str(number), "given", text, arguments.chat) for number, text in enumerate(given, 1)]
    pair = pair_of(arguments)
    draft_model_of(pair)
    contexts = contexts_of(pair, arguments.contexts, CONTEXTS, gamma)
    kept, ids = recorded_acceptance(pair, items or read_prompts(arguments.prompts), params, gamma)
    limit = machine_limit(pair)
    found = []
    for times in all_pass_times(pair, ids, contexts, levels, gamma, arguments.runs):
        found.append(times)
        console.print(f"{times.batch} at once, {times.context} tokens of context: timed", style="dim")
    gains = computed_gains(found, None if isinstance(limit, str) else [limit.least(each) for each in found], kept)
    table, records = gain_table(gains), [gain_record(gain) for gain in gains]
    experts = experts_of(pair.target.config)
    passes = [asdict(each) for each in found]
    record = {"computed": records, "passes": passes, "kept_by_place": kept, "experts": experts}
    exports = {
        ".json": partial(plain_json, record, indent=1),
        ".csv": partial(csv_table, records),
        ".md": partial(markdown_table, table),
    }
    written = write_exports(arguments.export, exports)
    console.print(f"Pair: {provenance.pair_line(pair.describe())}")
    console.print(terminal_table(table))
    for sentence in gain_verdict(gains, kept, experts):
        console.print(sentence)
    timed = {(each.context, each.batch) for each in found}
    left_out = [f"{n} at once, context {c}" for c in contexts for n in levels if (c, n) not in timed]
    if left_out:
        console.print(NO_ROOM.format(each="; ".join(left_out)))
    if isinstance(limit, str):
        console.print(NO_LIMIT.format(reason=limit), style="dim")
    return written
