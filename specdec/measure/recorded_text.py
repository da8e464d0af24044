"""A recorded text, and what the recording says of the guesses at each place of it.

``Text`` is for drafts whose guess at a place depends on the text before it alone. ``BlockText`` is for block drafters,
whose guess also depends on where the draft began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import mul
from statistics import fmean

from specdec.errors import InvalidInput
from specdec.events import (
    LOSSLESS,
    MAX_GAMMA,
    DraftToken,
    Event,
    Finished,
    Round,
    SamplingParams,
    Started,
    longest_draft,
)
from specdec.facts import PairFacts, takes_one_pass

LEAST = 8  # known guesses; with fewer nothing is said about a draft, nor about a place in a block
TURN = (5**0.5 - 1) / 2  # multiples of it, without their whole parts, spread evenly over 0 to 1


def recorded_text(events: Sequence[Event]) -> Text:
    """The text of a recorded lane. Raises ``InvalidInput`` for a lane that cannot be used (see ``what_if``)."""
    started = [event for event in events if isinstance(event, Started)]
    if len(started) != 1:
        raise InvalidInput(f"These are the events of {len(started)} lanes; give those of one.")
    return (BlockText if is_block_drafter(started[0].pair) else Text)(started[0], events)


def is_block_drafter(facts: PairFacts) -> bool:
    """Whether one pass makes every draft of the pair; in a combination the text makes some of them."""
    return takes_one_pass(facts) and facts["draft"] is not None and facts["draft"]["kind"] != "combined"


def require_free_text(params: SamplingParams) -> None:
    """Raise ``InvalidInput`` for a text that obeys a grammar: it tells nothing of other draft lengths."""
    if params.grammar is not None:
        raise InvalidInput(
            "The text obeys a grammar, and what that forces is drafted too, so other draft lengths must be run."
        )


class Text:
    """A recorded text by position, and what is known of guesses there. Position 0 is the prefill's token.

    longest       the most guesses that a draft can have
    stands[i]     the chance that a guess at i is kept, where it is known
    wrong[i]      the rejected guess at i, where it is known
    mean          the mean of all known chances, used where one is not known
    futures[i]    how many guesses in a row from i on are kept, up to 16, each with its chance
    confidence[i] the draft's confidence in its guess at i; None where it is not known
    behind[i]     the confidences of the draft tokens after a rejected guess at i
    assumed       a sentence on what is not known of guesses; None if nothing was assumed for whole lengths
    """

    stops = True  # whether the confidences tell where a draft would end

    def __init__(self, started: Started, events: Sequence[Event]) -> None:
        rounds = [event for event in events if isinstance(event, Round)]
        self._refuse(started, rounds)
        greedy = started.params.greedy
        self.limit, self.longest = started.params.max_new_tokens, longest_draft(started.pair)
        self.end = sum(len(event.committed_ids) for event in rounds)
        self.finished = any(isinstance(e, Finished) and e.finish_reason != "deadline" for e in events)
        self.exact = greedy and self.finished
        self.assumed: str | None = None
        self.stands: dict[int, float] = {}
        self.wrong: dict[int, int] = {}
        self.behind: dict[int, list[float | None]] = {}
        self.confidence: list[float | None] = [None] * self.end
        self._read(rounds, greedy)
        self.futures = [list(_futures(self._chance_from(place), place, self.end)) for place in range(self.end)]

    def _refuse(self, started: Started, rounds: list[Round]) -> None:
        about = started
        if any(event.draft is None for event in rounds):
            raise InvalidInput(f"The lane {about.lane} does not report its guesses; record a lane of specdec.")
        if not about.claims_lossless:
            raise InvalidInput(f"Acceptance was {about.acceptance}: another draft length would write another text.")
        if about.acceptance not in LOSSLESS:
            raise InvalidInput(f"Acceptance was {about.acceptance}: what it keeps at other draft lengths is not known.")
        if about.acceptance == "block" and not about.params.greedy:
            raise InvalidInput(
                "The draft was verified as a block: what is kept depends on its length, so other lengths must be run."
            )
        require_free_text(about.params)
        method = about.pair["draft"]
        if method and method.get("depends_on_start") and not is_block_drafter(about.pair):
            raise InvalidInput(
                "What this draft guesses, or how much, depends on where it started, so other draft lengths must be run."
            )

    def _read(self, rounds: list[Round], greedy: bool) -> None:
        ids: list[int] = []
        for event in rounds:
            at, draft = len(ids), event.draft or ()
            for place, (choice, confidence) in enumerate(event.missed, start=at - len(event.missed)):
                self.confidence[place] = confidence
                if greedy:  # in sampling, the draft's probability of the text's token is not known
                    self.stands[place] = float(choice == ids[place])
                    if choice != ids[place]:
                        self.wrong[place] = choice
            ids += event.committed_ids
            tested = [token for token in draft if token.status != "discarded"]
            for place, token in enumerate(tested, start=at):
                if place < self.end:  # an EOS among the guesses ends the text
                    self.confidence[place] = token.draft_confidence
                if token.status == "rejected" and token.token_id is not None:
                    self.wrong[place] = token.token_id
                if (chance := _chance(token, event, greedy)) is not None:
                    self.stands[place] = chance
            if len(tested) < len(draft):
                self.behind[at + len(tested) - 1] = [token.draft_confidence for token in draft[len(tested) :]]
        _require_known(len(self.stands))
        self.mean = min(max(fmean(self.stands.values()), 0.01), 0.99)  # never 0 or 1

    def _chance_from(self, start: int) -> Callable[[int], float]:
        """The chance that a draft's guess number 0, 1, ... is kept, if the draft begins after ``start`` tokens."""
        return lambda number: self.stands.get(start + number, self.mean)

    def room(self, start: int, gamma: int) -> int:
        """How many of ``gamma`` guesses a draft has after ``start`` tokens: no more than it can, or the text needs."""
        return max(0, min(gamma, self.longest, self.limit - start - 1))

    def next(self, start: int, n: float, hits: int) -> int:
        """Tokens written after a round at ``start``."""
        return min(start + min(int(n), hits) + 1, self.end)

    def cut(self, start: int, n: float, hits: int, longest: int) -> bool:
        """Whether EOS or the length limit cuts the round at ``start``, as in ``metrics.compute_metrics``.

        With EOS among the kept guesses the target adds no token. Near the limit a draft is shorter than ``longest``.
        """
        return start + min(int(n), hits) >= self.end or (start + n + 1 >= self.limit and n < min(longest, self.longest))

    def exact_at(self, gamma: int | None) -> bool:
        """Whether rounds of known guesses are those of a real run at this length (None: at lengths that change)."""
        return self.exact

    def known(self, start: int, n: int) -> bool:
        """Whether it was recorded where a draft of ``n`` guesses after ``start`` tokens ends.

        The last token ends the text, whichever model wrote it.
        """
        return all(start + number in self.stands for number in range(n) if start + number < self.end - 1)

    def hits(self) -> list[int]:
        """For each position how many guesses in a row from there on are kept, up to 16, as one list of whole numbers.

        A guess that was never recorded is either kept or not: a single one as most of the known guesses, several in the
        same proportion.
        """
        stands, owed = [], 0.5
        for place in range(self.end):
            if (stand := self.stands.get(place)) is None:
                stand = float(owed + self.mean >= 1)
                owed += self.mean - stand
            stands.append(stand)
        found, ahead = [], 0
        for stand in reversed(stands):
            ahead = min(ahead + 1, MAX_GAMMA) if stand else 0
            found.append(ahead)
        return found[::-1]


