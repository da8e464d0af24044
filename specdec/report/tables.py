"""The figures of a race as a person reads them: up to four to show first, a row for each lane, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from specdec.events import MAX_GAMMA, Event, Started
from specdec.lanes.table import BASELINE, LANES, LaneConfig, row_of
from specdec.measure import metrics
from specdec.measure.costs import RowCost
from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics
from specdec.measure.result import LaneEvents, common_prefix, in_letters, started_of, written_ids
from specdec.report import numbers, provenance, sentences
from specdec.report.definitions import make_figure
from specdec.report.figure_table import FigureTable
from specdec.report.judge import Judgement
from specdec.report.verdict import Figure, LaneEnd, Table

PLACES = ("Place in the draft", "tested", "kept, of tested", "kept, of all drafts")
EXPECTED = "expected, of tested"  # only of a sampled lane
MOST_ROWS = MAX_GAMMA + 1  # of the table of checks; more are read only after rejections with recurrent state
KEPT = "Guesses kept, of those tested at each place, over all prompts and runs"
OUTSIDE = "outside the models' passes, with choosing tokens"  # more than the rest beside drafting and checking
PASSES = ("Tokens in a pass", "passes", "share of passes")
CHECKS = ("Rows of a target pass", "passes", "ms", "verify growth (v)")


def headline_figures(
    found: Judgement, shown: RunMetrics, plain: Sequence[Event], speculative: Sequence[Event]
) -> list[Figure]:
    """Up to four figures beside the headline: both shares, the acceptance, and how the two texts compare.

    All are those of the shown run. The first three are left out if they are not known.
    """
    figures = share_figures(found)
    if (alpha := shown.lane.alpha) is not None:
        # With as many digits as the explanation below it gives the same figure.
        kept = sentences.kept_and_needed(found)[0] if found.alpha == alpha else numbers.percent(alpha)
        figures.append(make_figure(kept, "acceptance"))
    ours, theirs, started = written_ids(speculative), written_ids(plain), started_of(speculative)
    if started.params.greedy and in_letters(plain, speculative):
        return figures  # the note below compares the letters
    if started.params.greedy:
        same = f"{common_prefix(ours, theirs)} of {max(len(ours), len(theirs))}"
        figures.append(make_figure(same, "same"))
    else:
        counts = f"{len(theirs)} / {len(ours)}"
        by_chance = ours != theirs and started.claims_lossless
        figures.append(make_figure(counts, "written", sentences.BY_CHANCE if by_chance else sentences.WRITTEN))
    return figures


def share_figures(found: Judgement) -> list[Figure]:
    """The shares of our loop and of speculation in the gain, whose product it is; those that are known."""
    shares = {"engine": found.engine, "measured": found.speculation}
    known = {name: value for name, value in shares.items() if value is not None}
    return [make_figure(sentences.gain_share_times(found, value), name) for name, value in known.items()]


def lane_rates(shown: Mapping[str, Metrics | None]) -> dict[str, str]:
    """The speed of each lane of the shown run by its key. A lane without one is left out."""
    known = {row.key: lane.tokens_per_second for row in LANES if (lane := shown.get(row.key))}
    return {key: f"{numbers.rate(rate)}\u00a0tokens/s" for key, rate in known.items() if rate}


def lane_rows(
    runs: Sequence[LaneEvents],
    measured: Sequence[Mapping[str, Metrics | None]],
    shown: int,
    same: Callable[[Sequence[Event], Sequence[Event]], bool],
) -> Table:
    """A row for each lane: the figures of the shown run, with lowest and highest of all.

    ``measured`` holds each run's figures, and ``shown`` is the place of the shown run. ``same`` says whether two lanes
    wrote one text.
    """
    rows = []
    for row in LANES:
        key = row.key
        both = {
            at: (plain, lane)
            for at, lanes in enumerate(measured)
            if (plain := lanes.get(BASELINE.key)) and (lane := lanes.get(key))
        }
        if not both:
            continue
        own = both.get(shown, both[min(both)])

        def cell(
            figure: Callable[[Metrics, Metrics], float | None],
            show: Callable[[float], str],
            both: Iterable[tuple[Metrics, Metrics]] = both.values(),
            own: tuple[Metrics, Metrics] = own,
        ) -> str:
            return numbers.spread(_known(figure(*each) for each in both), show, figure(*own))

        alike = all(same(runs[at][BASELINE.key], runs[at][key]) for at in both)
        rows.append(
            [
                row.label,
                cell(lambda _, lane: lane.tokens_per_second, numbers.rate),
                "1" if key == BASELINE.key else cell(metrics.speedup, "{:.2f}x".format),
                cell(lambda _, lane: lane.prefill_seconds, "{:.3f}\u00a0s".format),
                cell(lambda _, lane: lane.alpha, numbers.percent),
                cell(lambda _, lane: lane.mean_acceptance_length, numbers.number),
                ("yes" if alike else "no") if started_of(runs[min(both)][key]).params.greedy else "\u2013",
            ]
        )
    columns = ["Lane", "tokens/s", "speed-up", "first token", "acceptance", "tokens per pass", "same text as plain"]
    return {"columns": columns, "rows": rows}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def details(
    found: Judgement, shown: RunMetrics, on_plain: Sequence[Event], speculative: Sequence[Event]
) -> list[Figure]:
    """The other figures of the shown run, and what was measured with which settings."""
    started, plain, lane = started_of(speculative), shown.plain, shown.lane
    before, after = plain.tokens_per_second, lane.tokens_per_second
    total, guess = metrics.speedup_total(plain, lane), replace(shown, one_pass=found.one_pass).plain_draft_cost
    saved = numbers.percent(found.gain and metrics.latency_reduction(found.gain))
    tokens = f"tokens of {sentences.plain(found.on_servers)}"
    figures = [
        make_figure(
            f"{numbers.rate(before)} \u2192 {numbers.rate(after)}", "tokens/s", "tokens/s, plain \u2192 speculative"
        ),
        make_figure(numbers.number(lane.mean_acceptance_length), "tokens per pass"),
        make_figure(numbers.times_or_none(total), "with the prompt"),
        make_figure(saved, "saved"),
        make_figure(numbers.percent(lane.draft_acceptance_rate), "drafted and kept"),
        make_figure(
            numbers.number(guess, 2), "draft cost", f"cost of a {'draft' if found.one_pass else 'guess'}, in {tokens}"
        ),
        make_figure(numbers.number(found.round_cost, 2), "round cost", f"cost of a round, in {tokens}"),
        make_figure(numbers.percent(lane.overhead_share), "outside", OUTSIDE),
    ]
    asked = {
        "Settings": provenance.run_settings(started),
        "Seed": provenance.seed(started),
    }
    if found.on_servers:
        known = [figure for figure in figures if figure["value"] != numbers.number(None)]
        facts = asked | _servers(started_of(on_plain), started)
        return [*known, *(Figure(value=value, label=label) for label, value in facts.items())]
    facts = asked | {
        "Pair": provenance.pair_line(started.pair),
        **provenance.head(started.pair),
        "Passes": provenance.passes(started.pair),
        "Engine": provenance.engine(started.pair),
        "Machine": ", ".join(f"{name} {value}" for name, value in started.machine.items()),
        "Versions": ", ".join(f"{name} {value}" for name, value in started.versions.items()),
        "Ignored generation_config fields": ", ".join(f"{name} {value}" for name, value in started.neutralised.items())
        or "none",
    }
    return [*figures, *(Figure(value=value, label=label) for label, value in facts.items())]


def _servers(plain: Started, speculative: Started) -> dict[str, str]:
    """What two servers told of themselves, how exact their lanes are, and where their times come from."""
    rows = {}
    for name, started in (("Plain server", plain), ("Speculative server", speculative)):
        told = started.pair["server"]
        rows[name] = f"{provenance.server_line(told)}. {sentences.EXACTNESS[told['exact']]}"
    return rows | {"Machine": plain.machine["cpu"], "Times": sentences.AT_THE_CLIENT}


def time_words(lane: Metrics, shown: int, runs: int) -> str | None:
    """How the lane's time after its first token was spent, in the shown run: an index, of ``runs``."""
    if lane.draft_seconds is None or lane.verify_seconds is None or not lane.decode_seconds:
        return None
    draft, verify = (part / lane.decode_seconds for part in (lane.draft_seconds, lane.verify_seconds))
    row = sentences.TIME_SHOWN if runs > 1 else sentences.TIME
    return row.format(
        draft=numbers.percent(draft),
        verify=numbers.percent(verify),
        rest=numbers.percent(max(0.0, 1 - draft - verify)),
        shown=shown + 1,
        whole=numbers.seconds(lane.decode_seconds),
    )


