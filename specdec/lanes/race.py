"""A race: lanes on the same ids, settings and thread, one after another, as often as asked."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from specdec.drafters.model import DraftModel
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.engine.decode import speculative
from specdec.engine.policy import Policy
from specdec.errors import IncompatiblePair, InvalidInput
from specdec.events import Event, SamplingParams, Started
from specdec.lanes.driver import driven
from specdec.lanes.transformers_lanes import assisted, generate
from specdec.models.pair import Pair, Prompt

WARM_UP_TOKENS = 8
# Who may run: transformers' plain ``generate``, our loop with the pair's draft, transformers' assisted generation,
# our loop without a draft, our loop copying from the context, and the draft on its own.
ENTRANTS = ("generate", "speculative", "assisted", "gamma-0", "prompt-lookup", "draft-alone")
DEFAULT_LANES = ENTRANTS[:2]


def race(
    pair: Pair,
    prompt: Prompt,
    *,
    gamma: int | str | Policy = 5,
    params: SamplingParams = SamplingParams(),
    acceptance: str = "lossless",
    accept_top_k: int | None = None,
    lanes: Sequence[str] = DEFAULT_LANES,
    runs: int = 1,
    interval: float = 0.08,
    max_seconds: float | None = None,
) -> Iterator[list[Event]]:
    """Yield the events of all ``lanes`` in batches, one lane after another; each ``Started`` names its lane.

    ``lanes`` are some of ``ENTRANTS``. With several ``runs`` each lane runs once a run and the order rotates, so that
    no lane always has the first place. Each lane is warmed up by a few tokens first, and all share one seed.
    ``interval`` is the least time between two batches and ``max_seconds`` the deadline of each lane. Arguments are
    checked at once.
    """
    if not lanes or len(set(lanes)) < len(lanes):
        raise InvalidInput(f"The lanes are {', '.join(lanes) or 'none'}; name each once, and at least one.")
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise InvalidInput(f"runs is {runs!r}; give a whole number, 1 or more.")
    if params.seed is None:
        params = replace(params, seed=secrets.randbits(32))

    def entrant(lane: str, params: SamplingParams) -> Iterator[Event]:
        return enter(pair, prompt, lane, gamma, params, acceptance, accept_top_k)

    short = replace(params, max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens))
    for lane in lanes:
        entrant(lane, params)  # checks it; nothing runs before it is asked for its first event

    def run() -> Iterator[list[Event]]:
        for index in range(runs):
            first = index % len(lanes)
            for lane in (*lanes[first:], *lanes[:first]):
                for _ in driven(entrant(lane, short), interval):
                    yield []  # so that whoever listens can stop it
                for batch in driven(entrant(lane, params), interval, max_seconds):
                    yield [replace(event, lane=lane) if isinstance(event, Started) else event for event in batch]

    return run()


def enter(
    pair: Pair,
    prompt: Prompt,
    lane: str,
    gamma: int | str | Policy | None,
    params: SamplingParams,
    acceptance: str = "lossless",
    accept_top_k: int | None = None,
) -> Iterator[Event]:
    """One lane, by its name among ``ENTRANTS``; the draft length goes only where it means something."""
    if lane == "generate":
        return generate(pair, prompt, params=params)
    if lane == "assisted":
        return assisted(pair, prompt, gamma=gamma, params=params)
    if lane == "gamma-0":
        return speculative(pair, prompt, gamma=0, params=params)
    if lane == "draft-alone":
        return generate(_draft_alone(pair), prompt, params=params)
    if lane not in ENTRANTS:
        raise InvalidInput(f"There is no lane {lane!r}; choose from {', '.join(ENTRANTS)}.")
    entrant = replace(pair, draft=PromptLookup(), draft_tokenizer=None) if lane == "prompt-lookup" else pair
    return speculative(entrant, prompt, gamma=gamma, params=params, acceptance=acceptance, accept_top_k=accept_top_k)


def _draft_alone(pair: Pair) -> Pair:
    """The draft as a target: what it would write, were nobody to check it."""
    if not isinstance(pair.draft, DraftModel):
        raise IncompatiblePair("This pair has no draft model that could write on its own; leave that lane out.")
    if pair.draft.own_tokenizer:
        raise IncompatiblePair("The draft has a tokenizer of its own; leave the lane of the draft alone out.")
    return Pair(target=pair.draft.model, tokenizer=pair.tokenizer)
