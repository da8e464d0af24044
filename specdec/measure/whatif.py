"""What-if without running: what other draft lengths would have made of a recorded lane.

Lossless decoding writes the same text at every length (sampling: one of the same distribution), and a recording tells
at nearly every position of it how a guess fares there: the tested draft tokens, and ``Round.missed`` where the target
came first. Greedy, a guess stands or not, and other lengths, walked through that text, make the very rounds of a run.
Sampling, a token y of the text was guessed and stood with probability min(p, q)(y) / p(y) = min(1, q(y) / p(y)),
whatever happened elsewhere: Algorithm 1 (Leviathan et al. 2211.17192) writes y by an accepted guess with min(p, q)(y),
and with p(y) in all. So the walk gives the expected run on this text. (The guess's own chance, min(1, p/q), would not
do: after a guess that stood the text goes on otherwise.) Seconds are those rounds at ``Costs``: always a prediction.
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
LEAST = 8  # known guesses; fewer say nothing about a draft
COLD = 2  # rounds after the prefill, slower than all others

Points = tuple[tuple[int, float], ...]  # draft lengths, rising, with seconds


class Calibration:
    """A policy for the run to record: lengths 0 to 16 in turn, so that all are measured. The text is the same as ever:
    ``speculative(pair, prompt, gamma=Calibration())``."""

    # After length 0 the draft has one token more to read, which weighs least in front of the longest.
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

    ``assumed`` says in a sentence what is not measured; None where 0 to 16 all are, or lie between such that are.
    """

    draft: Points
    verify: Points
    rest: float
    assumed: str | None = None

    @classmethod
    def of(cls, *lanes: Iterable[Event]) -> Costs:
        """Medians over the rounds of all ``speculative`` lanes given, of one pair on one machine.

        Without a round at length 0 among them a ``generate`` lane stands in for it. Other lanes are passed over.
        Raises ``InvalidInput`` where no round has measured passes.
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
        # Towards its end a lane drafts ever less, each length once: no measurement, if there are better ones.
        often = {n: columns for n, columns in rows.items() if len(columns) > 1} or rows
        middle = {n: [median(column) for column in zip(*often[n], strict=True)] for n in sorted(often)}
        verify, rest = {n: row[1] for n, row in middle.items()}, median(row[2] for n in often for row in often[n])
        least, most = min(verify), max(verify)
        if least:
            verify = {0: max(median(plain) - rest, 0.0) if plain else verify[least]} | verify
            source = "that of transformers' generate" if plain else f"assumed to equal that over {least} draft tokens"
            assumed.append(f"The time of a target pass without a draft is {source}.")
        if most < MAX_GAMMA:
            assumed.append(f"The cost of more than {most} draft tokens is extrapolated.")
        draft = {0: 0.0} | {n: row[0] for n, row in middle.items()}
        return cls(tuple(draft.items()), tuple(verify.items()), rest, " ".join(assumed) or None)

    def seconds(self, n: float) -> float:
        """Seconds of a round that drafts n tokens: between measured lengths on straight lines, beyond on their mean."""
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
class Outcome:
    """What one policy would have made of the text after its first token; ``gamma`` is None unless it is one length.

    ``tokens_per_pass`` is ``Metrics.mean_acceptance_length``: rounds cut by EOS or length are left out; None where all
    are. ``exact``: target passes are those of a real run, up to floating-point ties; else expected. ``drafted`` is as
    exact at fixed lengths; so is ``tokens_per_pass``, but where the guess of an EOS was never recorded. ``seconds`` are
    predicted; ``gain`` is those at gamma 0 / these.
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
) -> list[Outcome]:
    """What other policies would have made of a recorded lane: draft lengths, ``ConfidenceStop`` and "oracle".

    None is 0 to 16, confidences of 0.2 to 0.8, and the oracle: the fewest seconds that any choice of lengths could have
    reached, knowing which guesses will stand (sampling: which of this round's, and the chances of those after).

    Greedy, all is exact but where a walk tests a guess that was never recorded, at the very end or after early exit's
    bonus tokens; the mean of the known ones stands in. How far a ``ConfidenceStop`` drafts on after a miss is known as
    far as the recorded draft went, and else expected from the discarded tokens' confidences. Sampling, all is expected.

    Raises ``InvalidInput`` for events that do not tell: drafts that were not observed, too few, of acceptance "top-k",
    or of a draft that guesses by where it began (prompt lookup, a tokenizer of its own); and for other policies.
    """
    text = Text(list(events))
    if policies is None:
        stops = [ConfidenceStop(least_confidence=least) for least in (0.2, 0.4, 0.6, 0.8)]
        policies = [*range(MAX_GAMMA + 1), *stops, ORACLE]
    return [_walk(text, costs, policy if policy == ORACLE else policy_of(policy)) for policy in policies]


