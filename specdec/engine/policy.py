"""Policies choose how many tokens to draft next. A policy sees every round and names the next draft's length.

Decoding stays lossless under any of them: a length depends on earlier rounds only, and a confidence stop depends on the
draft only.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar, NamedTuple, Protocol, cast

from specdec.closed_forms import expected_tokens
from specdec.engine.fits import Line, Mean
from specdec.errors import BadSetting, InvalidInput, identified, quoted
from specdec.events import MAX_GAMMA, DraftToken, Round, check_gamma, require_number
from specdec.runtime.stopping import DraftStop, log_odds, sigmoid

REREAD = 16  # a model with recurrent state reads at most so many kept tokens again in front of a draft
CONFIDENCE = "confidence:"  # how the text of a confidence stop begins; its number follows


class Policy(Protocol):
    """A way to choose draft lengths, as a caller asks for it."""

    def start(self) -> GammaSchedule:
        """The lengths of one call. Each call has its own memory."""


class GammaSchedule(Protocol):
    """The draft lengths of one call.

    ``least_confidence``: the first guess whose raw probability is below it ends a draft; None drafts the whole length.
    """

    @property
    def least_confidence(self) -> float | None: ...

    def length(self) -> int:
        """Tokens to draft in the next round, 0 to 16."""

    def saw(self, event: Round) -> None:
        """Take note of a round."""


class RoundCosts(Protocol):
    """The estimated costs of a pair's rounds, in target passes over one row: ``round_costs.EstimatedCosts``."""

    @property
    def stateful(self) -> bool:
        """Whether recurrent state is copied and kept tokens are read again."""

    def draft(self, guesses: int, drafted_by: str | None = None) -> float:
        """A draft of so many guesses. ``drafted_by``: as in ``Round``; None for a pass of the draft."""

    def check(self, rows: int) -> float:
        """A pass of the target over so many rows."""


@dataclass(frozen=True)
class Fixed:
    """Draft ``gamma`` tokens in every round."""

    gamma: int = 5
    least_confidence: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def __str__(self) -> str:
        return str(self.gamma)

    def start(self) -> Fixed:
        return self

    def length(self) -> int:
        return self.gamma

    def saw(self, event: Round) -> None: ...


@dataclass(frozen=True)
class ConfidenceStop(Fixed):
    """Draft up to ``gamma`` tokens, and stop after the first whose probability is below ``least_confidence``.

    The probability is ``DraftToken.draft_confidence``: the draft's own, by the softmax of its raw logits, or the chance
    of acceptance that a DSpark head predicts. ``gamma`` is 0 to 16, ``least_confidence`` between 0 and 1. Raises
    ``InvalidInput`` for other values.
    """

    gamma: int = MAX_GAMMA
    least_confidence: float = 0.4  # type: ignore[misc]  # a field here, one value for all lengths above

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.least_confidence, float) or not 0 < self.least_confidence < 1:
            raise BadSetting(f"least_confidence is {quoted(self.least_confidence)}; give a number between 0 and 1.")

    def __str__(self) -> str:
        return f"{CONFIDENCE}{self.least_confidence:g}" + ("" if self.gamma == MAX_GAMMA else f", up to {self.gamma}")


@dataclass(frozen=True)
class AutoGamma:
    """Choose each round's length from 0 to 16: the one with the highest expected tokens/s.

    It is computed from the acceptance of this call so far and from the costs of passes, by the closed form of Leviathan
    et al. 2211.17192, Theorem 3.8. Costs are estimated from the sizes of the models. In greedy calls, whose text does
    not depend on the lengths, measured times correct them. In sampled calls (temperature above 0) they do not, so a
    seed repeats the lengths and the text.

    In greedy calls where the host need not wait for the device, a draft with probabilities of its own ends as soon as
    one more guess would cost more than it is expected to gain. In sampled calls the probability of a drawn guess says
    too little about whether it is kept.
    """

    def __str__(self) -> str:
        return "auto"

    def start(self) -> Chooser:
        return Chooser()


