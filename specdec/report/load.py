"""What load does to speculation: a table of servers by calls at once, and up to how many speculation pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

from specdec.measure.metrics import no_clear_difference
from specdec.report import numbers, sentences
from specdec.report.figure_table import FigureTable
from specdec.servers.load import LoadRun

COLUMNS = (
    "At once", "server", "tokens/s in all", "speed-up", "ms per token, median", "95th", "first token", "guesses kept",
)  # fmt: skip
CAPTION = (
    "Tokens per second of all calls together, while all of them ran; median of {runs}. Speed-up: the same run's "
    "tokens/s over those of {plain} (lowest\u2013highest). Per token after the first, and until the first token: over "
    "all calls. Guesses kept: of all guesses made, by the server's own counters"
)
PAYS = {
    "all": "{server} pays at every load that was measured, up to {most} at once.",
    "some": "{server} pays up to {most} at once.",
    "none": "{server} does not pay at any load that was measured.",
    "unclear": "{server}: no clear difference at {levels} at once.",
}
BEST = "Fastest at each load: {levels}."
VLLM = 'For vLLM: "num_speculative_tokens_per_batch_size": {entries}'
VLLM_NOTE = "A batch size that was not measured has the number of guesses of the next smaller one that was."


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One server at one level, over all runs. ``gains`` are those over the plain server, run by run."""

    at_once: int
    server: str
    rates: tuple[float, ...]
    gains: tuple[float, ...]
    token_seconds: tuple[float, ...]
    first_seconds: tuple[float, ...]
    drafted: int
    accepted: int

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def pays(self) -> bool | None:
        """Whether it is faster than the plain server; None where there is no clear difference."""
        return None if not self.gains or no_clear_difference(self.gains) else median(self.gains) > 1


def load_rows(found: Sequence[LoadRun], plain: str) -> list[LoadRow]:
    """A row for each level and server, in the order of the measurement. ``plain``: the name of the plain server."""
    rows = []
    base = {(run.at_once, run.run): run.rate for run in found if run.server == plain}
    for at_once, server in dict.fromkeys((run.at_once, run.server) for run in found):
        runs = [run for run in found if (run.at_once, run.server) == (at_once, server)]
        gains = [run.rate / known for run in runs if (known := base.get((at_once, run.run)))]
        counts = [run.counts for run in runs if run.counts]
        rows.append(
            LoadRow(
                at_once=at_once,
                server=server,
                rates=tuple(run.rate for run in runs),
                gains=() if server == plain else tuple(gains),
                token_seconds=tuple(each for run in runs for each in run.token_seconds),
                first_seconds=tuple(each for run in runs for each in run.first_seconds),
                drafted=sum(each.drafted for each in counts),
                accepted=sum(each.accepted for each in counts),
            )
        )
    return rows


def load_table(rows: Sequence[LoadRow], plain: str) -> FigureTable:
    runs = max((len(row.rates) for row in rows), default=0)
    cells = [
        (
            str(row.at_once),
            row.server,
            numbers.number(row.rate),
            numbers.times(row.gains) if row.gains else "",
            numbers.number(1000 * median(row.token_seconds)) if row.token_seconds else "",
            numbers.number(1000 * _at(row.token_seconds, 0.95)) if row.token_seconds else "",
            numbers.seconds(median(row.first_seconds)),
            numbers.percent(row.accepted / row.drafted) if row.drafted else "",
        )
        for row in rows
    ]
    return FigureTable(CAPTION.format(runs=numbers.runs(runs), plain=plain), COLUMNS, cells, range(2, len(COLUMNS)))


def row_record(row: LoadRow) -> dict[str, Any]:
    """A row as plain numbers: seconds, factors and shares."""
    return {
        "at_once": row.at_once,
        "server": row.server,
        "tokens_per_second": row.rate,
        "speedup": median(row.gains) if row.gains else None,
        "lowest_speedup": min(row.gains, default=None),
        "highest_speedup": max(row.gains, default=None),
        "seconds_per_token": median(row.token_seconds) if row.token_seconds else None,
        "seconds_per_token_95": _at(row.token_seconds, 0.95) if row.token_seconds else None,
        "first_token_seconds": median(row.first_seconds),
        "drafted": row.drafted,
        "accepted": row.accepted,
    }


def _at(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, or at which."""
    return sorted(values)[ceil(share * len(values)) - 1]


def load_verdict(rows: Sequence[LoadRow], guesses: Mapping[str, int | None]) -> list[str]:
    """Up to how many calls at once each server pays, and which one to take at each load.

    ``guesses``: how many guesses a step of each server makes, 0 for the plain one; None if it does not tell.
    """
    said = []
    for server in dict.fromkeys(row.server for row in rows if row.gains):
        said += _pays(server, [row for row in rows if row.server == server])
    if schedule := _schedule(rows, guesses):
        entries = ", ".join(f"[{low}, {high}, {k}]" for low, high, k in schedule)
        said += [VLLM.format(entries=f"[{entries}]"), VLLM_NOTE]
    return said


def _pays(server: str, rows: Sequence[LoadRow]) -> list[str]:
    paying = []
    for row in rows:
        if row.pays is False:
            break
        paying.append(row)
    clear = [row for row in paying if row.pays]
    kind = "none" if not clear else "all" if len(clear) == len(rows) else "some"
    said = [PAYS[kind].format(server=server, most=clear[-1].at_once if clear else 0)]
    unclear = [str(row.at_once) for row in rows if row.pays is None]
    return said + ([PAYS["unclear"].format(server=server, levels=sentences.listed(unclear))] if unclear else [])


def _schedule(rows: Sequence[LoadRow], guesses: Mapping[str, int | None]) -> list[tuple[int, int, int]]:
    """From which number of calls at once to which the fastest server makes how many guesses."""
    levels = list(dict.fromkeys(row.at_once for row in rows))
    best = [max((row for row in rows if row.at_once == level), key=lambda row: row.rate) for level in levels]
    if any(guesses.get(row.server) is None for row in best):
        return []
    found: list[tuple[int, int, int]] = []
    for at, (level, row) in enumerate(zip(levels, best, strict=True)):
        high = levels[at + 1] - 1 if at + 1 < len(levels) else level
        k = guesses[row.server] or 0
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], high, k)
        else:
            found.append((level, high, k))
    return found