def places_table(lane: Metrics, runs: int) -> Table | None:
    """A row for each place of a draft, over so many runs; None if nothing was tested or the drafts are not observed."""
    if not lane.tested_at or not lane.tested_at[0]:
        return None
    drafts = lane.tested_at[0]
    both = zip(lane.tested_at, lane.kept_at, strict=True)
    rows = [
        [f"guess {at}", f"{tested:,}", _share(kept, tested), numbers.percent(kept / drafts)]
        for at, (tested, kept) in enumerate(both, start=1)
    ]
    if not lane.overlap_at:
        return {"columns": _over(runs, PLACES), "rows": rows}
    overlaps = zip(lane.overlap_at, lane.tested_at, strict=False)
    expected = [_share(overlap, tested) for overlap, tested in overlaps]
    wider = [[*row[:3], share, row[3]] for row, share in zip(rows, expected, strict=True)]
    return {"columns": _over(runs, (*PLACES[:3], EXPECTED, PLACES[3])), "rows": wider}


def _over(runs: int, columns: Sequence[str]) -> list[str]:
    """The columns of a table that counts over several runs; the one with the counts says so."""
    first, counts, *others = columns
    return [first, counts if runs == 1 else f"{counts}, in {runs} runs", *others]


def passes_table(lane: Metrics, runs: int) -> Table | None:
    """A row for each number of tokens that a target pass wrote, over so many runs; None if there was no pass."""
    total = sum(lane.passes_of)
    if not total:
        return None
    rows = [
        [f"{tokens} token{'s' * (tokens != 1)}", f"{count:,}", numbers.percent(count / total)]
        for tokens, count in enumerate(lane.passes_of)
        if count
    ]
    return {"columns": _over(runs, PASSES), "rows": rows}


