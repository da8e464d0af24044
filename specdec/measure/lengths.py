"""Computes one finished greedy lane at each draft length from 0 to 16, as numbers from which a page redraws the lane.

A round that begins after ``start`` tokens and drafts ``n`` ends after ``min(start + min(n, hits[start]) + 1, end)``.
``end`` is ``len(hits)``, and ``n`` is the draft length, or less: a draft has at most ``max_new_tokens - start - 1``
guesses, and that of a block drafter no more than a block. The first round begins after the prefill's token. Unlike in
``whatif``, a guess that was never recorded is either kept or not (``Text.hits``). So there is one list of rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, Event, Finished, Started
from specdec.measure.costs import Costs
from specdec.measure.recorded_text import Text, recorded_text


@dataclass(frozen=True)
class GammaPrediction:
    """The lane at one draft length. ``gain`` is over plain ``generate``, ``share`` over our loop without a draft.

    ``tokens_per_pass`` is ``Metrics.mean_acceptance_length``. ``exact`` says that no unrecorded guess decides where a
    round ends. Then the rounds are those of a real run, up to floating-point ties. Times are predicted. All figures are
    rounded for display.
    """

    gamma: int
    tokens_per_pass: float | None
    passes: int
    ms_per_token: float
    gain: float
    share: float
    exact: bool


@dataclass(frozen=True)
class GammaPredictions:
    """The lane at all draft lengths.

    hits    for each token written, how many guesses in a row from there on are kept, up to 16
    wrong   for each token written, a rejected guess at its place; None where none is known, as in a block, whose
            guesses depend on where it began
    lengths the outcome at each draft length
    costs   seconds of a round by its draft length: of drafting, of verifying, of the rest
    assumed a sentence that says which costs were not measured; None where all were
    best    the draft length with the lowest predicted time
    exact   whether all lengths are exact
    """

    hits: list[int]
    wrong: list[int | None]
    lengths: list[GammaPrediction]
    costs: list[tuple[float, float, float]]
    assumed: str | None
    best: int
    exact: bool


def at_all_lengths(events: Iterable[Event], costs: Costs, plain: float, loop: float | None = None) -> GammaPredictions:
    """Compute a greedy lane that ended at all draft lengths.

    ``plain`` is the seconds per token of plain ``generate``, and ``loop`` those of our loop without a draft, which are
    computed from ``costs`` if it did not run. Raises ``InvalidInput`` for a lane that was sampled or did not end, and
    where ``what_if`` does.
    """
    events = list(events)
    if any(isinstance(event, Started) and not event.params.greedy for event in events):
        raise InvalidInput("This run was sampled: another draft length would write another text.")
    if not any(isinstance(event, Finished) for event in events):
        raise InvalidInput("This run was stopped, so the results of other draft lengths cannot be computed.")
    text = recorded_text(events)
    hits = text.hits()
    by_length = [costs.parts(n) for n in range(MAX_GAMMA + 1)]
    seconds = [sum(parts) for parts in by_length]
    lengths = [_at(text, hits, gamma, seconds, plain, loop or seconds[0]) for gamma in range(MAX_GAMMA + 1)]
    return GammaPredictions(
        hits=hits,
        wrong=[text.wrong.get(place) for place in range(text.end)],
        lengths=lengths,
        costs=[(round(draft, 7), round(verify, 7), round(rest, 7)) for draft, verify, rest in by_length],
        assumed=" ".join(filter(None, [costs.assumed, text.assumed])) or None,
        best=min(lengths, key=lambda length: length.ms_per_token).gamma,
        exact=all(length.exact for length in lengths),
    )


def rounds(text: Text, hits: list[int], gamma: int) -> Iterator[tuple[int, int, int]]:
    """The rounds at one draft length: the tokens before each, its draft tokens, and the tokens after it."""
    start = 1
    while start < text.end:
        n = text.room(start, gamma)
        end = text.next(start, n, hits[start])
        yield start, n, end
        start = end


def _at(text: Text, hits: list[int], gamma: int, seconds: list[float], plain: float, loop: float) -> GammaPrediction:
    made = list(rounds(text, hits, gamma))
    whole = [end - start for start, n, end in made if not text.cut(start, n, hits[start], gamma)]
    tokens, total = text.end - 1, sum(seconds[n] for _, n, _ in made)
    return GammaPrediction(
        gamma=gamma,
        tokens_per_pass=round(sum(whole) / len(whole), 4) if whole else None,
        passes=len(made),
        ms_per_token=round(1000 * total / tokens, 4),
        gain=round(plain * tokens / total, 4),
        share=round(loop * tokens / total, 4),
        exact=text.exact_at(gamma) and all(text.known(start, min(n, end - start)) for start, n, end in made),
    )
