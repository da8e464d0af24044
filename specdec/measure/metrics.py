"""Computes the figures of one lane from its events: counts, seconds and rates.

A figure is None if the lane does not report what it needs: assisted generation does not say which tokens it drafted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from statistics import median, median_low
from typing import TypeVar

from specdec.events import MAX_GAMMA, Event, Finished, Round, Started

_Number = TypeVar("_Number", int, float)

# The fields of ``Metrics`` that are seconds.
SECONDS = (
    "prefill_seconds", "decode_seconds", "draft_seconds", "verify_seconds", "stall_seconds", "state_seconds",
    "reread_seconds", "cpu_seconds",
)  # fmt: skip

MOST_UNKNOWN = 0.1  # of the tokens read again: so many may be left out of ``reread_seconds``


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The figures of one lane: counts, seconds, and shares from 0 to 1; None for what the lane does not report.

    Decode time and decode tokens do not include the first event with tokens.

    new_tokens             tokens written, the first included
    target_passes          rounds after the prefill, one target pass each; 0 for a server that does not tell its rounds
    accepted, rejected, discarded   draft tokens by status
    alpha                  accepted / (accepted + rejected): guesses kept, of those tested
    draft_acceptance_rate  accepted / all drafted
    mean_acceptance_length tokens per target pass, bonus or correction included; without rounds cut by EOS or length
    whole_passes           the number of target passes in that mean
    tested_at, kept_at     for each place in a draft: how many guesses were tested there, and how many were kept; empty
                           where drafts are not observed
    overlap_at             for each place the sum, over the tested guesses, of the sum of min(p, q) (``DraftToken``);
                           empty for a greedy lane
    passes_of              how many target passes wrote 0, 1, 2, ... tokens
    prefill_seconds        from the call to the first token
    decode_seconds         from the first token to the last
    tokens_per_second      decode tokens / decode seconds
    draft_seconds, verify_seconds   within decode time
    overhead_share         share of decode time spent outside the models' forward passes
    stall_seconds          decode time in stalls: rounds far longer than the others of their call
    state_seconds          decode time spent in copying recurrent state, so that it can be rolled back
    reread_seconds         how much longer target passes took because they read kept tokens again: each is compared with
                           the call's median pass over as many guesses that read none again. A pass without such a
                           partner is left out; None where those read more than a tenth of these tokens
    drafts                 rounds that drafted; None where drafts are not observed, and in files that do not have it
    cpu_seconds            processor time of the thread that ran the call, prefill included; None on a GPU, and for a
                           call that did not end
    """

    new_tokens: int
    target_passes: int
    accepted: int | None
    rejected: int | None
    discarded: int | None
    alpha: float | None = None
    draft_acceptance_rate: float | None = None
    mean_acceptance_length: float | None
    whole_passes: int
    prefill_seconds: float
    decode_tokens: int
    decode_seconds: float
    tokens_per_second: float | None = None
    draft_seconds: float | None
    verify_seconds: float | None
    overhead_share: float | None = None
    stall_seconds: float
    state_seconds: float = 0.0
    reread_seconds: float | None = 0.0
    tested_at: tuple[int, ...] = ()
    kept_at: tuple[int, ...] = ()
    overlap_at: tuple[float, ...] = ()
    passes_of: tuple[int, ...] = ()
    cpu_seconds: float | None = None
    drafts: int | None = None

    @property
    def drafted(self) -> int | None:
        """All guesses: accepted, rejected and discarded."""
        if self.accepted is None or self.rejected is None or self.discarded is None:
            return None
        return self.accepted + self.rejected + self.discarded

    @property
    def overlap(self) -> float | None:
        """The acceptance to be expected: the mean of the sum of min(p, q) over all tested guesses."""
        return _ratio(sum(self.overlap_at), sum(self.tested_at)) if self.overlap_at else None

    @property
    def cpu_share(self) -> float | None:
        """Processor time / time of the call: near 1 if the thread had a core to itself."""
        if self.cpu_seconds is None:
            return None
        return _ratio(self.cpu_seconds, self.prefill_seconds + self.decode_seconds)

    @property
    def seconds_per_token(self) -> float | None:
        """Decode seconds / decode tokens."""
        return 1 / self.tokens_per_second if self.tokens_per_second else None


