"""What load does to speculation: a table by calls at once, and up to how many it pays; of servers, and of a pair.

Servers are measured as a whole. The gains of a pair are computed from measured passes, and every text says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter
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
    "Tokens per second of all calls together, while all of them ran. Speed-up: these tokens/s over those of {plain}. "
    "{shown}Per token after the first, and until the first token: over all calls of the run. Guesses kept: of all "
    "guesses made in it, by the server's own counters"
)
SHOWN = "Of {runs}, a level shows one, that with the median speed-up{fastest} (lowest\u2013highest of all runs). "
FASTEST = " of the server that is fastest there"
PAYS = {
    "all": "{server} pays at every load that {loads}, up to {most} at once.",
    "some": "{server} pays up to {most} at once.",
    "none": "{server} does not pay at any load that {loads}.",
    "none clearly": "{server} clearly pays at no load that {loads}.",
    "here and there": "{server} pays at {most} at once.",
    "unclear": "{server}: no clear difference at {levels} at once.",
    "too short": "{server}: too few tokens to compare at {levels} at once.",
    "few": "{server}: fewer than three runs at {levels} at once, so its difference can be chance. Measure more.",
}
FEWEST = 3  # runs; one, or two that agree, say little
ENDED = "Ended early: {made} of {planned} measurements were made."
UNTOLD = (
    "{server} tells neither token ids nor a number of tokens that fits its text, so a piece of its text counts as one "
    "token."
)
HELD = (
    "Each text of {server} came at one moment at {levels} at once, so the seconds of its tokens are not known there. "
    "Something on the way holds its stream back, such as a proxy, or this machine was too busy to read it."
)
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
COMPUTED_FEW = "Each pass was timed in fewer than three runs, so these gains can be chance. Measure more."
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
    """One server at one level.

    - ``shown``: its run whose figures are shown. All servers of a level show the same one, so that the ratio of two
      speeds is the speed-up beside them.
    - ``rates``: tokens per second of all calls together, run by run; ``gains``: those over the plain server's. None for
      the plain server itself, and where answers are too short for a speed.
    """

    shown: LoadRun
    rates: tuple[float, ...]
    gains: tuple[float, ...]
    gain: float | None  # of the shown run

    @property
    def at_once(self) -> int:
        return self.shown.at_once

    @property
    def server(self) -> str:
        return self.shown.server

    @property
    def rate(self) -> float:
        return self.shown.rate

    @property
    def pays(self) -> bool | None:
        """Whether it is faster than the plain server; None where there is no clear difference."""
        return None if self.gain is None or no_clear_difference(self.gains, self.gain) else self.gain > 1


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
    def gain(self) -> float:
        """That of the median run."""
        return median_low(self.gains)

    @property
    def pays(self) -> bool | None:
        """Whether it would be faster than plain decoding; None where there is no clear difference."""
        return None if no_clear_difference(self.gains, self.gain) else self.gain > 1


def load_rows(found: Sequence[LoadRun], servers: Sequence[str]) -> list[LoadRow]:
    """A row for each level and server, in the order of the measurement. ``servers``: their names, the plain one first.

    Only runs count that every server has. A level without any is left out.
    """
    levels: dict[int, dict[int, dict[str, LoadRun]]] = defaultdict(lambda: defaultdict(dict))
    for each in found:
        levels[each.at_once][each.run][each.server] = each
    rows = []
    for runs in levels.values():
        if whole := [run for run in runs.values() if len(run) == len(servers)]:
            rows += _level(whole, servers)
    return rows


def _level(runs: Sequence[Mapping[str, LoadRun]], servers: Sequence[str]) -> list[LoadRow]:
    """The rows of a level. Each run has every server."""
    plain, *others = servers
    timed = [run for run in runs if all(each.rate for each in run.values())]
    gains = {name: [run[name].rate / run[plain].rate for run in timed] for name in others}
    shown = 0
    if timed:
        runs, fastest = timed, max(gains.values(), key=median_low)
        shown = fastest.index(median_low(fastest))
    return [
        LoadRow(
            shown=runs[shown][name],
            rates=tuple(run[name].rate for run in runs),
            gains=tuple(gains.get(name, ())),
            gain=gains[name][shown] if gains.get(name) else None,
        )
        for name in servers
    ]


def load_table(rows: Sequence[LoadRow], servers: Sequence[str]) -> FigureTable:
    """The rows for a person to read. ``servers``: as in ``load_rows``."""
    runs = max((len(row.rates) for row in rows), default=0)
    shown = SHOWN.format(runs=numbers.runs(runs), fastest=FASTEST * (len(servers) > 2)) if runs > 1 else ""
    caption, figures = CAPTION.format(shown=shown, plain=servers[0]), range(2, len(COLUMNS))
    return FigureTable(caption, COLUMNS, [*map(_cells, rows)], figures, minor=COLUMNS[4:])


def _cells(row: LoadRow) -> list[str]:
    seconds, firsts, counts = row.shown.token_seconds, row.shown.first_seconds, row.shown.counts
    return [
        str(row.at_once),
        row.server,
        numbers.number(row.rate or None),
        numbers.times(row.gains, row.gain) if row.gains else "",
        numbers.number(1000 * median(seconds)) if seconds else "",
        numbers.number(1000 * _at(seconds, 0.95)) if seconds else "",
        f"{median(firsts):.3f}\u00a0s" if firsts else "",  # a small model's is shorter than 0.01 s
        numbers.percent(counts.accepted / counts.drafted) if counts and counts.drafted else "",
    ]


def row_record(row: LoadRow) -> dict[str, Any]:
    """A row as plain numbers: seconds, factors and shares. ``run``: the number of the run that they are of, from 0."""
    shown, counts = row.shown, row.shown.counts
    return {
        "at_once": row.at_once,
        "server": row.server,
        "run": shown.run,
        "tokens_per_second": row.rate or None,
        "speedup": row.gain,
        "lowest_speedup": min(row.gains, default=None),
        "highest_speedup": max(row.gains, default=None),
        "seconds_per_token": median(shown.token_seconds) if shown.token_seconds else None,
        "seconds_per_token_95": _at(shown.token_seconds, 0.95) if shown.token_seconds else None,
        "first_token_seconds": median(shown.first_seconds) if shown.first_seconds else None,
        "drafted": counts.drafted if counts else None,
        "accepted": counts.accepted if counts else None,
    }


def _at(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, or at which."""
    return sorted(values)[ceil(share * len(values)) - 1]


