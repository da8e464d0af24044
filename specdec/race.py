"""A race: plain ``generate``, then speculative decoding, on the same ids, settings and thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from specdec.decode import speculative
from specdec.events import Event, SamplingParams
from specdec.lanes import driven, generate
from specdec.models import Pair, Prompt
from specdec.policy import Policy

WARM_UP_TOKENS = 8


def race(
    pair: Pair,
    prompt: Prompt,
    *,
    gamma: int | str | Policy = 5,
    params: SamplingParams = SamplingParams(),
    interval: float = 0.08,
    max_seconds: float | None = None,
) -> Iterator[list[Event]]:
    """Yield the events of both lanes in batches, one lane after the other; each ``Started`` says whose follow.

    Each lane is warmed up by a few tokens first. ``interval`` is the least time between two batches and
    ``max_seconds`` the deadline of each lane. Arguments are checked at once.
    """

    def lanes(params: SamplingParams) -> list[Iterator[Event]]:
        return [generate(pair, prompt, params=params), speculative(pair, prompt, gamma=gamma, params=params)]

    warm_up = lanes(replace(params, max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens)))
    return _run(warm_up, lanes(params), interval, max_seconds)


def _run(
    warm_up: list[Iterator[Event]], lanes: list[Iterator[Event]], interval: float, max_seconds: float | None
) -> Iterator[list[Event]]:
    for short, lane in zip(warm_up, lanes, strict=True):
        for _ in driven(short):
            pass
        yield from driven(lane, interval, max_seconds)
