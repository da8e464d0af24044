"""Measures what the decoding thread costs each lane: ``python -m benchmarks.driven_over_direct``.

Prints for plain ``generate``, our loop and assisted generation: seconds of a whole call through ``driven`` / seconds of
the same call without it, as a median over runs and example prompts, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from specdec.cli.arguments import leave_a_core, pair_of
from specdec.cli.parsers.shared import add_pair_arguments
from specdec.engine.request import make_call, make_request
from specdec.events import Event, Finished, SamplingParams
from specdec.lanes.decoding_thread import driven
from specdec.lanes.hf_assistants import cannot_assist
from specdec.lanes.hf_generate import run_generate
from specdec.lanes.race import start
from specdec.lanes.table import row_of
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.trials import INTERVAL
from specdec.models.pair import Pair, silence_libraries
from specdec.report import numbers


def driven_over_direct(
    pair: Pair, prompts: Sequence[str], params: SamplingParams, gamma: int, runs: int, interval: float
) -> dict[str, list[float]]:
    """A ratio for each lane, run and prompt.

    Each is from four calls (direct, driven, driven, direct), so that a steady change of the machine's speed cancels
    out.
    """
    drafting = ["speculative"] if pair.draft is not None else []
    lanes = ["generate", *drafting, *([] if cannot_assist(pair) else ["assisted"])]

    def finished(events: Iterator[Event]) -> float:
        """The lane's own time at its end, which does not count the consumer's last sleep."""
        return next(event.elapsed_seconds for event in events if isinstance(event, Finished))

    def events_of(lane: str, prompt: str) -> Iterator[Event]:
        return start(make_request(pair, prompt, params), row_of(lane).lane_config(gamma))

    def through_thread(lane: str, prompt: str) -> float:
        return finished(chain.from_iterable(driven(events_of(lane, prompt), interval)))

    def directly(lane: str, prompt: str) -> float:
        if lane == "speculative":
            return finished(events_of(lane, prompt))
        call = make_call(lane, make_request(pair, prompt, params), gamma if lane == "assisted" else 0)
        began = time.perf_counter()
        run_generate(call, **({"assistant_model": pair.draft.model} if lane == "assisted" else {}))
        return time.perf_counter() - began

    for lane in lanes:  # both threads warm up
        directly(lane, prompts[0]), through_thread(lane, prompts[0])
    ratios: dict[str, list[float]] = {lane: [] for lane in lanes}
    for _ in range(runs):
        for prompt in prompts:
            for lane in lanes:
                first, *inner, last = (
                    work(lane, prompt) for work in (directly, through_thread, through_thread, directly)
                )
                ratios[lane].append(sum(inner) / (first + last))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add_pair_arguments(parser)
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    silence_libraries()
    leave_a_core()
    pair = pair_of(arguments)
    params = SamplingParams(arguments.tokens, ignore_eos=True)
    prompts = [item.prompt for item in read_prompts(EXAMPLES)]
    for lane, ratios in driven_over_direct(pair, prompts, params, arguments.gamma, arguments.runs, INTERVAL).items():
        print(f"{lane}: through the decoding thread / directly {numbers.times(ratios)}")


if __name__ == "__main__":
    main()