class EveryLength:
    """The lengths of a warm-up: each once, 0 first and then from ``most`` (at least 2) down to 1.

    After the round that drafts nothing, the draft model reads two tokens in its next pass, as after a full acceptance,
    and one token in the pass after that. So both kinds of passes are warmed up, whatever is accepted.

    ``twice`` uses each length twice and 0 last. The graph engine captures a step when it occurs for the second time,
    and it does not capture the round after one without a draft.
    """

    _left: Iterator[int]  # in what ``start`` returns

    def __init__(self, most: int, least_confidence: float | None = None, twice: bool = False):
        lengths = range(max(2, most), 0, -1)
        self.lengths = [*(n for n in lengths for _ in range(2)), 0, 0] if twice else [0, *lengths]
        self.least_confidence = least_confidence

    def start(self) -> EveryLength:
        fresh = copy.copy(self)  # so that a second call does not take lengths from the first
        fresh._left = iter(self.lengths)
        return fresh

    def length(self) -> int:
        return next(self._left)

    def saw(self, event: Round) -> None: ...


def policy_of(gamma: int | str | Policy) -> Policy:
    """The policy of ``gamma``: a length from 0 to 16, "auto", "confidence:0.4" for a stop, or a policy itself."""
    if gamma == "auto":
        return AutoGamma()
    if isinstance(gamma, str) and gamma.startswith(CONFIDENCE):
        return ConfidenceStop(least_confidence=_confidence(gamma))
    if isinstance(gamma, (str, type)):
        raise BadSetting(
            f'gamma is {quoted(gamma)}; give a whole number from 0 to {MAX_GAMMA}, "auto", "confidence:0.4", or a '
            "policy."
        )
    if isinstance(gamma, int) or not callable(getattr(gamma, "start", None)):  # a range has a ``start`` as well
        return Fixed(cast(int, gamma))  # refuses a value that is no length
    return gamma


def lengths_of(policy: Policy) -> GammaSchedule:
    """The lengths that ``policy`` starts for one call. Raises ``InvalidInput`` for an object without their members."""
    lengths = policy.start()
    for name in ("length", "saw"):
        if not callable(getattr(lengths, name, None)):
            raise InvalidInput(
                f"start() of the policy {quoted(policy)} returned {identified(lengths)}, which has no method {name}; "
                "return an object with length(), saw(event) and least_confidence."
            )
    _confidence_of(lengths)
    return lengths


def tell_of_drafts(lengths: GammaSchedule, may_stop: bool, longest: int = MAX_GAMMA) -> None:
    """Tell ``lengths`` whether a draft can end by the chances of its guesses, and how many a draft has at most.

    Only ``AutoGamma`` asks for that.
    """
    if isinstance(lengths, Chooser):
        lengths.may_stop, lengths.longest = may_stop, longest


def tell_of_costs(lengths: GammaSchedule, costs_of: Callable[[], RoundCosts], measures: bool) -> None:
    """Tell ``lengths`` what rounds are estimated to cost, and whether measured times correct that.

    Only ``AutoGamma`` asks for that.
    """
    if isinstance(lengths, Chooser):
        lengths.costs, lengths.measures = costs_of(), measures


def next_draft(lengths: GammaSchedule) -> tuple[int, DraftStop | None]:
    """How many tokens to draft next, and what ends the draft early.

    Raises ``InvalidInput`` for no length or one outside 0 to 16, and for a probability outside 0 to 1.
    """
    try:
        gamma = lengths.length()
    except StopIteration:  # a generator that lets it through would end with a RuntimeError
        raise InvalidInput("The policy has no length for the next round; return one for every round.") from None
    least = _confidence_of(lengths)
    if isinstance(lengths, Chooser):
        return check_gamma(gamma), lengths.stop
    return check_gamma(gamma), DraftStop(least_chance=least) if least else None


