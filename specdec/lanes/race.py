"""A race runs lanes on the same ids, settings and thread, one after another, once or several times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from specdec.engine.acceptance import Acceptance, Lossless, acceptance_of
from specdec.engine.policy import EveryLength, Fixed, Policy, policy_of
from specdec.engine.request import Request, make_request
from specdec.errors import InvalidInput
from specdec.events import Event, Round, SamplingParams, Started
from specdec.lanes.decoding_thread import Batches, driven
from specdec.lanes.table import DEFAULT_KEYS, LaneConfig, race_configs, require_runs, turned
from specdec.models.pair import Pair, Prompt
from specdec.runtime.grammar import anything

WARM_UP_TOKENS = 8  # of generate, and of our loop without a draft
WARM_UP_GAMMA = 8  # longest draft of a warm-up on a CPU, or of a policy, which seldom chooses longer ones


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
    """Run the ``lanes`` one after another and yield their events in batches. Each ``Started`` names its lane.

    ``lanes`` are keys of the table ``specdec.lanes.table.LANES``: "generate" (transformers' own), "speculative",
    "speculative:0" (our loop without a draft), "assisted" (transformers' assisted generation) and others. With several
    ``runs``, each lane runs once in each run, and the order rotates, so that no lane is always the first. Each lane is
    warmed up before it runs. The prompt is encoded and checked once, and all lanes share its seed. ``interval`` is the
    least time between two batches in seconds, and ``max_seconds`` the deadline of each lane. ``gamma``, ``params``,
    ``acceptance`` and ``accept_top_k`` are those of ``speculative``. Arguments are checked at once: ``InvalidInput``.
    ``specdec.verdict`` judges a race.
    """
    if not lanes or len(set(lanes)) < len(lanes):
        raise InvalidInput(f"The lanes are {', '.join(lanes) or 'none'}; name each once, and at least one.")
    require_runs(runs)
    configs = list(race_configs(lanes, gamma).values())
    request, rule = make_request(pair, prompt, params), acceptance_of(acceptance, accept_top_k)
    for config in configs:
        start(request, config, rule)  # checks its arguments and runs nothing yet

    def run() -> Batches:
        for index in range(runs):
            for config in turned(configs, index):
                with closing(driven(warm_up(request, config, rule), interval)) as warming:
                    for _ in warming:
                        yield []  # so that the consumer can stop the race
                with closing(driven(start(request, config, rule), interval, max_seconds)) as batches:
                    for batch in batches:
                        yield [named(event, config) for event in batch]

    return run()


def named(event: Event, config: LaneConfig) -> Event:
    """The event with the config's own lane name: some lanes run as ``generate`` or as our loop under another name."""
    return replace(event, lane=config.lane) if isinstance(event, Started) else event


def start(request: Request, config: LaneConfig, acceptance: Acceptance = Lossless()) -> Iterator[Event]:
    """The events of one config. Raises what its lane raises for a request that it cannot run."""
    return config.row.start(request, config.gamma, acceptance)


def warm_up(request: Request, config: LaneConfig, acceptance: Acceptance = Lossless()) -> Iterator[Event]:
    """The events of a short call that warms up a config before it is measured.

    A GPU chooses its kernels by the number of rows, and loads them at their first use. So where our loop drafts, the
    call has a target pass over each number of rows from 1 to gamma + 1, and draft passes over one token and over two:
    gamma + 1 target passes and gamma * (gamma + 1) / 2 draft passes after the prompt. The graph engine needs twice as
    many, because it captures a step at its second use. A CPU loads no kernels. There the longest draft is
    ``WARM_UP_GAMMA``, because at gamma 16 the 136 draft passes would take as long as a short race. Neither EOS nor a
    stop string ends a warm-up; ``max_new_tokens`` does. Prompt lookup drafts only what it finds. A grammar allows
    each token in a warm-up: a short text would end it, and what a grammar forces is drafted without a pass.
    """
    if request.constraint is not None:
        request = replace(request, constraint=anything(request.pair.vocabulary))
    gamma = config.gamma if config.row.lengths == "any" else None
    if gamma is None:
        short = request.with_params(max_new_tokens=min(WARM_UP_TOKENS, request.params.max_new_tokens))
        return start(short, config, acceptance)
    policy, pair = policy_of(gamma), request.pair
    # It may be as long as the measured call and is left early, because the graph engine sizes its buffers by that
    # length.
    endless = replace(request.with_params(ignore_eos=True), stop_criteria=None)
    if policy == Fixed(0):
        return _rounds_of(start(endless, config, acceptance), WARM_UP_TOKENS - 1)
    most = policy.gamma if isinstance(policy, Fixed) else WARM_UP_GAMMA
    most = most if pair.device.type == "cuda" else min(most, WARM_UP_GAMMA)
    every = EveryLength(most, policy.start().least_confidence, twice=pair.uses_graphs)
    lane = start(endless, LaneConfig(config.lane, every), acceptance)
    return _rounds_of(lane, len(every.lengths))


def _rounds_of(lane: Any, count: int) -> Iterator[Event]:
    """The events of ``lane`` up to ``count`` rounds after the prefill. Then the lane is closed."""
    with closing(lane):
        for event in lane:
            yield event
            if isinstance(event, Round) and event.index == count:
                return
