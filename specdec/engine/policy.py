"""Policies choose how many tokens to draft next. A policy sees every round and names the next draft's length.

Decoding stays lossless under any of them: a length depends on earlier rounds only, and a confidence stop depends on the
draft only.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

from specdec.engine.chooser import Chooser, KnownCosts
from specdec.errors import BadSetting, InvalidInput, identified, quoted
from specdec.events import MAX_GAMMA, Round, check_gamma, require_number
from specdec.runtime.stopping import DraftStop

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
    not depend on the lengths, times measured in this call and in the pair's earlier ones correct them. In sampled calls
    (temperature above 0) they do not, so a seed repeats the lengths and the text.

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


def tell_of_costs(lengths: GammaSchedule, known: Callable[[], KnownCosts]) -> None:
    """Tell ``lengths`` what rounds are estimated to cost, and what they took where measured times correct that.

    Only ``AutoGamma`` asks for that.
    """
    if isinstance(lengths, Chooser):
        lengths.costs, lengths.times = known()


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