def load_verdict(rows: Sequence[LoadRow], guesses: Mapping[str, int | None]) -> list[str]:
    """Up to how many calls at once each server pays, and which one to take at each load.

    ``guesses``: how many guesses a step of each server makes, 0 for the plain one; None or nothing if not known.
    """
    said = []
    plain = rows[0].server if rows else ""
    for server in dict.fromkeys(row.server for row in rows if row.server != plain):
        said += _pays(server, [row for row in rows if row.server == server])
    said += [UNTOLD.format(server=name) for name in dict.fromkeys(row.server for row in rows if not row.shown.told)]
    held = [row for row in rows if not row.shown.first_seconds]
    for server in dict.fromkeys(row.server for row in held):
        levels = [str(row.at_once) for row in held if row.server == server]
        said.append(HELD.format(server=server, levels=sentences.listed(levels)))
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
    timed = [row for row in rows if row.gain is not None]
    unclear = [str(row.at_once) for row in timed if row.pays is None]
    few = [str(row.at_once) for row in timed if row.pays is not None and len(row.gains) < FEWEST]
    short = [str(row.at_once) for row in rows if row.gain is None]
    said = []
    if len(unclear) < len(timed):
        kind, most = _up_to(timed)
        kind = "none clearly" if kind == "none" and unclear else kind
        said.append(PAYS[kind].format(server=server, most=most, loads="could be compared" if short else "was measured"))
    more = {"unclear": unclear, "too short": short, "few": few}
    return said + [
        PAYS[kind].format(server=server, levels=sentences.listed(levels)) for kind, levels in more.items() if levels
    ]


def _schedule(rows: Sequence[LoadRow], guesses: Mapping[str, int | None]) -> list[tuple[int, int, int]]:
    """From which number of calls at once to which the fastest server that pays makes how many guesses.

    Where none pays, it is the plain one.
    """
    levels = list(dict.fromkeys(row.at_once for row in rows))
    chosen = [row for row in rows if row.pays or row.server == rows[0].server]
    best = [max((row for row in chosen if row.at_once == level), key=lambda row: row.rate) for level in levels]
    if any(guesses.get(row.server) is None or not row.rate for row in best):
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
        best.append(replace(max(row, key=attrgetter("gain")), limit=limit))
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
        "computed_gain": gain.gain,
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
    if len(gains[0].gains) < FEWEST:
        said.append(COMPUTED_FEW)
    tokens = (f"\u03b3 {gamma}: {tokens_a_round(kept, gamma):.2f}" for gamma in gammas)
    said.append(TOKENS.format(each=", ".join(tokens)))
    if experts:
        said.append(EXPERTS.format(experts=experts[0], chosen=experts[1]))
    return [*said, COMPUTED.format(passes=PASSES_SAID[gains[0].passes])]
