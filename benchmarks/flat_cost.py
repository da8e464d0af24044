"""Measures whether a late token costs what an early one does: ``python -m benchmarks.flat_cost``.

The embedded pair writes one greedy text of 1,024 tokens, with our loop without a draft and with speculative decoding.
Of speculative decoding only rounds with a full draft count. Prints for each lane, as medians over runs in turns:

1. seconds of a round at tokens 100-200 and 900-1,000, and the first / the second: the speed that is kept;
2. the growth of attention alone between the two places (``scaled_dot_product_attention`` over keys and values of the
   models' shapes, for all passes of a round), and the speed that is kept apart from that growth, at most that of plain
   passes. It should be 0.9 or more;
3. the same for the growth of a plain pass of the models (only the logits of a round's rows).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import chain
from statistics import median

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.engine.request import make_request
from specdec.events import Round, SamplingParams
from specdec.forward.runner import Runner
from specdec.lanes.decoding_thread import driven
from specdec.lanes.race import start, warm_up
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.pair import Pair, silence_libraries

GAMMA = 5
PLACES = ((100, 200), (900, 1000))  # new tokens
TOKENS = 1024  # so that no draft is cut at the end
REPEATS = 60  # of a timed pass


def rounds_at(pair: Pair, prompt: str, config: LaneConfig) -> list[float]:
    """Median seconds of a full round at each of the places, in one call."""
    request = make_request(pair, prompt, SamplingParams(TOKENS, ignore_eos=True))
    written, before, found = 0, 0.0, [[] for _ in PLACES]
    for event in chain.from_iterable(driven(start(request, config))):
        if not isinstance(event, Round):
            continue
        for seconds, (first, last) in zip(found, PLACES, strict=True):
            if first <= written and written + len(event.committed_ids) <= last and len(event.draft) == config.gamma:
                seconds.append(event.elapsed_seconds - before)
        written, before = written + len(event.committed_ids), event.elapsed_seconds
    return [median(seconds) for seconds in found]


def seconds_of(work: Callable[[], object]) -> float:
    """Median seconds of ``work``."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return median(found)


def attention_seconds(model: PreTrainedModel, length: int, rows: int) -> float:
    """Seconds of the attention alone, in all layers, of ``rows`` tokens over ``length`` cached ones."""
    config = model.config
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    # One tensor for each layer in the order of the lean forward's slots, so that memory is read in the same way.
    held = [torch.randn(length + rows, 2, heads, size) for _ in range(config.num_hidden_layers)]
    q = torch.randn(1, heads, rows, size)
    mask = torch.zeros(rows, length + rows) if rows > 1 else None

    def work() -> None:
        for layer in held:
            k, v = layer.unbind(1)
            F.scaled_dot_product_attention(q, k.transpose(0, 1)[None], v.transpose(0, 1)[None], attn_mask=mask)

    return seconds_of(work)


def pass_seconds(model: PreTrainedModel, length: int, rows: int) -> float:
    """Seconds of a pass of ``rows`` tokens after ``length``, rolled back each time."""
    ids, runner = torch.arange(2, 2 + length + rows) % model.config.vocab_size, Runner(model)
    runner.forward(ids[:length], 1)

    def work() -> None:
        runner.forward(ids[length:])
        runner.crop_to(length)
        runner.take_seconds()

    return seconds_of(work)


@torch.inference_mode()
def growth(pair: Pair, prompt: int, config: LaneConfig, cost: Callable[[PreTrainedModel, int, int], float]) -> float:
    """How many seconds the ``cost`` of a round's passes grows between the middles of the two places."""
    early, late = (prompt + sum(place) // 2 for place in PLACES)
    gamma = config.gamma
    seconds = cost(pair.target, late, gamma + 1) - cost(pair.target, early, gamma + 1)
    if gamma:
        seconds += gamma * (cost(pair.draft.model, late, 1) - cost(pair.draft.model, early, 1))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    silence_libraries()
    leave_a_core()
    pair, prompt = specdec.load_pair(), read_prompts(EXAMPLES)[0].prompt
    configs = (LOOP, LaneConfig("speculative", GAMMA))
    length = len(pair.encode(prompt)[0])
    rounds: dict[LaneConfig, list[list[float]]] = {config: [] for config in configs}
    grown: dict[LaneConfig, list[list[float]]] = {config: [] for config in configs}
    for config in configs:
        list(driven(warm_up(make_request(pair, prompt, SamplingParams(TOKENS)), config)))
    for _ in range(arguments.runs):
        for config in configs:
            rounds[config].append(rounds_at(pair, prompt, config))
            grown[config].append([growth(pair, length, config, cost) for cost in (attention_seconds, pass_seconds)])
    for config in configs:
        early, late = map(median, zip(*rounds[config], strict=True))
        attention, passes = (max(0.0, median(found)) for found in zip(*grown[config], strict=True))
        kept = (early + min(attention, passes)) / late
        print(
            f"{config.label}: a round takes {1e3 * early:.2f} ms at tokens 100-200 and {1e3 * late:.2f} ms at tokens "
            f"900-1,000: {early / late:.2f} of the speed is kept. Attention alone grows by {1e3 * attention:.2f} ms; "
            f"with that allowed for, {kept:.2f} (0.9 or more: {'yes' if kept >= 0.9 else 'NO'}). Plain passes grow by "
            f"{1e3 * passes:.2f} ms; with that, {(early + passes) / late:.2f}."
        )


if __name__ == "__main__":
    main()
