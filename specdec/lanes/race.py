"""A race: lanes on the same ids, settings and thread, one after another, as often as asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from specdec.engine.policy import Policy
from specdec.engine.request import Request, make_request
from specdec.errors import InvalidInput
from specdec.events import Event, SamplingParams, Started
from specdec.lanes.driver import Batches, driven
from specdec.lanes.table import DEFAULT_KEYS, Entrant, entrants_of_race
from specdec.models.pair import Pair, Prompt

WARM_UP_TOKENS = 8


def race(
    pair: Pair,
    prompt: Prompt,
    *,
    gamma: int | str | Policy = 5,
    params: SamplingParams = SamplingParams(),
    acceptance: str = "lossless",
    accept_top_k: int | None = None,
    lanes: Sequence[str] = DEFAULT_KEYS,
    runs: int = 1,
    interval: float = 0.08,
    max_seconds: float | None = None,
) -> Batches:
    """Yield the events of all ``lanes`` in batches, one lane after another; each ``Started`` names its lane.

    ``lanes`` are keys of ``LANES``. With several ``runs`` each lane runs once a run and the order rotates, so that no
    lane always has the first place. Each lane is warmed up by a few tokens first. The prompt is encoded and checked
    once, and all lanes share its seed. ``interval`` is the least time between two batches and ``max_seconds`` the
    deadline of each lane. Arguments are checked at once.
    """
    if not lanes or len(set(lanes)) < len(lanes):
        raise InvalidInput(f"The lanes are {', '.join(lanes) or 'none'}; name each once, and at least one.")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise InvalidInput(f"runs is {runs!r}; give a whole number, 1 or more.")
    entrants = list(entrants_of_race(lanes, gamma).values())
    request = make_request(pair, prompt, params)
    short = request.with_params(max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens))
    for entrant in entrants:
        start(request, entrant, acceptance, accept_top_k)  # checks it; nothing runs before the first event is asked for

    def run() -> Batches:
        for index in range(runs):
            first = index % len(entrants)
            for entrant in (*entrants[first:], *entrants[:first]):
                for _ in driven(start(short, entrant, acceptance, accept_top_k), interval):
                    yield []  # so that the consumer can stop the race
                for batch in driven(start(request, entrant, acceptance, accept_top_k), interval, max_seconds):
                    yield [named(event, entrant) for event in batch]

    return run()


def named(event: Event, entrant: Entrant) -> Event:
    """The event under the entrant's own lane: the draft alone runs as plain ``generate``, prompt lookup as our loop."""
    return replace(event, lane=entrant.lane) if isinstance(event, Started) else event


def start(
    request: Request, entrant: Entrant, acceptance: str = "lossless", accept_top_k: int | None = None
) -> Iterator[Event]:
    """The events of one entrant. Raises as its lane does for what it cannot run."""
    return entrant.row.start(request, entrant.gamma, acceptance, accept_top_k)
