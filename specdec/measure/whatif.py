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

Seconds are those rounds at ``Costs``: always a prediction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from specdec.engine.policy import ConfidenceStop, Fixed, Policy, policy_of
from specdec.errors import InvalidInput
from specdec.events import LOSSLESS, MAX_GAMMA, DraftToken, Event, Finished, Round, Started

ORACLE = "oracle"
LEAST = 8  # known guesses; with fewer nothing is said about a draft
COLD = 2  # the first rounds after the prefill, which are slower than the others

Points = tuple[tuple[int, float], ...]  # draft lengths in rising order, each with seconds


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
class Costs:
    """Seconds of a round by its draft length: ``draft`` and ``verify`` at the measured lengths, and the ``rest`` of it.

    ``assumed`` is a sentence that says what was not measured. None if each length from 0 to 16 was measured or lies
    between measured ones.
    """

    draft: Points
    verify: Points
    rest: float
    assumed: str | None = None

    @classmethod
    def of(cls, *lanes: Iterable[Event]) -> Costs:
        """Medians over the rounds of all ``speculative`` lanes given, of one pair on one machine.

        Without a round at length 0, a ``generate`` lane is used for it. Other lanes are ignored. Raises
        ``InvalidInput`` if no round has measured passes.
        """
        rows: defaultdict[int, list[tuple[float, float, float]]] = defaultdict(list)
        plain: list[float] = []
        assumed: list[str] = []
        for events in map(list, lanes):
            lane = next((event.lane for event in events if isinstance(event, Started)), None)
            pairs = list(pairwise(event for event in events if isinstance(event, Round)))
            for before, event in pairs[COLD:] if len(pairs) > 3 * COLD else pairs:
                whole = event.elapsed_seconds - before.elapsed_seconds
                if lane == "generate":
                    plain.append(whole)
                elif lane == "speculative" and event.draft is not None:
                    drafting, checking = event.draft_seconds, event.verify_seconds
                    if drafting is not None and checking is not None:
                        rows[len(event.draft)].append((drafting, checking, whole - (drafting + checking)))
        if not rows:
            raise InvalidInput("No lane has rounds with measured passes; give the events of a lane of specdec.")
        # Towards its end a lane drafts less and less, each length once. Those rounds count only if there are no others.
        often = {n: columns for n, columns in rows.items() if len(columns) > 1} or rows
        middle = {n: [median(column) for column in zip(*often[n], strict=True)] for n in sorted(often)}
        verify, rest = {n: row[1] for n, row in middle.items()}, median(row[2] for n in often for row in often[n])
        least, most = min(verify), max(verify)
        if least:
            verify = {0: max(median(plain) - rest, 0.0) if plain else verify[least]} | verify
            source = (
                "that of transformers' generate"
                if plain
                else f"assumed to equal that of a pass over {least} draft tokens"
            )
            assumed.append(f"The time of a target pass without a draft is {source}.")
        if most < MAX_GAMMA:
            assumed.append(f"The cost of more than {most} draft tokens is extrapolated.")
        draft = {0: 0.0} | {n: row[0] for n, row in middle.items()}
        return cls(tuple(draft.items()), tuple(verify.items()), rest, " ".join(assumed) or None)

    def seconds(self, n: float) -> float:
        """Seconds of a round that drafts n tokens: interpolated, and beyond the measured lengths by the mean slope."""
        return sum(self.parts(n))

    def parts(self, n: float) -> tuple[float, float, float]:
        """The same in drafting, in verifying, and in the rest."""
        return _at(self.draft, n), _at(self.verify, n), self.rest


