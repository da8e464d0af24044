"""Computes, without running, what other draft lengths would have done on a recorded lane.

Lossless decoding writes the same text at every length; sampled text has the same distribution. At nearly every position
of the text, the recording says what becomes of a guess there: by the tested draft tokens, and by ``Round.missed`` where
the target added a token first.

In greedy decoding a guess is kept or not. Following the text with another length gives exactly the rounds of a real
run.

In sampling, a token y of the text came from an accepted guess with probability min(p, q)(y) / p(y) = min(1, q(y) /
p(y)), whatever happened elsewhere. For Algorithm 1 (Leviathan et al. 2211.17192) writes y by an accepted guess with
probability min(p, q)(y), and with p(y) in total. So following the text gives the expected run on it. The guess's own
chance, min(1, p/q), would be wrong here, because the text after an accepted guess differs from the text after a
rejected one.

A block drafter's guess also depends on where its draft began, and at another length most drafts begin elsewhere. For
those, guess number i is kept as often as guess number i of the recorded drafts (``recorded_text.BlockText``): an
expected value. Its draft takes one pass at every length.

Seconds are those rounds at ``Costs``: always a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from specdec.engine.policy import ConfidenceStop, Fixed, Policy, policy_of
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, Event, Round
from specdec.measure.costs import Costs
from specdec.measure.recorded_text import Text, recorded_text

ORACLE = "oracle"


class Calibration:
    """A policy for the run to record. It uses the lengths 0 to 16 in turn, so that all are measured.

    The text is that of any other policy: ``speculative(pair, prompt, gamma=Calibration())``.
    """

    # After length 0 the draft reads one token more. In front of the longest draft this matters least.
    lengths = (4, 2, 1, 8, 0, 16)
    least_confidence = None

    def __init__(self) -> None:
        self._rounds = 0

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.lengths))} in turn"

    def start(self) -> Calibration:
        return Calibration()

    def length(self) -> int:
        return self.lengths[self._rounds % len(self.lengths)]

    def saw(self, event: Round) -> None:
        self._rounds = event.index


@dataclass(frozen=True)
class PredictedRun:
    """One policy on the text after its first token. ``gamma`` is its length; None if it has several.

    - ``tokens_per_pass``: ``Metrics.mean_acceptance_length``, without rounds cut by EOS or length; None if all were
      cut.
    - ``exact``: the number of target passes is that of a real run, up to floating-point ties. Otherwise it is an
      expected value. At fixed lengths the same holds for ``drafted``, and for ``tokens_per_pass`` unless the guess at
      an EOS was never recorded.
    - ``seconds``: predicted. ``gain``: the seconds at gamma 0 / these.
    """

    name: str
    gamma: int | None
    target_passes: float
    tokens_per_pass: float | None
    drafted: float
    seconds: float
    seconds_per_token: float
    gain: float
    exact: bool


def what_if(
    events: Iterable[Event], costs: Costs, policies: Iterable[int | Fixed | str] | None = None
) -> list[PredictedRun]:
    """Compute what other policies would have done on a recorded lane: lengths, ``ConfidenceStop`` and "oracle".

    By default these are the lengths 0 to 16, or to the longest draft that a block drafter makes, confidences of 0.2 to
    0.8, and the oracle. The oracle is the least time that any choice of lengths could have reached if it knew which
    guesses will be kept. (In sampling it knows this round's guesses, and the chances of later ones.)

    Greedy results are exact unless a guess is needed that was never recorded: at the very end, or after the bonus
    tokens of early exit. Then the mean of the known guesses is used. How far a ``ConfidenceStop`` drafts after a
    rejected guess is known as far as the recorded draft went; beyond that it is expected from the confidences of
    discarded tokens. In sampling all results are expected values; those of a block drafter are too, but for the length
    that was recorded.

    Raises ``InvalidInput`` for a lane that cannot be used: its drafts were not observed, are too few, have acceptance
    "top-k", or depend on where a draft began (prompt lookup, another tokenizer; block drafters can be used). Raises it
    for other policies too, and for a ``ConfidenceStop`` of a block drafter.
    """
    text = recorded_text(list(events))
    if policies is None:
        stops = [ConfidenceStop(least_confidence=least) for least in (0.2, 0.4, 0.6, 0.8) if text.stops]
        policies = [*range(text.longest + 1), *stops, ORACLE]
    return [_walk(text, costs, policy if policy == ORACLE else policy_of(policy)) for policy in policies]


def _walk(text: Text, costs: Costs, policy: Policy | str) -> PredictedRun:
    """All rounds of a policy, each with the chance that it occurs."""
    length: Callable[[int, int], float]
    if policy == ORACLE:
        length = _oracle(text, costs)
    elif isinstance(policy, ConfidenceStop):
        if not text.stops:
            raise InvalidInput(
                "One pass makes all guesses of this draft, and where a confidence stop would end it was not recorded; "
                "give lengths or oracle."
            )
        length = _confident(text, policy)
    elif type(policy) is Fixed:
        length = lambda start, hits: text.room(start, policy.gamma)  # noqa: E731
    else:
        raise InvalidInput(f"A recording has no data for gamma {policy}; give lengths, ConfidenceStop or oracle.")
    reach = [0.0, 1.0, *[0.0] * (text.end - 1)]
    gamma = policy.gamma if type(policy) is Fixed else None
    passes, drafted, seconds, exact = 0.0, 0.0, 0.0, text.exact_at(gamma)
    longest = MAX_GAMMA if gamma is None else gamma
    whole_tokens = whole_passes = 0.0
    for start in range(1, text.end):
        ends = set()
        for hits, chance in text.futures[start] if reach[start] else ():
            n = length(start, hits)
            weight, end = reach[start] * chance, text.next(start, n, hits)
            reach[end] += weight
            passes, drafted, seconds = passes + weight, drafted + weight * n, seconds + weight * costs.seconds(n)
            if not text.cut(start, n, hits, longest):
                whole_tokens, whole_passes = whole_tokens + weight * (end - start), whole_passes + weight
            ends.add(end)
        exact = exact and len(ends) < 2
    tokens = text.end - 1
    passes, drafted, gain = round(passes, 6), round(drafted, 6), tokens * costs.seconds(0) / seconds
    a_pass = whole_tokens / whole_passes if whole_passes else None
    return PredictedRun(str(policy), gamma, passes, a_pass, drafted, seconds, seconds / tokens, gain, exact)


def _confident(text: Text, policy: ConfidenceStop) -> Callable[[int, int], float]:
    """Draft while the confidence suffices. It is that on the text, then after a miss, then of discarded tokens."""
    discarded = [confidence for row in text.behind.values() for confidence in row if confidence is not None]
    seen = discarded or [confidence for confidence in text.confidence if confidence is not None]
    below = fmean(confidence < policy.least_confidence for confidence in seen)

    def length(start: int, hits: int) -> float:
        room, last = text.room(start, policy.gamma), min(start + hits, text.end - 1)
        path = [*text.confidence[start : last + 1], *text.behind.get(last, ())][:room]
        for n, confidence in enumerate(path, start=1):
            if confidence is not None and confidence < policy.least_confidence:
                return n
        more = room - len(path)
        return len(path) + ((1 - (1 - below) ** more) / below if below else more)

    return length


def _oracle(text: Text, costs: Costs) -> Callable[[int, int], float]:
    """The cheapest length of each round, computed from the end of the text to its beginning."""
    seconds = [costs.seconds(n) for n in range(MAX_GAMMA + 1)]
    ahead, best = [0.0] * (text.end + 1), {}  # seconds from a position to the end; lengths by position and kept guesses
    for start in reversed(range(1, text.end)):
        for hits, chance in text.futures[start]:
            lengths = range(text.room(start, MAX_GAMMA) + 1)
            total = [seconds[n] + ahead[text.next(start, n, hits)] for n in lengths]
            best[start, hits] = total.index(min(total))
            ahead[start] += chance * min(total)
    return lambda start, hits: best[start, hits]
