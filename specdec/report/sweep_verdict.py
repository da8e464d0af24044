"""Sums up a sweep or a benchmark: the judgement on its fastest draft length, a headline, and notes.

The tabs and the command line show the same text, because both take it from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.metrics import no_clear_difference
from specdec.measure.plan import Plan, Trial
from specdec.measure.summary import Share, Summary, fastest, share_of, summarise
from specdec.report import numbers, sentences
from specdec.report.judge import LOSING, Judgement, Kind, judge_lengths
from specdec.report.verdict import Note
from specdec.report.why import why_paragraph


@dataclass(frozen=True)
class Overall:
    """``factor`` is the headline's large figure; None if it has none."""

    judgement: Judgement
    headline: str
    notes: list[Note]

    @property
    def factor(self) -> str | None:
        return sentences.big(self.judgement)


def overall(
    trials: Sequence[Trial], plan: Plan, of_limit: Mapping[LaneConfig, float] = MappingProxyType({})
) -> Overall:
    """Judge the trials of a plan that exist so far. ``of_limit``: as in ``judge_lengths``."""
    summaries, share = summarise(trials), share_of(trials, plan)
    found = judge_lengths(summaries, share, of_limit)
    measured = sentences.MEASURED_PARTLY if share.calls < share.planned else sentences.MEASURED
    counted = {"calls": str(share.calls), "planned": str(share.planned), "share": _percent(share)}
    if found.kind is Kind.TOO_EARLY:
        return Overall(found, sentences.headline(found, **counted), sentences.notes(found))
    rivals = _rivals(summaries, found)
    if found.kind is Kind.NOT_MEASURED and rivals:
        return Overall(found, rivals[0], [Note("calls", measured.format(**counted))])
    lengths = [s.gamma for s in _drafting(summaries) if s.gains and s.gamma is not None]
    subject = f"\u03b3 {found.gamma}"
    if len(lengths) > 1:
        subject = sentences.FASTEST.format(gamma=found.gamma, lengths=sentences.lengths(lengths))
    said = [sentences.NONE_PAYS] if found.kind in LOSING and len(lengths) > 1 else []
    said += [sentences.headline(found, subject, **counted), _loop_faster(summaries), *rivals]
    below = [*sentences.notes(found), Note("alike", _alike(summaries)), Note("terms", why_paragraph(found))]
    below.append(Note("calls", measured.format(**counted)))
    return Overall(found, " ".join(filter(None, said)), [note for note in below if note.text])


def _percent(share: Share) -> str:
    """The share of the calls that are measured. 100 % only if none is missing."""
    return numbers.percent(int(100 * share.calls / share.planned) / 100)


def _drafting(summaries: Sequence[Summary]) -> list[Summary]:
    """Our lanes that draft: all but the loop."""
    return [s for s in summaries if s.lane == LOOP.lane and s.config != LOOP]


def _loop_faster(summaries: Sequence[Summary]) -> str:
    """A sentence that our loop alone is faster than the headline's draft length, if it is."""
    leader = fastest(summaries)
    if leader is None or leader.config != LOOP or fastest(_drafting(summaries)) is None:
        return ""
    return sentences.LOOP_FASTER.format(times=numbers.times(leader.gains))


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
    fields = {"Rival": rival.config.label, "times": numbers.times(rival.gains)}
    leader = fastest(summaries)
    if leader is None:
        kind = "alone, unclear" if no_clear_difference(rival.gains) else "alone"
    elif (rival.gain or 0.0) <= (leader.gain or 0.0):
        return []
    elif no_clear_difference(_against(rival, leader), (rival.gain or 0.0) / (leader.gain or 1.0)):
        kind = "alike"
    else:
        first = found.kind in LOSING and leader.config != LOOP  # otherwise something faster than plain is named before
        kind = "faster" if first else "faster still"
    return [sentences.RIVALS[kind].format(**fields)]


def _against(one: Summary, other: Summary) -> list[float]:
    """The ratio of two speeds in each run that has both."""
    ours, theirs = one.gain_of_run, other.gain_of_run
    return [ours[run] / theirs[run] for run in ours if run in theirs]
