"""What load does to speculation: a table by calls at once, and up to how many it pays; of servers, and of a pair.

Servers are measured as a whole. The gains of a pair are computed from measured passes, and every text says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median, median_low
from typing import Any

from specdec.measure.load import GRAPH, LEAN, TRANSFORMERS, PassTimes, load_gains, tokens_a_round
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
    "here and there": "{server} pays at {most} at once.",
    "unclear": "{server}: no clear difference at {levels} at once.",
}
VLLM = 'For vLLM: "num_speculative_tokens_per_batch_size": {entries}'
COMPUTED = (
    "These gains are computed from measured passes and this pair's acceptance. They were not measured as a whole. All "
    "sequences advance together. Choosing tokens, scheduling, and sequences that keep different numbers of guesses "
    "cost nothing here. {passes}"
)
PASSES_SAID = {
    TRANSFORMERS: "The passes are those of transformers; another engine has other costs.",
    LEAN: "The passes are lean ones by torch's operators; another engine has other costs, and so have native passes.",
    GRAPH: (
        "The passes are lean ones captured as CUDA graphs, which read all cached places up to a bound (256, 512, 1,024 "
        "...); another engine has other costs."
    ),
}
GAIN_CAPTION = (
    "Computed gain over plain decoding at the same load, a factor: median of {runs} (lowest\u2013highest). Passes: "
    "{passes}. Context: cached tokens of each sequence. At the limit: the highest of these gains if each pass took the "
    "least time that this machine allows; slower passes may gain more"
)
GAIN_CHART = (
    "Computed gains, not measured as a whole. Passes: {passes}. Each point is that of the draft length with the "
    "highest median; the table has all lengths. Measured on: {where}"
)
TOKENS = "Tokens a round by the recorded acceptance: {each}."
COMPUTED_PAYS = {
    "all": "\u03b3 {gamma} pays up to {most} at once, the most that was timed",
    "some": "\u03b3 {gamma} pays up to {most} at once",
    "none": "\u03b3 {gamma} does not pay",
    "here and there": "\u03b3 {gamma} pays at {most} at once",
}
AFTER = "With {context} tokens of context: {each}."
COMPUTED_UNCLEAR = "No clear difference with {context} tokens: {each} at once."
EXPERTS = (
    "The target is a mixture of experts: a token reads {chosen} of {experts}. Each further token of a check may read "
    "further experts, so checking costs more than in a dense model until a pass reads them all."
)
NO_ROOM = "Left out, because the caches do not fit into the free memory: {each}."
NO_LIMIT = "The limit of this machine is not known. {reason}"
VLLM_NOTE = (
    "A batch size that was not measured has the number of guesses of the next smaller one that was. One at which no "
    "server clearly pays has none."
)


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


@dataclass(frozen=True, slots=True)
class LoadGain:
    """The computed gains of ``gamma`` guesses at one load, run by run, and the gain at the limit of the machine.

    ``passes`` is one of ``measure.load.PASSES``.
    """

    context: int
    at_once: int
    gamma: int
    gains: tuple[float, ...]
    limit: float | None
    passes: str = TRANSFORMERS

    @property
    def pays(self) -> bool | None:
        """Whether it would be faster than plain decoding; None where there is no clear difference."""
        return None if no_clear_difference(self.gains) else median(self.gains) > 1


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
    caption, figures = CAPTION.format(runs=numbers.runs(runs), plain=plain), range(2, len(COLUMNS))
    return FigureTable(caption, COLUMNS, cells, figures, minor=COLUMNS[4:])


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


def _up_to(rows: Sequence[LoadRow | LoadGain]) -> tuple[str, str]:
    """At which of these loads, in rising order, speculation pays: the kind of the sentence, and the number in it.

    "all", "some" (up to one of them), "none", or "here and there": at these, with others below the last one.
    """
    paying = [str(row.at_once) for row in rows if row.pays]
    if not all(row.pays for row in rows[: len(paying)]):
        return "here and there", sentences.listed(paying)
    kind = "none" if not paying else "all" if len(paying) == len(rows) else "some"
    return kind, paying[-1] if paying else ""


def _pays(server: str, rows: Sequence[LoadRow]) -> list[str]:
    kind, most = _up_to(rows)
    said = [PAYS[kind].format(server=server, most=most)]
    unclear = [str(row.at_once) for row in rows if row.pays is None]
    return said + ([PAYS["unclear"].format(server=server, levels=sentences.listed(unclear))] if unclear else [])


def _schedule(rows: Sequence[LoadRow], guesses: Mapping[str, int | None]) -> list[tuple[int, int, int]]:
    """From which number of calls at once to which the fastest server that pays makes how many guesses.

    Where none pays, it is the plain one.
    """
    levels = list(dict.fromkeys(row.at_once for row in rows))
    chosen = [row for row in rows if row.pays or not row.gains]
    best = [max((row for row in chosen if row.at_once == level), key=lambda row: row.rate) for level in levels]
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


def computed_gains(
    found: Sequence[PassTimes], least: Sequence[PassTimes] | None, kept: Sequence[float]
) -> list[LoadGain]:
    """The gains of every draft length at every load that was timed.

    ``least``: the least seconds of the same passes; None if they are not known. ``kept``: see ``kept_by_place``.
    """
    return [
        LoadGain(
            context=times.context,
            at_once=times.batch,
            gamma=width - 1,
            gains=tuple(load_gains(times, kept, width - 1)),
            limit=load_gains(least[place], kept, width - 1)[0] if least else None,
            passes=times.passes,
        )
        for place, times in enumerate(found)
        for width in times.target
        if width > 1
    ]


def best_gains(gains: Sequence[LoadGain]) -> list[LoadGain]:
    """For each context and load the draft length with the highest median.

    Its ``limit`` is the highest of all lengths.
    """
    best = []
    for row in _by_load(gains):
        limit = max((gain.limit for gain in row if gain.limit is not None), default=None)
        best.append(replace(max(row, key=lambda gain: median_low(gain.gains)), limit=limit))
    return best


def _by_load(gains: Sequence[LoadGain]) -> list[list[LoadGain]]:
    """The gains of all draft lengths at each context and load, in the order of the measurement."""
    loads = dict.fromkeys((gain.context, gain.at_once) for gain in gains)
    return [[gain for gain in gains if (gain.context, gain.at_once) == load] for load in loads]


def gain_table(gains: Sequence[LoadGain]) -> FigureTable:
    """A row for each context and load, and a column for each draft length. There is one gain or more."""
    gammas = list(dict.fromkeys(gain.gamma for gain in gains))
    columns = ("Context", "At once", *(f"\u03b3 {gamma}" for gamma in gammas), "at the limit")
    cells = []
    for row, best in zip(_by_load(gains), best_gains(gains), strict=True):
        each = (numbers.times(gain.gains) for gain in row)
        cells.append((str(best.context), str(best.at_once), *each, numbers.times_or_none(best.limit)))
    caption = GAIN_CAPTION.format(runs=numbers.runs(len(gains[0].gains)), passes=gains[0].passes)
    return FigureTable(caption, columns, cells, range(len(columns)))


def gain_record(gain: LoadGain) -> dict[str, Any]:
    """A gain as plain numbers. Their names say that it is computed."""
    return {
        "context_tokens": gain.context,
        "at_once": gain.at_once,
        "passes": gain.passes,
        "gamma": gain.gamma,
        "computed_gain": median(gain.gains),
        "lowest_computed_gain": min(gain.gains),
        "highest_computed_gain": max(gain.gains),
        "computed_gain_at_the_limit": gain.limit,
    }


def gain_verdict(gains: Sequence[LoadGain], kept: Sequence[float], experts: tuple[int, int] | None) -> list[str]:
    """Up to which load each draft length pays, by context. There is one gain or more.

    ``experts``: how many, and how many a token reads.
    """
    said = []
    gammas = list(dict.fromkeys(gain.gamma for gain in gains))
    for context in dict.fromkeys(gain.context for gain in gains):
        each, unclear = [], []
        for gamma in gammas:
            rows = [gain for gain in gains if (gain.context, gain.gamma) == (context, gamma)]
            kind, most = _up_to(rows)
            each.append(COMPUTED_PAYS[kind].format(gamma=gamma, most=most))
            if levels := [str(row.at_once) for row in rows if row.pays is None]:
                unclear.append(f"\u03b3 {gamma} at {sentences.listed(levels)}")
        said.append(AFTER.format(context=context, each="; ".join(each)))
        if unclear:
            said.append(COMPUTED_UNCLEAR.format(context=context, each="; ".join(unclear)))
    tokens = (f"\u03b3 {gamma}: {tokens_a_round(kept, gamma):.2f}" for gamma in gammas)
    said.append(TOKENS.format(each=", ".join(tokens)))
    if experts:
        said.append(EXPERTS.format(experts=experts[0], chosen=experts[1]))
    return [*said, COMPUTED.format(passes=PASSES_SAID[gains[0].passes])]