def compute_metrics(events: Iterable[Event]) -> Metrics | None:
    """Compute the figures of one lane so far; None before its first token."""
    events = list(events)
    rounds = [event for event in events if isinstance(event, Round)]
    if not rounds:
        return None
    finished = next((event for event in events if isinstance(event, Finished)), None)
    first, later = rounds[0], rounds[1:]
    new_tokens = sum(len(r.committed_ids) for r in rounds)
    decode_tokens = new_tokens - len(first.committed_ids)
    decode_seconds = rounds[-1].elapsed_seconds - first.elapsed_seconds
    observed = all(r.draft is not None for r in later)
    statuses = [token.status for r in later for token in r.draft or ()] if observed else []
    accepted, rejected = statuses.count("accepted"), statuses.count("rejected")
    # Where drafts are not observed, only the last round can be a cut one.
    passes = [] if _in_pieces(events) else later
    whole = _whole(events) if observed else passes[:-1]
    return Metrics(
        new_tokens=new_tokens,
        target_passes=len(passes),
        accepted=accepted if observed else None,
        rejected=rejected if observed else None,
        discarded=statuses.count("discarded") if observed else None,
        alpha=_ratio(accepted, accepted + rejected),
        draft_acceptance_rate=_ratio(accepted, len(statuses)),
        mean_acceptance_length=_ratio(sum(len(r.committed_ids) for r in whole), len(whole)),
        whole_passes=len(whole),
        prefill_seconds=finished.prefill_seconds if finished else first.elapsed_seconds,
        decode_tokens=decode_tokens,
        decode_seconds=decode_seconds,
        tokens_per_second=_ratio(decode_tokens, decode_seconds),
        draft_seconds=_sum(r.draft_seconds for r in later),
        verify_seconds=_sum(r.verify_seconds for r in later),
        overhead_share=_overhead(later, decode_seconds),
        stall_seconds=_stalls(rounds, decode_seconds),
        state_seconds=sum(event.state_seconds for event in later),
        reread_seconds=_reread(later),
        tested_at=_at_places(later, ("accepted", "rejected")),
        kept_at=_at_places(later, ("accepted",)),
        overlap_at=_overlaps(later),
        passes_of=_counted(len(r.committed_ids) for r in passes),
        cpu_seconds=finished.cpu_seconds if finished else None,
        drafts=sum(bool(r.draft) for r in later) if observed else None,
    )


def with_rates(lane: Metrics) -> Metrics:
    """The same figures with rates computed from their counts and seconds."""
    alpha = kept = None
    if lane.accepted is not None and lane.rejected is not None and lane.drafted is not None:
        alpha = _ratio(lane.accepted, lane.accepted + lane.rejected)
        kept = _ratio(lane.accepted, lane.drafted)
    rate = _ratio(lane.decode_tokens, lane.decode_seconds)
    return replace(lane, alpha=alpha, draft_acceptance_rate=kept, tokens_per_second=rate)


def in_microseconds(lane: Metrics) -> Metrics:
    """The same figures with seconds rounded to microseconds, so that every file and link has the same values."""
    found = {name: value for name in SECONDS if (value := getattr(lane, name)) is not None}
    return with_rates(replace(lane, **{name: round(value, 6) for name, value in found.items()}))


