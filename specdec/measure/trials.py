"""Runs the trials of a plan: prompts x configs x runs, one call after another.

Each run measures every config on every prompt. The order rotates, so that changes of the machine's speed affect all
configs alike.
"""

from __future__ import annotations

from collections.abc import Collection, Generator

from specdec.engine.request import Request, make_request
from specdec.errors import SpecdecError
from specdec.events import Event
from specdec.lanes.decoding_thread import driven
from specdec.lanes.race import start, warm_up
from specdec.measure.metrics import in_microseconds
from specdec.measure.plan import Key, Plan, Trial
from specdec.measure.result import collect
from specdec.models.pair import Pair

INTERVAL = 0.08  # seconds between two batches of a lane, as on the page: the consumer must not wake at every event


def trials(
    pair: Pair, plan: Plan, done: Collection[Key] = (), prompts: Collection[str] | None = None
) -> Generator[Trial | None, None, None]:
    """Run the calls of a plan that are not ``done``. Yield each call when it ends, and None in between to allow a stop.

    ``prompts`` are the names of the prompts to run; None for all. Every config is warmed up first. What the engine
    refuses is raised before anything runs.
    """
    plan.chosen.check(pair.tokenizer)
    steps = [
        (run, item, config)
        for run, item, config in plan.steps()
        if (run, item.name, *config) not in done and (prompts is None or item.name in prompts)
    ]
    # Every length is checked on one prompt, and every prompt on one length of each lane. Our loop counts as a lane
    # here, because without a draft its context may be longer.
    one_each = {config.key: config for config in plan.configs}.values()
    requests: dict[str, Request] = {}
    for item in plan.prompts:
        try:
            request = make_request(pair, item.message(pair.tokenizer), plan.params)
        except SpecdecError as error:
            raise type(error)(f"Prompt {item.name!r}: {error}") from error
        for config in one_each if requests else plan.configs:
            try:
                start(request, config)
            except SpecdecError as error:
                raise type(error)(f"Prompt {item.name!r}, lane {config.lane}: {error}") from error
        requests[item.name] = request

    first_seed = plan.params.seed or 0  # a plan always has one

    def run_steps() -> Generator[Trial | None, None, None]:
        for config in plan.configs if steps else ():
            for _ in driven(warm_up(requests[steps[0][1].name], config), INTERVAL):
                yield None
        for run, item, config in steps:
            request = requests[item.name].with_params(seed=(first_seed + run) % 2**63)
            events: list[Event] = []
            for batch in driven(start(request, config), INTERVAL):
                events += batch
                yield None
            result = collect(events)
            assert result.metrics is not None  # a lane that has ended has written a token
            lane, gamma = config
            yield Trial(
                run=run,
                prompt=item.name,
                category=item.category,
                lane=lane,
                gamma=gamma if gamma is None or isinstance(gamma, (int, str)) else str(gamma),  # a policy by its name
                token_ids=tuple(result.token_ids),
                finish_reason=result.finish_reason,
                greedy=plan.params.greedy,
                metrics=in_microseconds(result.metrics),
            )

    return run_steps()
