"""Servers under load: ``specdec load plain=URL spec=URL``."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from functools import partial

from specdec.cli.exports import write_exports
from specdec.cli.output import console_of, prompt_of
from specdec.cli.servers import asked_of, connected, params_of, split
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import SpecdecError
from specdec.lanes.table import require_runs
from specdec.measure.prompts import read_prompts
from specdec.report import sentences
from specdec.report.benchmark import terminal_table
from specdec.report.figure_table import csv_table, markdown_table
from specdec.report.load import load_rows, load_table, load_verdict, row_record
from specdec.report.recording import plain_json
from specdec.servers.load import LoadRun, levels_to, under_load
from specdec.servers.race import lanes_of


def main(arguments: Namespace) -> None:
    console = console_of(piped=140, highlight=False, soft_wrap=True)
    try:
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
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
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
    if not written:
        raise SystemExit(1)