def pool(lanes: Iterable[Metrics]) -> Metrics:
    """The figures of several calls as one: counts and seconds are added, and rates computed from the sums."""
    lanes = list(lanes)
    if len(lanes) == 1:
        return lanes[0]
    accepted = _sum(m.accepted for m in lanes)
    rejected = _sum(m.rejected for m in lanes)
    discarded = _sum(m.discarded for m in lanes)
    alpha, kept = None, None
    if accepted is not None and rejected is not None and discarded is not None and accepted + rejected:
        alpha = _ratio(accepted, accepted + rejected)
        kept = _ratio(accepted, accepted + rejected + discarded)
    lengths = [(m.mean_acceptance_length, m.whole_passes) for m in lanes if m.mean_acceptance_length is not None]
    shares = [(m.overhead_share, m.decode_seconds) for m in lanes if m.overhead_share is not None]
    decode_tokens, decode_seconds = sum(m.decode_tokens for m in lanes), sum(m.decode_seconds for m in lanes)
    return Metrics(
        new_tokens=sum(m.new_tokens for m in lanes),
        target_passes=sum(m.target_passes for m in lanes),
        accepted=accepted,
        rejected=rejected,
        discarded=discarded,
        alpha=alpha,
        draft_acceptance_rate=kept,
        mean_acceptance_length=_weighed(lengths),
        whole_passes=sum(m.whole_passes for m in lanes),
        prefill_seconds=sum(m.prefill_seconds for m in lanes),
        decode_tokens=decode_tokens,
        decode_seconds=decode_seconds,
        tokens_per_second=_ratio(decode_tokens, decode_seconds),
        draft_seconds=_sum(m.draft_seconds for m in lanes),
        verify_seconds=_sum(m.verify_seconds for m in lanes),
        overhead_share=_weighed(shares),
        stall_seconds=sum(m.stall_seconds for m in lanes),
        state_seconds=sum(m.state_seconds for m in lanes),
        reread_seconds=_sum(m.reread_seconds for m in lanes),
        tested_at=_added(m.tested_at for m in lanes),
        kept_at=_added(m.kept_at for m in lanes),
        overlap_at=_pooled_overlaps(lanes),
        passes_of=_added(m.passes_of for m in lanes),
        cpu_seconds=_sum(m.cpu_seconds for m in lanes),
        drafts=_sum(m.drafts for m in lanes),
    )


ENOUGH_RUNS = 5  # fewer often agree by chance: two do so half of the time


def no_clear_difference(ratios: Sequence[float], middle: float | None = None) -> bool:
    """Whether two speeds may be equal, by one ratio for each run.

    They may be equal if the runs disagree on which is faster, or if ``middle`` (by default the median) rounds to 1.00.
    Fewer than ``ENOUGH_RUNS`` runs often agree by chance, three of them every fourth time. So each of them must differ
    from 1 by more than 5 %, because a machine's noise can be that large, and by more than neighbouring runs differ from
    each other on average (in logarithms), because this machine's noise is at least that large.
    """
    if not ratios or min(ratios) <= 1 <= max(ratios):
        return True
    if len(ratios) < ENOUGH_RUNS:
        factors = [max(ratio, 1 / ratio) for ratio in ratios]
        return any(0.95 <= ratio <= 1.05 for ratio in ratios) or max(factors) > min(factors) ** len(factors)
    return round(median_low(ratios) if middle is None else middle, 2) == 1


def speedup(baseline: Metrics, lane: Metrics) -> float | None:
    """Baseline seconds per token / lane seconds per token, after the first event."""
    if not baseline.tokens_per_second or not lane.tokens_per_second:
        return None
    return lane.tokens_per_second / baseline.tokens_per_second


def speedup_total(baseline: Metrics, lane: Metrics) -> float | None:
    """The same with the prefill included."""
    seconds = lane.prefill_seconds + lane.decode_seconds
    return _ratio((baseline.prefill_seconds + baseline.decode_seconds) / baseline.new_tokens, seconds / lane.new_tokens)


def round_cost(base: Metrics, lane: Metrics) -> float | None:
    """Seconds of a round / seconds per token of plain ``generate``."""
    if not lane.target_passes or not base.seconds_per_token:
        return None
    return lane.decode_seconds / lane.target_passes / base.seconds_per_token


def latency_reduction(factor: float) -> float:
    """The share of the baseline's seconds that a speed-up saves: 1 - 1 / speed-up."""
    return 1 - 1 / factor


def repeated_ngrams(ids: Iterable[int], n: int = 4) -> float:
    """The share of n-grams that occurred before in the same ids. Repetitive text is easy to guess."""
    ids = list(ids)
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _in_pieces(events: list[Event]) -> bool:
    """Whether the rounds are pieces of a server's answer, because the server did not tell its rounds."""
    started = next((event for event in events if isinstance(event, Started)), None)
    server = started.pair.get("server") if started else None
    return server is not None and server["exact"] != "rounds"


