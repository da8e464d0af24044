"""Policies choose how many tokens to draft next. A policy sees every round and names the next draft's length.

Decoding stays lossless under any of them: a length depends on earlier rounds only, and a confidence stop depends on the
draft only.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

from specdec.closed_forms import expected_tokens
from specdec.errors import BadSetting, InvalidInput, identified, quoted
from specdec.events import MAX_GAMMA, Round, check_gamma, require_number

REREAD = 16  # a model with recurrent state reads at most so many kept tokens again in front of a draft
CONFIDENCE = "confidence:"  # how the text of a confidence stop begins; its number follows


class Policy(Protocol):
    """A way to choose draft lengths, as a caller asks for it."""

    def start(self) -> GammaSchedule:
        """The lengths of one call. Each call has its own memory."""


class GammaSchedule(Protocol):
    """The draft lengths of one call. ``least_confidence`` ends a draft early; None drafts the whole length."""

    @property
    def least_confidence(self) -> float | None: ...

    def length(self) -> int:
        """Tokens to draft in the next round, 0 to 16."""

    def saw(self, event: Round) -> None:
        """Take note of a round."""


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

    The probability is the draft's own, by the softmax of its raw logits. ``gamma`` is 0 to 16, ``least_confidence``
    between 0 and 1. Raises ``InvalidInput`` for other values.
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

    It is computed from the acceptance and the pass times of this call so far, by the closed form of Leviathan et al.
    2211.17192, Theorem 3.8.
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


def next_draft(lengths: GammaSchedule) -> tuple[int, float | None]:
    """How many tokens to draft next, and the probability below which the draft ends early.

    Raises ``InvalidInput`` for no length or one outside 0 to 16, and for a probability outside 0 to 1.
    """
    try:
        gamma = lengths.length()
    except StopIteration:  # a generator that lets it through would end with a RuntimeError
        raise InvalidInput("The policy has no length for the next round; return one for every round.") from None
    return check_gamma(gamma), _confidence_of(lengths)


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
    Theorem 3.8). D is the time of g draft passes and T that of a target pass over g + 1 rows. Both are straight lines
    fitted to what was measured; the theorem takes T as constant. Newer samples weigh more, because the text changes.

    Where 0 is best, nothing is drafted, and a short draft now and then checks whether that is still so. Elsewhere a
    neighbour of the best length is tried now and then, because a line needs more than one point. For a target with
    recurrent state, T includes the copying of it and the rows that are read again.
    """

    least_confidence = None
    # A line needs two lengths. The times of the first draft do not count: caches are cold, kernels are being chosen.
    _OPENING = (4, 4, 1)
    _PROBE = 2
    _NEIGHBOUR_EVERY = 24  # rounds
    _FORGET = 0.98  # a round
    _PRIOR = 5.6, 8.0  # accepted, tested: a common acceptance, with the weight of two drafts

    def __init__(self) -> None:
        self._rounds = 0
        self._resting, self._wait = 0, 16
        self._rested = False  # the round before drafted nothing
        self._accepted, self._tested = self._PRIOR
        self._drafting, self._checking = Line(), Line()
        self._stateful = False  # whether recurrent state is copied and kept tokens are read again

    def length(self) -> int:
        if self._rounds < len(self._OPENING):
            return self._OPENING[self._rounds]
        best = max(range(MAX_GAMMA + 1), key=self._gain)
        if best:
            self._resting, self._wait = 0, 16
            turn, rest = divmod(self._rounds, self._NEIGHBOUR_EVERY)
            return best if rest else min(MAX_GAMMA, max(1, best + (2 if turn % 2 else -2)))
        self._resting += 1
        if self._resting < self._wait:
            return 0
        self._resting, self._wait = 0, min(2 * self._wait, 128)
        return self._PROBE

    def saw(self, event: Round) -> None:
        if event.index == 0:  # the prefill
            return
        self._rounds += 1
        statuses = [token.status for token in event.draft or ()]
        if statuses:
            accepted, rejected = statuses.count("accepted"), statuses.count("rejected")
            self._accepted = self._FORGET * self._accepted + accepted
            self._tested = self._FORGET * self._tested + accepted + rejected
        if self._rounds > 1 and event.verify_seconds is not None and event.draft_seconds is not None:
            self._stateful = self._stateful or event.state_seconds > 0
            self._checking.add(len(statuses) + 1 + event.reread, event.verify_seconds + event.state_seconds)
            # After rounds without a draft, the draft first reads all that was written: its time is an upper bound.
            if statuses and (not self._rested or event.draft_seconds < self._drafting.at(len(statuses))):
                self._drafting.add(len(statuses), event.draft_seconds)
            self._rested = not statuses

    def _gain(self, gamma: int) -> float:
        alpha = self._accepted / self._tested
        tokens, rows = expected_tokens(alpha, gamma), gamma + 1.0
        if self._stateful and gamma:
            # A rejection sets recurrent state back. The tokens of such rounds add up until a draft is fully accepted.
            whole = alpha**gamma
            rows += min(REREAD, tokens * (1 - whole) / max(whole, 1e-9))
        seconds = self._checking.at(rows) + (self._drafting.at(gamma) if gamma else 0.0)
        return tokens / max(seconds, 1e-9)


class Line:
    """A least-squares line of seconds against a number of passes or rows. It never falls, and is not negative at 0.

    Newer samples weigh more. A sample counts for at most twice the expected value, because a machine may stall.
    """

    def __init__(self, forget: float = 0.95):
        self._forget = forget
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        if self._n > 2:
            y = min(y, 2 * self.at(x))
        sums = (self._n, self._x, self._y, self._xx, self._xy)
        new = (1.0, x, y, x * x, x * y)
        self._n, self._x, self._y, self._xx, self._xy = (
            self._forget * old + term for old, term in zip(sums, new, strict=True)
        )

    def at(self, x: float) -> float:
        if not self._n:
            return 0.0
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x**2
        slope = (self._xy / self._n - mean_x * mean_y) / spread if spread > 1e-9 else 0.0
        slope = min(max(0.0, slope), mean_y / mean_x)
        return mean_y + slope * (x - mean_x)


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
