"""A sweep: its table, what was measured and predicted for each draft length, and its verdict.

The verdict is that of a benchmark too: the judgement on the fastest draft length, a headline, and notes. The tabs and
the command line take both from here. Only the command line computes the machine's limit, which can add a doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from specdec.events import MAX_GAMMA, longest_draft
from specdec.facts import PairFacts, takes_one_pass
from specdec.lanes.table import BASELINE, ENGINE, LOOP, LaneConfig
from specdec.measure.metrics import no_clear_difference
from specdec.measure.plan import Plan, Trial
from specdec.measure.summary import Share, Summary, fastest, share_of, summarise
from specdec.report import numbers, sentences
from specdec.report.figure_table import FigureTable
from specdec.report.judge import LOSING, NOISE, Judgement, Kind, judge, judge_lengths
from specdec.report.tables import share_figures
from specdec.report.verdict import Figure, Note
from specdec.report.why import why_paragraph

COLUMNS = ("\u03b3", "speed-up", "acceptance", "tokens per pass", "gain over \u03b3 0", "predicted", "c", "v")
CAPTION = "Each row shows its median run, and the lowest to highest speed-up over {plain} in brackets"
OWN_LOOP = ". \u03b3 0: the run of the headline. Gain over \u03b3 0: over that of the same run"
CHECKED = range(1, 9)  # the draft lengths for the error of the closed form


@dataclass(frozen=True)
class SweepRow:
    """One draft length: its summary and its judgement."""

    summary: Summary
    judgement: Judgement

    @property
    def gamma(self) -> int | str | None:
        return self.summary.gamma

    @property
    def predicted(self) -> float | None:
        """The predicted speed-up over plain ``generate``: the closed form's gain, times our loop's own gain."""
        found = self.judgement
        return found.predicted * found.engine if found.predicted and found.engine else None


def sweep_rows(summaries: Sequence[Summary], one_pass: bool) -> list[SweepRow]:
    """A row for each measured draft length, 0 to 16 and then "auto". ``one_pass``: as in ``judge``."""
    ours = [s for s in summaries if s.gains and s.lane == LOOP.lane]
    return [SweepRow(s, judge(s.sides, s.gamma, one_pass=one_pass)) for s in ours]


def prediction_error(rows: Sequence[SweepRow]) -> float | None:
    """The median over gamma 1 to 8 of |predicted / measured - 1|. Both are gains over our loop at gamma 0."""
    found = [row.judgement for row in rows if row.gamma in CHECKED]
    errors = [abs(j.predicted / j.speculation - 1) for j in found if j.predicted and j.speculation]
    return median(errors) if errors else None


def marked(rows: Sequence[SweepRow], trials: Sequence[Trial], plan: Plan) -> int | None:
    """The row of our fastest lane, when every draft length has run on every prompt."""
    best = fastest([row.summary for row in rows])
    whole = best is not None and share_of(trials, plan).whole
    return next((at for at, row in enumerate(rows) if row.summary is best), None) if whole else None


def sweep_cells(row: SweepRow, mark: bool) -> list[str]:
    """The cells of a row, under ``COLUMNS``."""
    found = row.judgement
    figures = (found.speculation, found.predicted) if found.split else (None, None)
    return [
        f"{sentences.length(row.gamma or 0)} \u2190 fastest" if mark else sentences.length(row.gamma or 0),
        numbers.speedups(row.summary.gains, row.summary.gain),
        "" if found.alpha is None else numbers.percent(found.alpha),
        numbers.number(found.tokens),
        *("" if value is None else numbers.times_or_none(value) for value in figures),
        *("" if value is None or not found.split else numbers.number(value, 2) for value in (found.c, found.v)),
    ]


def sweep_table(rows: Sequence[SweepRow], best: int | None, servers: bool = False) -> FigureTable:
    """The rows for a person to read. ``best`` is the row to mark. Servers have no figures of our loop."""
    cells = [sweep_cells(row, at == best) for at, row in enumerate(rows)]
    caption = CAPTION.format(plain=sentences.plain(servers)) + OWN_LOOP * (not servers)
    table = FigureTable(caption, COLUMNS, cells, range(8), marked=best, minor=COLUMNS[4:])
    return table.part(range(len(cells)), slice(0, 4)) if servers else table


def theory_note(rows: Sequence[SweepRow]) -> str:
    """A sentence on the error of the closed form; empty if it cannot be compared."""
    error = prediction_error(rows)
    return "" if error is None else sentences.FORM_OFF.format(error=numbers.percent(error))


def block_note(facts: PairFacts) -> str:
    """A sentence on how a block drafter drafts; empty for other pairs."""
    if not takes_one_pass(facts):
        return ""
    most = longest_draft(facts)
    bound = sentences.BLOCK_BOUND.format(most=most) if most < MAX_GAMMA else ""
    return sentences.BLOCK.format(bound=bound)


@dataclass(frozen=True)
class Overall:
    """``factor`` is the headline's large figure; None if it has none. ``shares``: what it is made of, if that is known.

    Figures that are noise have none.
    """

    judgement: Judgement
    headline: str
    notes: list[Note]

    @property
    def factor(self) -> str | None:
        return sentences.big(self.judgement)

    @property
    def shares(self) -> list[Figure]:
        return share_figures(self.judgement) if self.factor and self.judgement.kind not in NOISE else []


def overall(
    trials: Sequence[Trial],
    plan: Plan,
    of_limit: Mapping[LaneConfig, float] = MappingProxyType({}),
    one_pass: bool = False,
    on_servers: bool = False,
) -> Overall:
    """Judge the trials of a plan that exist so far. ``of_limit`` and ``one_pass``: as in ``judge_lengths``.

    ``on_servers``: all calls ran on servers.
    """
    summaries, share = summarise(trials), share_of(trials, plan)
    partial = share.calls < share.planned
    found = replace(judge_lengths(summaries, share, of_limit, one_pass), on_servers=on_servers, partial=partial)
    measured = sentences.MEASURED_PARTLY if partial else sentences.MEASURED
    counted = {"calls": str(share.calls), "planned": str(share.planned), "share": _percent(share)}
    if found.kind is Kind.TOO_EARLY:
        return Overall(found, sentences.headline(found, **counted), sentences.notes(found))
    rivals = _rivals(summaries, found)
    if found.kind is Kind.NOT_MEASURED and rivals:
        return Overall(found, rivals[0], [Note("calls", measured.format(**counted))])
    lengths = [s.gamma for s in _drafting(summaries) if s.gains and s.gamma is not None]
    untold = found.gamma == ENGINE
    one = sentences.UNTOLD_SERVER if untold else sentences.ONE_SERVER if on_servers else sentences.ONE_LENGTH
    subject = one.format(gamma=found.gamma)
    if len(lengths) > 1:
        subject = sentences.FASTEST.format(gamma=found.gamma)
    if found.split and not on_servers:
        subject = sentences.WITH_LOOP.format(length=subject)
    said = [sentences.NONE_PAYS] if found.kind in LOSING and len(lengths) > 1 else []
    loop = next((s for s in summaries if s.lane_config == LOOP and s.gains), None)
    # The shares are noise where the gain is; our loop's speed-up may not be.
    aside = found.kind in NOISE and found.runs > 1 and not found.lost and loop is not None
    told = sentences.headline(replace(found, engine=None) if aside else found, subject, **counted)
    if aside and loop is not None:
        told += sentences.LOOP_TOO.format(times=numbers.speedups([loop.gain or 0.0]))
    said += [
        told,
        _alike(summaries),
        _loop_faster(summaries),
        *rivals,
    ]
    at = sentences.IN_MEDIAN_RUN if found.runs > 1 else sentences.AT
    below, calls = (
        [*sentences.notes(found), Note("terms", why_paragraph(found, at))],
        Note("calls", measured.format(**counted)),
    )
    below.insert(0 if partial else len(below), calls)  # what is missing is the first doubt
    return Overall(found, " ".join(filter(None, said)), [note for note in below if note.text])


def _percent(share: Share) -> str:
    """The share of the calls that are measured. 100 % only if none is missing."""
    return numbers.percent(int(100 * share.calls / share.planned) / 100)


def _drafting(summaries: Sequence[Summary]) -> list[Summary]:
    """Our lanes that draft: all but the loop."""
    return [s for s in summaries if s.lane == LOOP.lane and s.lane_config != LOOP]


def _loop_faster(summaries: Sequence[Summary]) -> str:
    """A sentence that our loop alone is faster than the headline's draft length, if it is."""
    leader = fastest(summaries)
    if leader is None or leader.lane_config != LOOP or fastest(_drafting(summaries)) is None:
        return ""
    return sentences.LOOP_FASTER.format(times=numbers.speedups(leader.gains, leader.gain))