class BlockText(Text):
    """The text of a block drafter: its guess at a place depends on the text in front of the draft, and on its number.

    A draft that begins where a recorded one began is taken as that one: what was tested is known. Elsewhere, and for
    guesses after the recorded draft, ``rates[i]`` is the chance that guess number i is kept if those before it are: the
    share of all recorded drafts. Then a round is an expected value. At another length a head that is not causal sees
    another number of masks, so only the recorded length is exact.
    """

    stops = False

    def __init__(self, started: Started, events: Sequence[Event]) -> None:
        self._known: dict[int, list[float | None]] = {}  # by the start of a draft, the chances of its tested guesses
        self._gamma = started.gamma
        self.rates: list[float] = []
        super().__init__(started, events)

    def _read(self, rounds: list[Round], greedy: bool) -> None:
        at, most, kept = 0, 0, list[list[bool]]()
        for event in rounds:
            draft = event.draft or ()
            tested = [token for token in draft if token.status != "discarded"]
            if tested:
                self._known[at] = [_chance(token, event, greedy) for token in tested]
                kept.append([token.status == "accepted" for token in tested])
            most, at = max(most, len(draft)), at + len(event.committed_ids)
        _require_known(sum(map(len, kept)))
        self.rates = _rates(kept)
        if most < self.longest:
            self.assumed = (
                f"No draft of this run had more than {most} guesses; later ones are taken to be kept as often as the "
                "last ones that were tested."
            )

    def _chance_from(self, start: int) -> Callable[[int], float]:
        known = dict(enumerate(self._known.get(start, ())))
        return lambda number: self.rates[number] if (chance := known.get(number)) is None else chance

    def exact_at(self, gamma: int | None) -> bool:
        measured = self._gamma
        same = isinstance(measured, int) and gamma is not None
        return self.exact and same and min(gamma or 0, self.longest) == min(int(measured), self.longest)

    def known(self, start: int, n: int) -> bool:
        return not n or start in self._known

    def hits(self) -> list[int]:
        """In one list: an unrecorded draft keeps as many guesses as its part of 0 to 1 says, by ``rates``.

        Positions take these parts in turn so that they are spread evenly.
        """
        return [self._hits(start, (start * TURN) % 1) for start in range(self.end)]

    def _hits(self, start: int, part: float) -> int:
        chance_of = self._chance_from(start)
        survival = accumulate((chance_of(number) for number in range(MAX_GAMMA)), mul)
        return sum(1 for chance in survival if chance > part)


def _require_known(guesses: int) -> None:
    if guesses < LEAST:
        raise InvalidInput(f"Guesses are known at {guesses} tokens of this lane; {LEAST} or more are needed.")


def _rates(kept: list[list[bool]]) -> list[float]:
    """For each number of a guess, 0 to 15, the share of the tested ones that were kept; ``kept`` has those by draft.

    The last numbers, of which few were tested, share one rate.
    """
    columns = [[draft[number] for draft in kept if number < len(draft)] for number in range(MAX_GAMMA)]
    behind = [sum(map(len, columns[number:])) for number in range(MAX_GAMMA)]
    tail = max(number for number in range(MAX_GAMMA) if behind[number] >= LEAST)
    last = fmean(stands for column in columns[tail:] for stands in column)
    return [*(fmean(column) for column in columns[:tail]), *[last] * (MAX_GAMMA - tail)]


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


def _futures(chance_of: Callable[[int], float], start: int, end: int) -> Iterator[tuple[int, float]]:
    chance = 1.0
    for hits in range(MAX_GAMMA):
        stand = chance_of(hits) if start + hits < end else 0.0
        if stand < 1:
            yield hits, chance * (1 - stand)
        chance *= stand
        if not chance:
            return
    yield MAX_GAMMA, chance