def checks_table(costs: Sequence[RowCost]) -> Table | None:
    """A row for each number of rows of a target pass: v as a curve. None if passes over one row were not measured.

    Also None if there were no others, because v is 1 there.
    """
    one = next((cost.seconds for cost in costs if cost.rows == 1), None)
    if not one or len(costs) < 2:
        return None
    rows = [
        [
            f"{cost.rows} row{'s' * (cost.rows != 1)}",
            f"{cost.passes:,}",
            f"{1e3 * cost.seconds:.2f}",
            numbers.number(cost.seconds / one, 2),
        ]
        for cost in costs[:MOST_ROWS]
    ]
    return {"columns": [*CHECKS], "rows": rows}


def by_place(lanes: Sequence[tuple[LaneConfig, Metrics]]) -> FigureTable | None:
    """A row for each lane with the share kept at each place of a draft; None if nothing was tested or is known.

    Nothing is known of results from a link.
    """
    known = [(config, lane) for config, lane in lanes if lane.tested_at and lane.tested_at[0]]
    if not known:
        return None
    most = max(len(lane.tested_at) for _, lane in known)
    rows = []
    for config, lane in known:
        pairs = zip(lane.tested_at, lane.kept_at, strict=True)
        shares = [_share(kept, tested) for tested, kept in pairs]
        gamma = "" if config.gamma is None else str(config.gamma)
        rows.append([config.row.label, gamma, *shares, *[""] * (most - len(shares))])
    columns = ["Lane", "\u03b3", *(f"guess {at}" for at in range(1, most + 1))]
    return FigureTable(KEPT, columns, rows, range(1, len(columns)))


def _share(part: float, whole: int) -> str:
    return numbers.percent(part / whole) if whole else "\u2013"


def lane_end(lane: str, events: Sequence[Event]) -> LaneEnd | None:
    """The label at the end of a lane's line, when it has a token."""
    figures = metrics.compute_metrics(events)
    if figures is None:
        return None
    name = row_of(lane).label
    duration = numbers.seconds(figures.decode_seconds)
    return {
        "event": "lane_end",
        "lane": lane,
        "name": name,
        "duration": duration,
        "spoken": sentences.LANE_ENDED.format(name=name, tokens=figures.new_tokens, duration=duration),
    }