def _alike(summaries: Sequence[Summary]) -> str:
    """A sentence with the draft lengths (0 is our loop) without a clear difference to the fastest, if there are any."""
    best = fastest(summaries)
    if best is None:
        return ""
    alike = []
    for other in summaries:
        if other.lane == LOOP.lane and other is not best and other.gains:
            if no_clear_difference(_against(other, best), (other.gain or 0.0) / (best.gain or 1.0)):
                alike.append(other.gamma or 0)
    return sentences.ALIKE.format(alike=sentences.lengths(alike), gamma=best.gamma) if alike else ""


def _rivals(summaries: Sequence[Summary], found: Judgement) -> list[str]:
    """Sentences about other ways to draft that are faster than the headline's length, or may be."""
    others = [s for s in summaries if s.lane not in (BASELINE.lane, LOOP.lane) and s.gains]
    rival = max(others, key=lambda s: s.gain or 0.0, default=None)
    if rival is None:
        return []
    fields = {"Rival": rival.lane_config.label, "times": numbers.speedups(rival.gains)}
    leader = fastest(summaries)
    if leader is None:
        kind = "alone, unclear" if no_clear_difference(rival.gains) else "alone"
    elif (rival.gain or 0.0) <= (leader.gain or 0.0):
        return []
    elif no_clear_difference(_against(rival, leader), (rival.gain or 0.0) / (leader.gain or 1.0)):
        kind = "alike"
    else:
        first = (
            found.kind in LOSING and leader.lane_config != LOOP
        )  # otherwise something faster than plain is named before
        kind = "faster" if first else "faster still"
    return [sentences.RIVALS[kind].format(**fields)]


def _against(one: Summary, other: Summary) -> list[float]:
    """The ratio of two speeds in each run that has both."""
    ours, theirs = one.gain_of_run, other.gain_of_run
    return [ours[run] / theirs[run] for run in ours if run in theirs]
