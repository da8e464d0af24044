"""A race: lanes on the same ids, settings and thread, one after another, as often as asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from specdec.engine.policy import EveryLength, Fixed, Policy, policy_of
from specdec.engine.request import Request, make_request
from specdec.errors import InvalidInput
from specdec.events import Event, Round, SamplingParams, Started
from specdec.lanes.driver import Batches, driven
from specdec.lanes.table import DEFAULT_KEYS, Entrant, entrants_of_race
from specdec.models.pair import Pair, Prompt

WARM_UP_TOKENS = 8  # of a lane that our loop does not draft in
WARM_UP_GAMMA = 8  # longest draft of a warm-up on a CPU, and where a policy chooses the lengths: they seldom go beyond


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
    lane always has the first place. Each lane is warmed up first (``warm_up``). The prompt is encoded and checked
    once, and all lanes share its seed. ``interval`` is the least time between two batches and ``max_seconds`` the
    deadline of each lane. Arguments are checked at once.
    """
    if not lanes or len(set(lanes)) < len(lanes):
        raise InvalidInput(f"The lanes are {', '.join(lanes) or 'none'}; name each once, and at least one.")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise InvalidInput(f"runs is {runs!r}; give a whole number, 1 or more.")
    entrants = list(entrants_of_race(lanes, gamma).values())
    request = make_request(pair, prompt, params)
    for entrant in entrants:
        start(request, entrant, acceptance, accept_top_k)  # checks it; nothing runs before the first event is asked for

    def run() -> Batches:
        for index in range(runs):
            first = index % len(entrants)
            for entrant in (*entrants[first:], *entrants[:first]):
                for _ in driven(warm_up(request, entrant, acceptance, accept_top_k), interval):
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


def warm_up(
    request: Request, entrant: Entrant, acceptance: str = "lossless", accept_top_k: int | None = None
) -> Iterator[Event]:
    """The events of a short call, to be made before a measured one of the same entrant.

    A GPU chooses its kernels by the number of rows, and loads them when it first uses them. So where our loop drafts,
    the call has a target pass over each number of rows from 1 to gamma + 1, and draft passes over one token and over
    two: after the prompt, gamma + 1 target passes and gamma * (gamma + 1) / 2 of the draft. For the graph engine there
    are twice as many, because it captures what comes again. A CPU loads no kernels, and at gamma 16 these 136 draft
    passes would take as long as a short race: there the longest draft is ``WARM_UP_GAMMA``. Neither EOS nor a stop
    string ends it. It is shorter where ``max_new_tokens`` is reached, and prompt lookup drafts what it finds.
    """
    gamma = entrant.gamma if entrant.row.lengths == "any" else None
    if gamma is None:
        short = request.with_params(max_new_tokens=min(WARM_UP_TOKENS, request.params.max_new_tokens))
        return start(short, entrant, acceptance, accept_top_k)
    policy, pair = policy_of(gamma), request.pair
    # As long as the measured call may be, and left early: the graph engine makes its buffers for that length.
    endless = replace(request.with_params(ignore_eos=True), stop_criteria=None)
    if policy == Fixed(0):
        return _rounds_of(start(endless, entrant, acceptance, accept_top_k), WARM_UP_TOKENS - 1)
    most = policy.gamma if isinstance(policy, Fixed) else WARM_UP_GAMMA
    most = most if pair.device.type == "cuda" else min(most, WARM_UP_GAMMA)
    every = EveryLength(most, policy.start().least_confidence, twice=pair.uses_graphs)
    lane = start(endless, Entrant(entrant.lane, every), acceptance, accept_top_k)
    return _rounds_of(lane, len(every.lengths))


def _rounds_of(lane: Any, count: int) -> Iterator[Event]:
    """The events of ``lane`` up to its first ``count`` rounds after the prefill; then it is closed."""
    with closing(lane):
        for event in lane:
            yield event
            if isinstance(event, Round) and event.index == count:
                return
