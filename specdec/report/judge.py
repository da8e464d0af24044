"""Judges whether speculation pays, by how much, and if not, why.

A race, a sweep, a benchmark, the command line and the API all ask ``judge``. It returns kinds and plain numbers. The
sentences for each kind are in ``specdec.report.sentences``.

Two gains are kept apart. ``gain`` compares the lane with plain ``generate``. ``speculation`` compares it with our own
loop without a draft. What our loop gains over plain ``generate`` (``engine``) has nothing to do with speculation. If
the loop did not run, the two gains cannot be separated, and the kind says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from types import MappingProxyType

from specdec.closed_forms import break_even_alpha, draft_passes, expected_speedup, expected_tokens
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.gain import RunMetrics, Steps, median_run, steps
from specdec.measure.metrics import ENOUGH_RUNS, STALL_SHARE, no_clear_difference
from specdec.measure.summary import Share, Summary, fastest

SHRUNK = 0.95  # v below this is noise, because checking more tokens costs no less
FULL = 0.7  # guesses per round / gamma; below this, drafts are too short for the closed form
WIDE = 0.25  # (highest - lowest) / median gain; above this, the runs differ widely


class Kind(StrEnum):
    """The kinds of outcome.

    The first word of the first twelve compares the lane with plain ``generate``, and the rest is about speculation.
    "Unsplit": our loop did not run, so its share is not known.
    """

    FASTER = auto()  # and speculation pays
    FASTER_UNSPLIT = auto()
    FASTER_PERHAPS = auto()  # it is not clear whether speculation pays
    FASTER_BY_ENGINE = auto()  # speculation loses
    UNCLEAR = auto()  # no clear difference, and it is not clear whether speculation pays
    UNCLEAR_UNSPLIT = auto()
    UNCLEAR_GAINS = auto()  # speculation pays
    UNCLEAR_LOSES = auto()  # speculation loses
    SLOWER = auto()  # and speculation loses
    SLOWER_UNSPLIT = auto()
    SLOWER_PERHAPS = auto()  # it is not clear whether speculation pays
    SLOWER_BY_ENGINE = auto()  # speculation pays
    BUSY = auto()  # other programs used the machine, so the figure is uncertain
    NOISY = auto()  # the figures contradict each other, so the figure is uncertain
    NO_GUESSES = auto()  # gamma 0
    NOTHING_GUESSED = auto()  # the draft made no guess
    TOO_FEW_TOKENS = auto()
    NO_TOKEN = auto()
    INCOMPLETE = auto()  # a lane is missing
    TOO_EARLY = auto()  # not every draft length has run on every prompt
    NOT_MEASURED = auto()


class Reason(StrEnum):
    """Why speculation loses."""

    GUESSES_COST = auto()  # too much
    FEW_KEPT = auto()
    CHECKING_GROWS = auto()
    CHECKING_OR_LOOP = auto()  # one of both; without our loop they cannot be told apart
    UNEVEN = auto()  # guesses are not kept independently of each other
    OVERHEAD = auto()  # work around the passes
    CUT = auto()  # rounds that the end of the text cuts short
    UNKNOWN = auto()


class Advice(StrEnum):
    """What may help where speculation loses."""

    SHORTER = auto()  # a shorter draft length
    CHEAPER = auto()  # a draft that costs less
    CLOSER = auto()  # a draft that agrees with the target more often
    LONGER = auto()  # a longer text


class Doubt(StrEnum):
    """What makes a figure less certain than it looks."""

    BUSY = auto()  # other programs used the machine
    TOO_FAST = auto()  # faster than its rounds allow
    LUCK = auto()  # the fastest of many draft lengths, each measured once
    ABOVE_LIMIT = auto()  # faster than the machine's computed limit
    STALL = auto()  # one round took far longer than usual
    WIDE_SPREAD = auto()  # the runs differ widely
    CHECKING_SHRINKS = auto()  # checking more tokens was faster than checking one
    FEW_RUNS = auto()  # too few to confirm the difference


@dataclass(frozen=True)
class Judgement:
    """The outcome of a comparison. Figures are those of the median run (``median_run``); None if not measured.

    gain          plain ``generate`` / this lane, seconds a token; ``spread`` holds the lowest and highest run
    engine        plain ``generate`` / our loop without a draft
    speculation   our loop without a draft / this lane: gain / engine
    c, v          seconds of a draft pass, and of a target pass over a round / seconds of one over a single token.
                  Without the loop, ``c`` is the cost of a draft pass in tokens of plain generate, and ``v`` is None
    alpha         guesses kept / guesses tested
    needed_alpha  the alpha at which a round yields as many tokens as it costs, by the closed form
    cost          the cost of a round: gamma c + v target passes, or c + v where a draft takes one pass; without the
                  loop, in tokens of plain generate
    tokens        tokens per target pass, without rounds cut by EOS or length
    guesses       guesses per round
    draft_passes  draft passes per round: ``guesses``, or one for each draft where that is how the draft works
    round_cost    seconds of a round / seconds per token of plain ``generate``
    predicted     ``speculation`` by the closed form of alpha, c and v
    overhead      share of the lane's time that is neither drafting nor checking
    stalled       how many runs had a stall
    busy          in how many runs other programs took much processor time
    cpu_share     the lowest share of its time in which a lane's thread had a processor
    tokens_of_all tokens per target pass, with the rounds cut by EOS or length
    steps         seconds per token from plain ``generate`` to this lane, in steps that add up
    one_pass      whether a draft takes one pass, whatever its length
    on_servers    whether both lanes ran on servers: the plain one was no ``generate``, and our loop is not between them
    lost          whether speculation lost time in every run
    partial       whether a part of the planned calls has not run
    """

    kind: Kind
    gamma: int | str | None = None
    reason: Reason | None = None
    advice: Advice | None = None
    doubts: tuple[Doubt, ...] = ()
    runs: int = 0
    gain: float | None = None
    spread: tuple[float, float] | None = None
    engine: float | None = None
    speculation: float | None = None
    c: float | None = None
    v: float | None = None
    alpha: float | None = None
    needed_alpha: float | None = None
    cost: float | None = None
    tokens: float | None = None
    guesses: float | None = None
    draft_passes: float | None = None
    round_cost: float | None = None
    predicted: float | None = None
    overhead: float | None = None
    stalled: int = 0
    busy: int = 0
    cpu_share: float | None = None
    tokens_of_all: float | None = None
    steps: Steps = ()
    one_pass: bool = False
    on_servers: bool = False
    lost: bool = False
    partial: bool = False

    @property
    def split(self) -> bool:
        """Whether the engine's share and speculation's are known separately."""
        return self.engine is not None

    @property
    def is_about(self) -> bool:
        """Whether the gain is uncertain, which its sentence, its colour and all that is computed from it show.

        It is if other programs or chance made it, if the runs differ widely, if half of them stalled, and until all
        calls of a plan have run.
        """
        noise = self.kind in NOISE or Doubt.WIDE_SPREAD in self.doubts
        return noise or self.partial or (self.runs > 0 and 2 * self.stalled >= self.runs)

    @property
    def can_break_even(self) -> bool | None:
        """Whether a round could yield as many tokens as it costs; None where the closed form does not apply."""
        known = self.cost is not None and self.alpha is not None and _full(self) is not None
        return self.needed_alpha is not None if known else None

    @property
    def refutes_theory(self) -> bool:
        """Whether the measured gain contradicts the closed form: a gain where it says loss, or the reverse."""
        if self.speculation is None or self.alpha is None or self.can_break_even is None:
            return False
        enough = self.needed_alpha is not None and self.alpha >= self.needed_alpha
        return (self.speculation >= 1) != enough


NOISE = {Kind.BUSY, Kind.NOISY}
LOSING = {Kind.FASTER_BY_ENGINE, Kind.UNCLEAR_LOSES, Kind.SLOWER, Kind.SLOWER_UNSPLIT}

# By the sign of the gain and of speculation's share: 1 clearly above 1, -1 clearly below, 0 unclear, None unknown.
_KINDS = {
    (1, 1): Kind.FASTER,
    (1, None): Kind.FASTER_UNSPLIT,
    (1, 0): Kind.FASTER_PERHAPS,
    (1, -1): Kind.FASTER_BY_ENGINE,
    (0, 0): Kind.UNCLEAR,
    (0, None): Kind.UNCLEAR_UNSPLIT,
    (0, 1): Kind.UNCLEAR_GAINS,
    (0, -1): Kind.UNCLEAR_LOSES,
    (-1, -1): Kind.SLOWER,
    (-1, None): Kind.SLOWER_UNSPLIT,
    (-1, 0): Kind.SLOWER_PERHAPS,
    (-1, 1): Kind.SLOWER_BY_ENGINE,
}


def judge(
    runs: Sequence[RunMetrics],
    gamma: int | str | None,
    *,
    one_pass: bool = False,
    shorter_lost: bool = False,
    doubts: Sequence[Doubt] = (),
) -> Judgement:
    """Judge one lane by its runs.

    ``one_pass``: a draft takes one pass, whatever its length. ``shorter_lost``: shorter drafts were measured and are no
    better. ``doubts`` are known from other measurements, and each of them makes the figures noise. Our loop counts only
    if it ran in all of ``runs``. Runs that are too short for tokens/s are left out.
    """
    runs = [run for run in runs if run.gain]
    if not runs:
        return Judgement(Kind.TOO_FEW_TOKENS, gamma)
    if not all(run.engine and run.verify_growth for run in runs):
        runs = [RunMetrics(run.plain, run.lane) for run in runs]
    runs = [replace(run, one_pass=one_pass) for run in runs]
    found = _figures(runs, gamma, one_pass)
    if found.kind in _KINDS.values():
        found = _unless_noise(found, runs, doubts)
    if found.kind in LOSING:
        reason = _reason(found)
        found = replace(found, reason=reason, advice=_advice(found, reason, shorter_lost))
    return replace(found, doubts=(*found.doubts, *_doubts(found, [run.gain or 0.0 for run in runs])))


def judge_lengths(
    summaries: Sequence[Summary],
    share: Share,
    of_limit: Mapping[LaneConfig, float] = MappingProxyType({}),
    one_pass: bool = False,
) -> Judgement:
    """Judge a sweep or a benchmark by its fastest draft length; by our loop only if no lane drafts.

    ``of_limit``: the share of the machine's limit that a lane reached, where the limit is known. ``one_pass``: as in
    ``judge``.
    """
    if not share.whole:
        return Judgement(Kind.TOO_EARLY)
    drafting = [s for s in summaries if s.lane == LOOP.lane and s.lane_config != LOOP]
    best = fastest(drafting or summaries)
    if best is None:
        return Judgement(Kind.TOO_FEW_TOKENS if drafting else Kind.NOT_MEASURED)
    gains = {s.gamma: s.gain for s in drafting if isinstance(s.gamma, int) and s.gain}
    shorter = isinstance(best.gamma, int) and min(gains, default=best.gamma) < best.gamma
    doubts = [Doubt.LUCK] if len(best.gains) == 1 and _stands_out(gains) else []
    doubts += [Doubt.ABOVE_LIMIT] if of_limit.get(best.lane_config, 0.0) > 1 / SHRUNK else []
    return judge(best.sides, best.gamma, one_pass=one_pass, shorter_lost=shorter, doubts=doubts)


def _figures(runs: Sequence[RunMetrics], gamma: int | str | None, one_pass: bool) -> Judgement:
    """The kind and all figures. ``runs`` is not empty, and each run has a gain."""
    gains, run = [run.gain or 0.0 for run in runs], median_run(runs)
    gain = run.gain or 0.0
    found = Judgement(
        Kind.NOT_MEASURED, gamma, runs=len(runs), gain=gain, spread=(min(gains), max(gains)), engine=run.engine,
        speculation=run.speculation, alpha=run.lane.alpha, tokens=run.lane.mean_acceptance_length,
        overhead=run.overhead, stalled=sum(map(_stalled, runs)), busy=sum(run.busy for run in runs),
        cpu_share=min(run.cpu_shares, default=None), tokens_of_all=run.tokens_of_all, one_pass=one_pass,
        lost=all(run.speculation is not None and run.speculation < 1 for run in runs),
    )  # fmt: skip
    if all(run.lane.drafted == 0 for run in runs):
        kind = Kind.NOTHING_GUESSED if gamma else Kind.NO_GUESSES
        return replace(found, kind=kind, engine=None, speculation=None, lost=False)
    share = None if found.speculation is None else _sign([run.speculation for run in runs], found.speculation)
    found = replace(
        found, kind=_KINDS[_sign(gains, gain), share], c=run.cost_coefficient, v=run.verify_growth,
        guesses=run.guesses, draft_passes=run.draft_passes, round_cost=run.round_cost,
    )  # fmt: skip
    c, v, passes, full = found.c, found.v, _passes(found), _full(found)
    if c is None or passes is None:
        return found
    cost = found.round_cost if v is None else passes * c + v
    found = replace(found, cost=cost, steps=steps(run))
    if full is None or found.alpha is None or cost is None:
        return found
    predicted = None if v is None else expected_speedup(found.alpha, full, c, v, one_pass)
    return replace(found, needed_alpha=break_even_alpha(full, cost), predicted=predicted)


def _full(found: Judgement) -> int | None:
    """Gamma if drafts are about that long, as the closed form assumes; else None. Prompt lookup often drafts less."""
    gamma, guesses = found.gamma, found.guesses
    return gamma if isinstance(gamma, int) and guesses is not None and guesses >= FULL * gamma else None


def _passes(found: Judgement) -> float | None:
    """Draft passes of a round: those of the closed form where drafts are as long as it assumes, else as measured."""
    full = _full(found)
    return found.draft_passes if full is None else draft_passes(full, found.one_pass)


def _unless_noise(found: Judgement, runs: Sequence[RunMetrics], known: Sequence[Doubt]) -> Judgement:
    """The same, with another kind if other programs or chance made the figures.

    Checking many tokens takes as long as checking one at least, so speculation cannot gain more than a round yields. On
    a GPU it may take a little less. So many runs that agree are believed.
    """
    middle, few = median_run(runs), len(runs) < ENOUGH_RUNS
    doubted = {
        Doubt.BUSY: 2 * found.busy >= len(runs) or middle.busy,
        Doubt.TOO_FAST: _too_fast(middle) and (few or not all(map(_too_fast, runs))),
        Doubt.CHECKING_SHRINKS: _shrinks(middle) and (few or not all(map(_shrinks, runs))),
    }
    doubts = (*(doubt for doubt, there in doubted.items() if there), *known)
    if not doubts:
        return found
    return replace(found, kind=Kind.BUSY if Doubt.BUSY in doubts else Kind.NOISY, doubts=doubts)


def _too_fast(run: RunMetrics) -> bool:
    return (run.speculation or 0.0) > (run.tokens_of_all or math.inf) / SHRUNK


def _shrinks(run: RunMetrics) -> bool:
    return run.verify_growth is not None and run.verify_growth < SHRUNK


def _stands_out(gains: dict[int, float]) -> bool:
    """Whether the fastest draft length is far ahead of the next shorter and the next longer one."""
    lengths = sorted(gains)
    place = max(range(len(lengths)), key=lambda at: gains[lengths[at]], default=0)
    beside = [gains[lengths[at]] for at in (place - 1, place + 1) if 0 <= at < len(lengths)]
    return bool(beside) and gains[lengths[place]] > (1 + WIDE) * max(beside)


def _reason(found: Judgement) -> Reason:
    """Why a lane loses, by the cost and the yield of its rounds.

    If the closed form says that the guesses pay, the cause is something else: guesses that are kept unevenly, rounds
    that the end of the text cuts, or work around the passes. Otherwise it is the largest of three losses against an
    ideal round, which keeps every guess and costs one pass: rejected guesses, drafting, checking.
    """
    alpha, c, guesses, cost, tokens = found.alpha, found.c, found.guesses, found.cost, found.tokens
    all_tokens, passes, full = found.tokens_of_all, _passes(found), _full(found)
    if alpha is None or c is None or guesses is None or passes is None:
        return Reason.UNKNOWN
    if cost is None or tokens is None or all_tokens is None:
        return Reason.UNKNOWN
    if (tokens if full is None else expected_tokens(alpha, full)) >= cost:
        if tokens < cost:
            return Reason.UNEVEN
        return Reason.CUT if all_tokens < cost or not found.split else Reason.OVERHEAD
    checking = Reason.CHECKING_GROWS if found.split else Reason.CHECKING_OR_LOOP
    losses = {Reason.GUESSES_COST: passes * c, checking: cost - passes * c - 1}
    if found.can_break_even is not False:
        losses[Reason.FEW_KEPT] = (guesses if full is None else full) + 1 - tokens
    return max(losses, key=lambda reason: losses[reason])


def _advice(found: Judgement, reason: Reason, shorter_lost: bool) -> Advice | None:
    """What may help against ``reason``."""
    if reason in _ADVICE:
        return _ADVICE[reason]
    if found.alpha is None or found.c is None:
        return None
    if not shorter_lost and _shorter_may_pay(found):
        return Advice.SHORTER
    if reason is Reason.GUESSES_COST:
        return Advice.CHEAPER
    return Advice.CLOSER if reason in (Reason.FEW_KEPT, Reason.UNEVEN) else None


def _shorter_may_pay(found: Judgement) -> bool:
    """Whether a shorter draft length could yield more than it costs, if checking its guesses took no time.

    Where each guess has its cost c, one can if the acceptance is above c; otherwise no draft length can (corollary
    3.9). Where a draft takes one pass, a shorter one saves no drafting.
    """
    alpha, gamma, c = found.alpha, found.gamma, found.c
    if not isinstance(gamma, int) or gamma < 2 or alpha is None or c is None:
        return False
    return expected_tokens(alpha, gamma - 1) > c + 1 if found.one_pass else alpha > c


# Work around the passes belongs to the program. No setting reduces it.
_ADVICE: dict[Reason, Advice | None] = {Reason.CUT: Advice.LONGER, Reason.OVERHEAD: None}


def _sign(ratios: Sequence[float | None], central: float) -> int:
    """1 if the ratios are clearly above 1, -1 if clearly below, else 0."""
    if no_clear_difference([ratio for ratio in ratios if ratio is not None], central):
        return 0
    return 1 if central > 1 else -1


def _stalled(run: RunMetrics) -> bool:
    sides = filter(None, (run.plain, run.loop, run.lane))
    return any(side.stall_seconds > STALL_SHARE * side.decode_seconds for side in sides)


def _doubts(found: Judgement, gains: Sequence[float]) -> tuple[Doubt, ...]:
    unclear = no_clear_difference(gains, found.gain)
    doubted = {
        Doubt.STALL: found.stalled > 0,
        Doubt.WIDE_SPREAD: max(gains) - min(gains) > WIDE * (found.gain or 0.0),
        Doubt.FEW_RUNS: unclear and 1 < len(gains) < ENOUGH_RUNS and not min(gains) <= 1 <= max(gains),
    }
    return tuple(doubt for doubt, there in doubted.items() if there and doubt not in found.doubts)