def _whole(events: list[Event]) -> list[Round]:
    """The rounds after the prefill that were not cut.

    A round that EOS cuts has no token of the target. Near the length limit a draft may be shorter than usual.
    """
    started = next((event for event in events if isinstance(event, Started)), None)
    longest = started.gamma if started and isinstance(started.gamma, int) else MAX_GAMMA
    whole, written = [], 0
    for event in events:
        if isinstance(event, Round):
            drafted = len(event.draft or ())
            last = started is not None and written + drafted + 1 >= started.params.max_new_tokens
            if event.index and event.token_id is not None and not (last and drafted < longest):
                whole.append(event)
            written += len(event.committed_ids)
    return whole


STALL_TIMES = 5  # a round is a stall if it took more than so many times the median round of its call
STALL_SHARE = 0.1  # and more than this share of the call's decode time


def _stalls(rounds: list[Round], decode_seconds: float) -> float:
    """Seconds of rounds that something outside decoding delayed: another program, or the machine itself."""
    if len(rounds) < 2:
        return 0.0
    spent = [after.elapsed_seconds - before.elapsed_seconds for before, after in pairwise(rounds)]
    least = max(STALL_TIMES * median(spent), STALL_SHARE * decode_seconds)
    return sum(seconds for seconds in spent if seconds > least)


def _at_places(rounds: list[Round], statuses: Sequence[str]) -> tuple[int, ...]:
    """For each place of a draft, how many guesses have one of these statuses, up to the last tested place."""
    drafts = [[token.status in statuses for token in r.draft or ()] for r in rounds]
    tested = max((sum(token.status != "discarded" for token in r.draft or ()) for r in rounds), default=0)
    return tuple(sum(draft[place] for draft in drafts if place < len(draft)) for place in range(tested))


def _overlaps(rounds: list[Round]) -> tuple[float, ...]:
    """For each place, the sum of the overlaps of the tested guesses; empty if one is not known."""
    drafts = [[token.overlap for token in r.draft or () if token.status != "discarded"] for r in rounds]
    known = [[value for value in draft if value is not None] for draft in drafts]
    if not any(drafts) or known != drafts:
        return ()
    return tuple(round(sum(row), 6) for row in zip_longest(*known, fillvalue=0.0))


def _pooled_overlaps(lanes: list[Metrics]) -> tuple[float, ...]:
    if any(len(m.overlap_at) != len(m.tested_at) for m in lanes):
        return ()  # not known for some of them
    return tuple(round(total, 6) for total in _added(m.overlap_at for m in lanes))


def _counted(numbers: Iterable[int]) -> tuple[int, ...]:
    """How often each number occurs, from 0 on."""
    found = Counter(numbers)
    return tuple(found[number] for number in range(max(found, default=-1) + 1))


def _added(rows: Iterable[tuple[_Number, ...]]) -> tuple[_Number, ...]:
    """Add rows place by place. Shorter rows count as zero at their end."""
    return tuple(map(sum, zip_longest(*rows, fillvalue=0)))


def _reread(rounds: list[Round]) -> float | None:
    usual: dict[int, list[float]] = defaultdict(list)
    for event in rounds:
        if not event.reread and event.verify_seconds is not None:
            usual[len(event.draft or ())].append(event.verify_seconds)
    seconds, unknown = 0.0, 0
    for event in rounds:
        if event.reread and event.verify_seconds is not None:
            if same := usual[len(event.draft or ())]:
                seconds += event.verify_seconds - median(same)
            else:
                unknown += event.reread
    if unknown > MOST_UNKNOWN * sum(event.reread for event in rounds):
        return None
    return max(0.0, seconds)


def _overhead(rounds: list[Round], decode_seconds: float) -> float | None:
    model_seconds = _sum(r.model_seconds for r in rounds)
    return None if model_seconds is None or decode_seconds <= 0 else 1 - model_seconds / decode_seconds


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    """The sum; None if there is nothing to add or a term is not known."""
    total: _Number | None = None
    for value in values:
        if value is None:
            return None
        total = value if total is None else total + value
    return total


def _weighed(values: Sequence[tuple[float, float]]) -> float | None:
    """The weighted mean of values."""
    return _ratio(sum(value * weight for value, weight in values), sum(weight for _, weight in values))


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None
