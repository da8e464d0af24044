"""γ "auto": the length of each draft, chosen from the acceptance of the call so far and from what rounds cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import zip_longest
from math import inf
from typing import NamedTuple, Protocol

from specdec.closed_forms import expected_tokens
from specdec.engine.fits import Line, Mean
from specdec.engine.round_times import REREAD, SIZES, RoundTimes
from specdec.events import MAX_GAMMA, DraftToken, Round
from specdec.runtime.stopping import DraftStop, log_odds, sigmoid


class RoundCosts(Protocol):
    """The estimated costs of a pair's rounds, in target passes over one row: ``round_costs.EstimatedCosts``."""

    @property
    def stateful(self) -> bool:
        """Whether recurrent state is copied and kept tokens are read again."""

    def draft(self, guesses: int, drafted_by: str | None = None) -> float:
        """A draft of so many guesses. ``drafted_by``: as in ``Round``; None for a pass of the draft."""

    def check(self, rows: int) -> float:
        """A pass of the target over so many rows."""


class KnownCosts(NamedTuple):
    """What is known of the costs of a pair's rounds before a call.

    ``times``: what its rounds took, which the call adds to; None where measured times may not decide.
    """

    costs: RoundCosts
    times: RoundTimes | None


class Chooser:
    """The state of ``AutoGamma`` in one call.

    Expected tokens a second at length g are expected_tokens(alpha, g) / (D(g) + T(g + 1)) (Leviathan et al. 2211.17192,
    Theorem 3.8). D is the time of a draft of g guesses, and T that of the rest of a round, mostly a target pass over
    g + 1 rows; the theorem takes T as constant. Both are estimated costs until rounds were measured, so the first draft
    has a sensible length already. What the pair's earlier calls took is known from the first round on. No length above
    the longest draft of a block drafter is considered. Newer samples weigh more, because the text changes.

    Where 0 is best, nothing is drafted, and a short draft now and then checks whether that is still so, more and more
    seldom. A row of accepted guesses that was very unlikely says that the text has become easier: then what was learned
    before counts for little. After a short draft that was accepted and unlikely to be, the next one comes soon.
    Elsewhere a neighbour of the best length is tried now and then, because a line needs more than one point. For a
    target with recurrent state, T includes the copying of it and the rows that are read again.

    With ``may_stop`` a draft ends by the draft's own probabilities instead. A guess is accepted with sigmoid(slope x +
    bias), where x is the log-odds of its probability; both numbers are fitted while the call runs, by gradient steps on
    the log loss. Let S be the chance that all n guesses so far are accepted. Going on to m guesses yields
    S (alpha + ... + alpha^(m-n)) tokens more and takes C(m) - C(n) seconds more. So the draft ends where that is less
    than R (C(m) - C(n)) for each m, where R is the expected tokens a second at the best length.
    """

    least_confidence = None
    stop: DraftStop | None = None  # what ends the next draft early
    may_stop = False  # set by the loop, as the next three
    longest = MAX_GAMMA
    costs: RoundCosts
    times: RoundTimes | None = None  # of the pair; None where measured times may not decide
    _LEARN = 0.15
    _PLAN_EVERY = 4  # rounds: a plan takes Python about a fiftieth of a small model's pass
    _AHEAD = 4  # guesses; rows are computed in groups, so the next one alone may look too expensive
    _PROBE = 2
    _NEIGHBOUR_EVERY = 24  # rounds
    _FORGET = 0.98  # a round
    _LITTLE = 0.25  # the chance of a short draft's guesses below which the text has become a little easier
    _VERY = 0.005  # the chance of a row of accepted guesses below which the text has certainly become easier
    _REMEMBER = 0.25  # of the earlier guesses, then
    _PRIOR = 5.6, 8.0  # accepted, tested: a common acceptance, with the weight of two drafts
    _CALIBRATION = 1.0, 2.0  # slope, bias: a draft's first choice is the target's more often than its probability says

    def __init__(self) -> None:
        self._rounds = 0
        self._unread: list[Round] = []
        self._resting, self._wait = 0, 2  # the first short draft comes soon, because estimates may be wrong
        self._rested = False  # the round before drafted nothing
        self._probing = False  # the next draft is a short one that checks whether 0 is still best
        self._elapsed = 0.0
        self._accepted, self._tested = self._PRIOR
        self._row = 1.0  # the chance that all guesses since the last rejected one are accepted, as it was then learned
        self._pace = Mean()  # the seconds of this call's rounds over those that are known
        self._pace.add(1.0)  # so that one stalled round does not set it
        self._copies = Line()  # a combination's drafts, some of which are copied, against estimated ones
        self._slope, self._bias = self._CALIBRATION
        self._best, self._planned = 0, -self._PLAN_EVERY

    def length(self) -> int:
        if not self._best or self._rounds - self._planned >= self._PLAN_EVERY:
            self._read()
        if self._rounds - self._planned >= self._PLAN_EVERY:
            self._plan()
        if self._best:
            self._resting, self._wait = 0, 16
            if self.stop:
                return self.longest
            turn, rest = divmod(self._rounds, self._NEIGHBOUR_EVERY)
            if not self.times or rest or not turn:
                return self._best
            return min(self.longest, max(1, self._best + (2 if turn % 2 else -2)))
        self._resting += 1
        if self._resting < self._wait:
            return 0
        self._resting, self._probing = 0, True
        return self._PROBE

    def saw(self, event: Round) -> None:
        if event.index == 0:  # the prefill
            self._elapsed = event.elapsed_seconds
            return
        self._rounds += 1
        self._unread.append(event)

    def _read(self) -> None:
        """Learn from the rounds since the last time, several at once: a pass empties the processor's caches."""
        for event in self._unread:
            began, self._elapsed = self._elapsed, event.elapsed_seconds
            self._read_draft(event)
            # The times of the first round do not count: the processor's caches are cold, kernels are being chosen.
            if self.times and event.index > 1 and event.draft_seconds is not None:
                rest = event.elapsed_seconds - began - event.draft_seconds
                self._measure(self.times, event, max(0.0, rest))
        self._unread.clear()

    def _read_draft(self, event: Round) -> None:
        draft = event.draft or ()
        if draft:
            alpha = self._accepted / self._tested
            self._learn(draft, alpha)
            if self._probing:  # a short draft without a guess has shown nothing, and cost next to nothing
                easier = draft[-1].status == "accepted" and alpha ** len(draft) < self._LITTLE
                self._wait = 2 if easier else min(2 * self._wait, 128)
            drafted = self._estimate.drafts[len(draft)]
            self._copies.add(drafted, self.costs.draft(len(draft), event.drafted_by) if event.drafted_by else drafted)
        self._probing = False
        if self._row < self._VERY:
            self._accepted, self._tested = self._REMEMBER * self._accepted, self._REMEMBER * self._tested
            self._row, self._planned = 1.0, self._rounds - self._PLAN_EVERY

    def _learn(self, draft: Sequence[DraftToken], alpha: float) -> None:
        """Learn from the tested guesses what share is accepted, and how the draft's probabilities tell which.

        ``alpha``: that share as it was known before.
        """
        self._accepted, self._tested = self._FORGET * self._accepted, self._FORGET * self._tested
        for token in draft:
            if token.status == "discarded":
                break
            accepted = token.status == "accepted"
            self._row = self._row * alpha if accepted else 1.0
            self._accepted += accepted
            self._tested += 1
            if self.may_stop and token.draft_confidence is not None:
                x = log_odds(token.draft_confidence)
                error = accepted - sigmoid(self._slope * x + self._bias)
                self._slope += self._LEARN / 4 * error * x  # log-odds are about four times as large as 1
                self._bias += self._LEARN * error

    def _measure(self, times: RoundTimes, event: Round, rest: float) -> None:
        guesses, drafting = len(event.draft or ()), event.draft_seconds or 0.0
        rows = guesses + 1 + min(event.reread, REREAD)  # more are read in a pass of their own
        drafted, checked = self._estimate.drafts[guesses], self._estimate.checks[rows]
        copied = bool(event.drafted_by) and self.costs.draft(guesses, event.drafted_by) != drafted
        known_draft = times.drafting.at(guesses, drafted) if guesses else 0.0
        known_check = times.checking.at(rows, checked)
        if known_check > 0:
            # A copy says nothing of the draft's passes. After rounds without a draft, the draft first reads all that
            # was written.
            whole = known_draft > 0 and not copied and not self._rested
            measured = (drafting + rest) / (known_draft + known_check) if whole else rest / known_check
            pace = self._pace.value
            self._pace.add(min(max(measured, pace / 2), 2 * pace))  # a machine may stall
        pace = self._pace.value
        times.checking.add(rows, checked, rest / pace)
        late = self._rested and known_draft > 0 and drafting / pace >= known_draft
        if guesses and not copied and not late:
            times.drafting.add(guesses, drafted, drafting / pace)
        self._rested = not guesses

    def _plan(self) -> None:
        """Choose the best length of the next rounds, and what ends their drafts early."""
        self._planned, alpha, lengths = self._rounds, self._accepted / self._tested, range(self.longest + 1)
        drafts, checks = self._costs_by_size()
        costs = [draft + check for draft, check in zip(drafts[: self.longest + 1], checks[1:], strict=False)]
        if self.costs.stateful:
            rates = [_rate_with_state(alpha, n, drafts, checks) for n in lengths]
        else:
            rates = [expected_tokens(alpha, n) / max(costs[n], 1e-9) for n in lengths]
        most = max(rates)
        self._best = rates.index(most)
        if self.may_stop:
            prices, gain = [], 0.0  # the least survival at which 1, 2 ... guesses more are worth their cost
            for ahead in range(1, self._AHEAD + 1):
                gain += alpha**ahead
                share = most / gain
                prices.append(
                    [share * (more - cost) for cost, more in zip(costs[1:-1], costs[1 + ahead :], strict=False)]
                )
            least = tuple(map(min, zip_longest(*prices, fillvalue=inf)))
            self.stop = DraftStop(least_survival=least, slope=self._slope, bias=self._bias)

    def _costs_by_size(self) -> tuple[Sequence[float], Sequence[float]]:
        """The costs of a draft by its guesses and of a check by its rows: in seconds where rounds were measured."""
        drafts, checks = self._estimate
        mixed = [0.0, *map(self._copies.at, drafts[1:])] if self._copies.known else drafts
        if not self.times or not self.times.checking.known:
            return mixed, checks
        checks = self.times.checking.every(checks)
        if not self.times.drafting.known:
            return [checks[1] * draft for draft in mixed], checks
        taken = self.times.drafting.every(drafts)
        each = zip(mixed[1:], drafts[1:], taken[1:], strict=True)
        return [0.0, *(share / cost * time if cost else time for share, cost, time in each)], checks

    @cached_property
    def _estimate(self) -> _Estimate:
        return _Estimate([*map(self.costs.draft, range(MAX_GAMMA + 1))], [*map(self.costs.check, range(SIZES))])


def _rate_with_state(alpha: float, gamma: int, drafts: Sequence[float], checks: Sequence[float]) -> float:
    """Expected tokens a second where a rejection sets recurrent state back, so that kept tokens are read again."""
    tokens, rows = expected_tokens(alpha, gamma), gamma + 1
    if gamma:  # the tokens of such rounds add up until a draft is fully accepted
        whole = alpha**gamma
        rows += round(min(REREAD, tokens * (1 - whole) / max(whole, 1e-9)))
    return tokens / max(drafts[gamma] + checks[rows], 1e-9)


class _Estimate(NamedTuple):
    """Estimated costs of a draft by its guesses and of a check by its rows, in target passes over one row."""

    drafts: Sequence[float]
    checks: Sequence[float]
