"""γ "auto": the length of each draft, chosen from the acceptance of the call so far and from what rounds cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Protocol

from specdec.closed_forms import expected_tokens
from specdec.engine.fits import Line, Mean
from specdec.events import MAX_GAMMA, DraftToken, Round
from specdec.runtime.stopping import DraftStop, log_odds, sigmoid

REREAD = 16  # a model with recurrent state reads at most so many kept tokens again in front of a draft


class RoundCosts(Protocol):
    """The estimated costs of a pair's rounds, in target passes over one row: ``round_costs.EstimatedCosts``."""

    @property
    def stateful(self) -> bool:
        """Whether recurrent state is copied and kept tokens are read again."""

    def draft(self, guesses: int, drafted_by: str | None = None) -> float:
        """A draft of so many guesses. ``drafted_by``: as in ``Round``; None for a pass of the draft."""

    def check(self, rows: int) -> float:
        """A pass of the target over so many rows."""


class Chooser:
    """The state of ``AutoGamma`` in one call.

    Expected tokens a second at length g are expected_tokens(alpha, g) / (D(g) + T(g + 1)) (Leviathan et al. 2211.17192,
    Theorem 3.8). D is the time of a draft of g guesses, and T that of the rest of a round, mostly a target pass over
    g + 1 rows; the theorem takes T as constant. Both are estimated costs, and with ``measures`` each goes through a
    line of measured against estimated costs. So the first draft has a sensible length already. No length above the
    longest draft of a block drafter is considered. Newer samples weigh more, because the text changes.

    Where 0 is best, nothing is drafted, and a short draft now and then checks whether that is still so, more and more
    seldom. A row of accepted guesses that was very unlikely says that the text has become easier: then what was learned
    before counts for little. After a short draft that was accepted and unlikely to be, the next one comes soon.
    Elsewhere a neighbour of the best length is tried now and then, because a line needs more than one point. For a
    target with recurrent state, T includes the copying of it and the rows that are read again.

    With ``may_stop`` a draft ends by the draft's own probabilities instead. A guess is accepted with sigmoid(slope x +
    bias), where x is the log-odds of its probability; both numbers are fitted while the call runs, by gradient steps on
    the log loss. Let S be the chance that all n guesses so far are accepted. Going on to m guesses yields
    S (alpha + ... + alpha^(m-n)) tokens more and takes C(m) - C(n) seconds more. So the draft ends where that is less
    than R (C(m) - C(n)) for each m, where R is the expected tokens a second at the best length. T is then the mean of
    what was measured at each number of rows, because rows are computed in groups, and only in between a line.
    """

    least_confidence = None
    stop: DraftStop | None = None  # what ends the next draft early
    may_stop = False  # set by the loop, as the next three
    longest = MAX_GAMMA
    costs: RoundCosts
    measures = False
    _LEARN = 0.15
    _PLAN_EVERY = 4  # rounds: a plan takes Python about a fiftieth of a small model's pass
    _AHEAD = 4  # guesses; rows are computed in groups, so the next one alone may look too expensive
    _LINE = 8  # samples that a mean at a number of rows needs to count as much as the line: single times scatter widely
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
        self._resting, self._wait = 0, 2  # the first short draft comes soon, because estimates may be wrong
        self._rested = False  # the round before drafted nothing
        self._probing = False  # the next draft is a short one that checks whether 0 is still best
        self._elapsed = 0.0
        self._accepted, self._tested = self._PRIOR
        self._row = 1.0  # the chance that all guesses since the last rejected one are accepted, as it was then learned
        self._drafting, self._checking = Line(), Line()  # measured against estimated
        self._at_rows: dict[int, Mean] = {}  # measured checks
        self._slope, self._bias = self._CALIBRATION
        self._best, self._planned = 0, -self._PLAN_EVERY

    def length(self) -> int:
        if self._rounds - self._planned >= self._PLAN_EVERY:
            self._plan()
        if self._best:
            self._resting, self._wait = 0, 16
            if self.stop:
                return self.longest
            turn, rest = divmod(self._rounds, self._NEIGHBOUR_EVERY)
            if not self.measures or rest or not turn:
                return self._best
            return min(self.longest, max(1, self._best + (2 if turn % 2 else -2)))
        self._resting += 1
        if self._resting < self._wait:
            return 0
        self._resting, self._probing = 0, True
        return self._PROBE

    def saw(self, event: Round) -> None:
        began, self._elapsed = self._elapsed, event.elapsed_seconds
        if event.index == 0:  # the prefill
            return
        self._rounds += 1
        draft = event.draft or ()
        if draft:
            alpha = self._accepted / self._tested
            self._learn(draft, alpha)
            if self._probing:  # a short draft without a guess has shown nothing, and cost next to nothing
                easier = draft[-1].status == "accepted" and alpha ** len(draft) < self._LITTLE
                self._wait = 2 if easier else min(2 * self._wait, 128)
        self._probing = False
        if self._row < self._VERY:
            self._accepted, self._tested = self._REMEMBER * self._accepted, self._REMEMBER * self._tested
            self._row, self._planned = 1.0, self._rounds - self._PLAN_EVERY
        if not self.measures:
            if draft:  # a combination copies some of its drafts
                self._drafting.add(self._estimate.drafts[len(draft)], self.costs.draft(len(draft), event.drafted_by))
        # The times of the first round do not count: caches are cold, kernels are being chosen.
        elif self._rounds > 1 and event.draft_seconds is not None:
            rest = event.elapsed_seconds - began - event.draft_seconds
            self._measure(len(draft), event.reread, event.draft_seconds, max(0.0, rest))

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

    def _measure(self, guesses: int, reread: int, drafting: float, checking: float) -> None:
        rows = guesses + 1 + min(reread, REREAD)  # more are read in a pass of their own
        self._checking.add(self._estimate.checks[rows], checking)
        if self.may_stop:
            self._at_rows.setdefault(rows, Mean()).add(min(checking, 2 * self._checking_seconds(rows)))
        if guesses:
            # After rounds without a draft, the draft first reads all that was written: its time is an upper bound.
            estimated = self._estimate.drafts[guesses]
            known = self._drafting.at(estimated)
            if not self._rested or not known or drafting < known:
                self._drafting.add(estimated, drafting)
        self._rested = not guesses

    def _plan(self) -> None:
        """Choose the best length of the next rounds, and what ends their drafts early."""
        self._planned, alpha, lengths = self._rounds, self._accepted / self._tested, range(self.longest + 1)
        costs = [self._drafting_seconds(n) + self._checking_seconds(n + 1) for n in lengths]
        if self.costs.stateful:
            rates = [self._rate_with_state(alpha, n) for n in lengths]
        else:
            rates = [expected_tokens(alpha, n) / max(costs[n], 1e-9) for n in lengths]
        self._best = max(lengths, key=rates.__getitem__)
        if self.may_stop:
            for rows, mean in self._at_rows.items():
                if rows <= self.longest + 1:
                    off_line = mean.value - self._checking_seconds(rows)
                    costs[rows - 1] += off_line * mean.count / (mean.count + self._LINE)
            gains = [*accumulate(alpha**n for n in range(1, self._AHEAD + 1))]
            least = tuple(
                rates[self._best]
                * min((more - costs[n]) / gain for more, gain in zip(costs[n + 1 :], gains, strict=False))
                for n in lengths[1:-1]
            )
            self.stop = DraftStop(least_survival=least, slope=self._slope, bias=self._bias)

    def _rate_with_state(self, alpha: float, gamma: int) -> float:
        """Expected tokens a second where a rejection sets recurrent state back, so that kept tokens are read again."""
        tokens, rows = expected_tokens(alpha, gamma), gamma + 1
        if gamma:  # the tokens of such rounds add up until a draft is fully accepted
            whole = alpha**gamma
            rows += round(min(REREAD, tokens * (1 - whole) / max(whole, 1e-9)))
        return tokens / max(self._drafting_seconds(gamma) + self._checking_seconds(rows), 1e-9)

    # Before anything was measured, these are target passes over one row.

    def _drafting_seconds(self, guesses: int) -> float:
        if not guesses:
            return 0.0
        estimated = self._estimate.drafts[guesses]
        return self._drafting.at(estimated) or estimated * (self._checking.at(1.0) or 1.0)

    def _checking_seconds(self, rows: int) -> float:
        estimated = self._estimate.checks[rows]
        return self._checking.at(estimated) or estimated

    @cached_property
    def _estimate(self) -> _Estimate:
        rows = range(MAX_GAMMA + 2 + REREAD)
        return _Estimate([*map(self.costs.draft, range(MAX_GAMMA + 1))], [*map(self.costs.check, rows)])


class _Estimate(NamedTuple):
    """Estimated costs of a draft by its guesses and of a check by its rows, in target passes over one row."""

    drafts: list[float]
    checks: list[float]
