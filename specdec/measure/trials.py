"""Run the trials of a plan: prompts x entrants x runs, one call after another.

Each run plays every entrant on every prompt, in an order that rotates, so that the machine's drift falls on all alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from specdec.errors import SpecdecError
from specdec.events import Event
from specdec.lanes.driver import driven
from specdec.lanes.race import enter
from specdec.measure.plan import Key, Plan, Trial
from specdec.measure.result import collect
from specdec.models.pair import Pair

INTERVAL = 0.08  # seconds between two looks at a lane, as on the page: the consumer must not wake at every event
WARM_UP_TOKENS = 16


def trials(
    pair: Pair, plan: Plan, done: Collection[Key] = (), prompts: Collection[str] | None = None
) -> Iterator[Trial | None]:
    """Run what is not ``done`` of a plan; yield each call as it ends, and None in between, so that one may stop.

    ``prompts`` are the names of those to run, None for all. Every entrant is warmed up by a few tokens first. What
    the engine refuses, it refuses before anything runs.
    """
    steps = [
        (run, item, entrant)
        for run, item, entrant in plan.steps()
        if (run, item.name, *entrant) not in done and (prompts is None or item.name in prompts)
    ]
    # Every length is checked on one prompt, and every prompt on one length of each lane: a prompt is long to encode.
    one_each = {lane: (lane, gamma) for lane, gamma in plan.entrants}.values()
    for place, item in enumerate(plan.prompts):
        for lane, gamma in one_each if place else plan.entrants:
            try:
                enter(pair, item.message(pair.tokenizer), lane, gamma, plan.params)
            except SpecdecError as error:
                raise type(error)(f"Prompt {item.name!r}, lane {lane}: {error}") from error

    def run_steps() -> Iterator[Trial | None]:
        short = replace(plan.params, max_new_tokens=WARM_UP_TOKENS)
        for lane, gamma in plan.entrants if steps else ():
            prompt = steps[0][1].message(pair.tokenizer)
            for _ in driven(enter(pair, prompt, lane, gamma, short), INTERVAL):
                yield None
        for run, item, (lane, gamma) in steps:
            params = replace(plan.params, seed=(plan.params.seed + run) % 2**63)
            events: list[Event] = []
            for batch in driven(enter(pair, item.message(pair.tokenizer), lane, gamma, params), INTERVAL):
                events += batch
                yield None
            result = collect(events)
            ids, reason = tuple(result.token_ids), result.finish_reason
            yield Trial(run, item.name, item.category, lane, gamma, ids, reason, params.greedy, result.metrics)

    return run_steps()