def _confidence_of(lengths: GammaSchedule) -> float | None:
    if not hasattr(lengths, "least_confidence"):
        raise InvalidInput(
            f"The lengths of the policy, {identified(lengths)}, have no least_confidence; give a number from 0 to 1, "
            "or None to draft the whole length."
        )
    least = lengths.least_confidence
    if least is not None:
        require_number("least_confidence", least, 0, 1)
    return least


class Chooser:
    """The state of ``AutoGamma`` in one call.

    Expected tokens a second at length g are expected_tokens(alpha, g) / (D(g) + T(g + 1)) (Leviathan et al. 2211.17192,
    Theorem 3.8). D is the time of a draft of g guesses, and T that of the rest of a round, mostly a target pass over
    g + 1 rows; the theorem takes T as constant. Both are estimated costs, and with ``measures`` each goes through a
    line of measured against estimated costs. So the first draft has a sensible length already. No length above the
    longest draft of a block drafter is considered. Newer samples weigh more, because the text changes.

    Where 0 is best, nothing is drafted, and a short draft now and then checks whether that is still so. Elsewhere a
    neighbour of the best length is tried now and then, because a line needs more than one point. For a target with
    recurrent state, T includes the copying of it and the rows that are read again.

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
    _PROBE = 2
    _NEIGHBOUR_EVERY = 24  # rounds
    _FORGET = 0.98  # a round
    _PRIOR = 5.6, 8.0  # accepted, tested: a common acceptance, with the weight of two drafts
    _CALIBRATION = 1.0, 2.0  # slope, bias: a draft's first choice is the target's more often than its probability says

    def __init__(self) -> None:
        self._rounds = 0
        self._resting, self._wait = 0, 2  # the first short draft comes soon, because estimates may be wrong
        self._rested = False  # the round before drafted nothing
        self._elapsed = 0.0
        self._accepted, self._tested = self._PRIOR
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
        self._resting, self._wait = 0, min(2 * self._wait, 128)
        return self._PROBE

    def saw(self, event: Round) -> None:
        began, self._elapsed = self._elapsed, event.elapsed_seconds
        if event.index == 0:  # the prefill
            return
        self._rounds += 1
        draft = event.draft or ()
        if draft:
            self._learn(draft)
        if not self.measures:
            if draft:  # a combination copies some of its drafts
                self._drafting.add(self._estimate.drafts[len(draft)], self.costs.draft(len(draft), event.drafted_by))
        # The times of the first round do not count: caches are cold, kernels are being chosen.
        elif self._rounds > 1 and event.draft_seconds is not None:
            rest = event.elapsed_seconds - began - event.draft_seconds
            self._measure(len(draft), event.reread, event.draft_seconds, max(0.0, rest))

    def _learn(self, draft: Sequence[DraftToken]) -> None:
        """Learn from the tested guesses what share is accepted, and how the draft's probabilities tell which."""
        self._accepted, self._tested = self._FORGET * self._accepted, self._FORGET * self._tested
        for token in draft:
            if token.status == "discarded":
                return
            accepted = token.status == "accepted"
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
                if rows <= self.longest + 1:  # a mean of few samples counts for less
                    off_line = mean.value - self._checking_seconds(rows)
                    costs[rows - 1] += off_line * mean.count / (mean.count + 1)
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


def gamma_of(text: str) -> int | str:
    """The draft length of a text, on a command line, on the page and in a link: 5, auto, or confidence:0.4.

    Raises ``InvalidInput`` for any other text.
    """
    gamma = int(text) if re.fullmatch(r"\d{1,9}", text) else text
    policy = policy_of(gamma)
    return gamma if isinstance(gamma, int) else str(policy)


def _confidence(text: str) -> float:
    try:
        return float(text.removeprefix(CONFIDENCE))
    except ValueError:
        raise BadSetting(f"gamma is {quoted(text)}; write a number after the colon, as in confidence:0.4.") from None
