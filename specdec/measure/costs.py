"""Measured seconds of a round by its draft length, and of a target pass by its rows, from the events of lanes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, Event, Round, Started, longest_draft
from specdec.facts import takes_one_pass

COLD = 2  # the first rounds after the prefill, which are slower than the others

Points = tuple[tuple[int, float], ...]  # draft lengths in rising order, each with seconds


@dataclass(frozen=True)
class Costs:
    """Seconds of a round by its draft length: ``draft`` and ``verify`` at the measured lengths, and the ``rest`` of it.

    ``assumed`` has sentences that say what was not measured. None if each length that the draft can have was measured
    or lies between measured ones.
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
        one_pass, longest = False, MAX_GAMMA
        for started, rounds in map(_warm, lanes):
            lane = started.lane if started else None
            if started and lane == "speculative":
                one_pass, longest = one_pass or takes_one_pass(started.pair), min(longest, longest_draft(started.pair))
            for whole, event in rounds:
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
        if most < longest:
            assumed.append(f"The cost of more than {most} draft tokens is extrapolated.")
        draft = {0: 0.0} | {n: row[0] for n, row in middle.items()}
        if one_pass and most:
            drafted = [n for n in draft if n]
            draft = {0: 0.0, 1: draft[drafted[0]]} | draft | {MAX_GAMMA: draft[most]}
            if len(drafted) == 1:
                assumed.append(f"A draft is one pass; its time at every length is that of {most} draft tokens.")
        return cls(tuple(draft.items()), tuple(verify.items()), rest, " ".join(assumed) or None)

    def seconds(self, n: float) -> float:
        """Seconds of a round that drafts n tokens: interpolated, and beyond the measured lengths by the mean slope.

        A draft of one pass takes as long as at the nearest measured length.
        """
        return sum(self.parts(n))

    def parts(self, n: float) -> tuple[float, float, float]:
        """The same in drafting, in verifying, and in the rest."""
        return _at(self.draft, n), _at(self.verify, n), self.rest


def _warm(events: Iterable[Event]) -> tuple[Started | None, list[tuple[float, Round]]]:
    """The first event of a lane, and its rounds after the prefill, each with its seconds; of a long lane without the
    first ones.
    """
    events = list(events)
    started = next((event for event in events if isinstance(event, Started)), None)
    pairs = list(pairwise(event for event in events if isinstance(event, Round)))
    pairs = pairs[COLD:] if len(pairs) > 3 * COLD else pairs
    return started, [(event.elapsed_seconds - before.elapsed_seconds, event) for before, event in pairs]


@dataclass(frozen=True)
class RowCost:
    """The measured time of target passes over so many ``rows`` (tokens): how many there were, and their median."""

    rows: int
    passes: int
    seconds: float


def row_costs(*lanes: Iterable[Event]) -> list[RowCost]:
    """What target passes took by their rows, over all ``speculative`` lanes given, in rising order of rows.

    A pass over the last committed token and n guesses has n + 1 rows, and those that are read again for recurrent
    state. Only numbers of rows that occurred at least twice are there. The first rounds of a lane are left out.
    """
    found: defaultdict[int, list[float]] = defaultdict(list)
    for started, rounds in map(_warm, lanes):
        if started and started.lane == "speculative":
            for _, event in rounds:
                if event.draft is not None and event.verify_seconds is not None:
                    found[len(event.draft) + 1 + event.reread].append(event.verify_seconds)
    return [RowCost(rows, len(found[rows]), median(found[rows])) for rows in sorted(found) if len(found[rows]) > 1]


def _at(points: Points, n: float) -> float:
    for (low, below), (high, above) in pairwise(points):
        if n <= high:
            return below + (above - below) * (n - low) / (high - low)
    (least, first), (most, last) = points[0], points[-1]
    return last + max(0.0, last - first) / max(most - least, 1) * (n - most)