def _at(points: Points, n: float) -> float:
    for (low, below), (high, above) in pairwise(points):
        if n <= high:
            return below + (above - below) * (n - low) / (high - low)
    (least, first), (most, last) = points[0], points[-1]
    return last + max(0.0, last - first) / max(most - least, 1) * (n - most)


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

    By default these are the lengths 0 to 16, confidences of 0.2 to 0.8, and the oracle. The oracle is the least time
    that any choice of lengths could have reached if it knew which guesses will be kept. (In sampling it knows this
    round's guesses, and the chances of later ones.)

    Greedy results are exact unless a guess is needed that was never recorded: at the very end, or after the bonus
    tokens of early exit. Then the mean of the known guesses is used. How far a ``ConfidenceStop`` drafts after a
    rejected guess is known as far as the recorded draft went; beyond that it is expected from the confidences of
    discarded tokens. In sampling all results are expected values.

    Raises ``InvalidInput`` for a lane that cannot be used: its drafts were not observed, are too few, have acceptance
    "top-k", or depend on where a draft began (prompt lookup, another tokenizer). Raises it for other policies too.
    """
    text = Text(list(events))
    if policies is None:
        stops = [ConfidenceStop(least_confidence=least) for least in (0.2, 0.4, 0.6, 0.8)]
        policies = [*range(MAX_GAMMA + 1), *stops, ORACLE]
    return [_walk(text, costs, policy if policy == ORACLE else policy_of(policy)) for policy in policies]


class Text:
    """A recorded text by position, and what is known of guesses there. Position 0 is the prefill's token.

    stands[i]     the chance that a guess at i is kept, where it is known
    wrong[i]      the rejected guess at i, where it is known
    mean          the mean of all known chances, used where one is not known
    futures[i]    how many guesses in a row from i on are kept, up to 16, each with its chance
    confidence[i] the draft's confidence in its guess at i; None where it is not known
    behind[i]     the confidences of the draft tokens after a rejected guess at i
    """

    def __init__(self, events: list[Event]) -> None:
        started = [event for event in events if isinstance(event, Started)]
        rounds = [event for event in events if isinstance(event, Round)]
        if len(started) != 1:
            raise InvalidInput(f"These are the events of {len(started)} lanes; give those of one.")
        about, params = started[0], started[0].params
        if any(event.draft is None for event in rounds):
            raise InvalidInput(f"The lane {about.lane} does not report its guesses; record a lane of specdec.")
        if not about.claims_lossless:
            raise InvalidInput(f"Acceptance was {about.acceptance}: another draft length would write another text.")
        if about.acceptance not in LOSSLESS:
            raise InvalidInput(f"Acceptance was {about.acceptance}: what it keeps at other draft lengths is not known.")
        if about.acceptance == "block" and not params.greedy:
            raise InvalidInput(
                "The draft was verified as a block: what is kept depends on its length, so other lengths must be run."
            )
        method = about.pair["draft"]
        if method and method.get("depends_on_start"):
            raise InvalidInput(
                "What this draft guesses, or how much, depends on where it started, so other draft lengths must be run."
            )
        ids: list[int] = []
        self.stands: dict[int, float] = {}
        self.wrong: dict[int, int] = {}
        self.behind: dict[int, list[float | None]] = {}
        confidences: dict[int, float | None] = {}
        for event in rounds:
            at, draft = len(ids), event.draft or ()
            for place, (choice, confidence) in enumerate(event.missed, start=at - len(event.missed)):
                confidences[place] = confidence
                if params.greedy:  # in sampling, the draft's probability of the text's token is not known
                    self.stands[place] = float(choice == ids[place])
                    if choice != ids[place]:
                        self.wrong[place] = choice
            tested = [token for token in draft if token.status != "discarded"]
            for place, token in enumerate(tested, start=at):
                confidences[place] = token.draft_confidence
                if token.status == "rejected" and token.token_id is not None:
                    self.wrong[place] = token.token_id
                if (chance := _chance(token, event, params.greedy)) is not None:
                    self.stands[place] = chance
            if len(tested) < len(draft):
                self.behind[at + len(tested) - 1] = [token.draft_confidence for token in draft[len(tested) :]]
            ids += event.committed_ids
        stands = self.stands
        if len(stands) < LEAST:
            raise InvalidInput(f"Guesses are known at {len(stands)} tokens of this lane; {LEAST} or more are needed.")
        self.end, self.longest = len(ids), params.max_new_tokens
        self.exact = params.greedy and any(isinstance(e, Finished) and e.finish_reason != "deadline" for e in events)
        self.confidence = [confidences.get(place) for place in range(self.end)]
        self.mean = min(max(fmean(stands.values()), 0.01), 0.99)  # never 0 or 1
        self.futures = [list(_futures(stands, self.mean, place, self.end)) for place in range(self.end)]

    def room(self, start: int, gamma: int) -> int:
        """How many of ``gamma`` guesses fit after ``start`` tokens and before the length limit."""
        return max(0, min(gamma, self.longest - start - 1))

    def next(self, start: int, n: float, hits: int) -> int:
        """Tokens written after a round at ``start``."""
        return min(start + min(int(n), hits) + 1, self.end)

    def cut(self, start: int, n: float, hits: int, longest: int) -> bool:
        """Whether EOS or the length limit cuts the round at ``start``, as in ``metrics.compute_metrics``.

        With EOS among the kept guesses the target adds no token. Near the limit a draft is shorter than ``longest``.
        """
        return start + min(int(n), hits) >= self.end or (start + n + 1 >= self.longest and n < longest)


def _chance(token: DraftToken, event: Round, greedy: bool) -> float | None:
    """min(1, q/p) of the text's token here; None where p is not recorded. In greedy decoding p and q are one-hot."""
    if greedy:
        return float(token.status == "accepted")
    if token.status == "accepted":
        p, q = token.target_prob, token.draft_prob
    elif event.decision is None or event.token_id is None:
        return None
    else:
        # A token that is not among the draft's ten most likely ones was next to impossible as a guess.
        p, q = dict(event.decision.p).get(event.token_id), dict(event.decision.q or ()).get(event.token_id, 0.0)
    return min(1.0, q / p) if p and q is not None else None


def _futures(stands: dict[int, float], mean: float, start: int, end: int) -> Iterator[tuple[int, float]]:
    chance = 1.0
    for hits in range(MAX_GAMMA):
        stand = stands.get(start + hits, mean) if start + hits < end else 0.0
        if stand < 1:
            yield hits, chance * (1 - stand)
        chance *= stand
        if not chance:
            return
    yield MAX_GAMMA, chance


def _walk(text: Text, costs: Costs, policy: Policy | str) -> PredictedRun:
    """All rounds of a policy, each with the chance that it occurs."""
    length: Callable[[int, int], float]
    if policy == ORACLE:
        length = _oracle(text, costs)
    elif isinstance(policy, ConfidenceStop):
        length = _confident(text, policy)
    elif type(policy) is Fixed:
        length = lambda start, hits: text.room(start, policy.gamma)  # noqa: E731
    else:
        raise InvalidInput(f"A recording has no data for gamma {policy}; give lengths, ConfidenceStop or oracle.")
    reach = [0.0, 1.0, *[0.0] * (text.end - 1)]
    passes, drafted, seconds, exact = 0.0, 0.0, 0.0, text.exact
    longest = policy.gamma if type(policy) is Fixed else MAX_GAMMA
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
    tokens, gamma = text.end - 1, policy.gamma if type(policy) is Fixed else None
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