class Text:
    """A recorded text by position, 0 being the prefill's token, and what is known of guesses there.

    stands[i]     the chance that a guess at i stands, where it is known
    wrong[i]      the guess at i that did not stand, where it is known
    mean          of all known chances, where one is not known
    futures[i]    how many guesses in a row from i on will stand, up to 16, each with its chance
    confidence[i] the draft's confidence in its guess at i; None where unknown
    behind[i]     and in what it drafted on after one that did not stand
    """

    def __init__(self, events: list[Event]) -> None:
        started = [event for event in events if isinstance(event, Started)]
        rounds = [event for event in events if isinstance(event, Round)]
        if len(started) != 1:
            raise InvalidInput(f"These are the events of {len(started)} lanes; give those of one.")
        about, params = started[0], started[0].params
        if any(event.draft is None for event in rounds):
            raise InvalidInput(f"The lane {about.lane} does not report its guesses; record a lane of specdec.")
        if about.acceptance not in LOSSLESS:
            raise InvalidInput(f"Acceptance was {about.acceptance}: another draft length would write another text.")
        if about.acceptance == "block" and not params.greedy:
            raise InvalidInput(
                "The draft was verified as a block: what stands depends on its length, so other lengths must be run."
            )
        if (about.pair.get("draft") or {}).get("depends_on_start"):
            raise InvalidInput(
                "The guesses of this draft depend on where it started, so other draft lengths must be run."
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
                if params.greedy:  # sampling, it is not known how likely the draft found the text's token
                    self.stands[place] = float(choice == ids[place])
                    if choice != ids[place]:
                        self.wrong[place] = choice
            tested = [token for token in draft if token.status != "discarded"]
            for place, token in enumerate(tested, start=at):
                confidences[place] = token.draft_confidence
                if token.status == "rejected":
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
        self.mean = min(max(fmean(stands.values()), 0.01), 0.99)  # never certain
        self.futures = [list(_futures(stands, self.mean, place, self.end)) for place in range(self.end)]

    def room(self, start: int, gamma: int) -> int:
        """What of a draft of ``gamma`` fits after ``start`` tokens and before the length."""
        return max(0, min(gamma, self.longest - start - 1))

    def next(self, start: int, n: float, hits: int) -> int:
        """Tokens written after a round at ``start``."""
        return min(start + min(int(n), hits) + 1, self.end)

    def cut(self, start: int, n: float, hits: int, longest: int) -> bool:
        """Whether EOS or the length cuts the round at ``start``, as ``metrics.measure`` judges it: EOS among the kept
        guesses leaves no token of the target's, and near the length a draft is shorter than the ``longest``."""
        return start + min(int(n), hits) >= self.end or (start + n + 1 >= self.longest and n < longest)


def _chance(token: DraftToken, event: Round, greedy: bool) -> float | None:
    """min(1, q/p) of the token that the text has here; greedy, p and q are one-hot. None where p is not recorded."""
    if greedy:
        return float(token.status == "accepted")
    if token.status == "accepted":
        p, q = token.target_prob, token.draft_prob
    elif event.decision is None or event.token_id is None:
        return None
    else:
        # What is not among the draft's ten most likely was next to impossible as a guess.
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


def _walk(text: Text, costs: Costs, policy: Policy | str) -> Outcome:
    """All rounds of a policy, each with the chance that a run comes by."""
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
    return Outcome(str(policy), gamma, passes, a_pass, drafted, seconds, seconds / tokens, gain, exact)


def _confident(text: Text, policy: ConfidenceStop) -> Callable[[int, int], float]:
    """Draft while the confidence suffices: that recorded on the text, then after a miss, then of discarded tokens."""
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
    """The cheapest length of each round, found from the end of the text to its beginning."""
    seconds = [costs.seconds(n) for n in range(MAX_GAMMA + 1)]
    ahead, best = [0.0] * (text.end + 1), {}  # seconds from a position to the end, lengths by position and hits
    for start in reversed(range(1, text.end)):
        for hits, chance in text.futures[start]:
            lengths = range(text.room(start, MAX_GAMMA) + 1)
            total = [seconds[n] + ahead[text.next(start, n, hits)] for n in lengths]
            best[start, hits] = total.index(min(total))
            ahead[start] += chance * min(total)
    return lambda start, hits: best[start, hits]
