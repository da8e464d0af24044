"""Compares what-if's forecasts with real runs: ``python -m benchmarks.whatif_against_runs``.

Each of 20 prompts is recorded once with ``Calibration`` and then run at gamma 0 to 8, interleaved. Prints in how many
cases the predicted numbers of target passes and draft tokens are those of the run. Then it prints predicted seconds /
measured seconds, with the costs of the prompt's own recording and with those of all recordings.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from itertools import chain

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.engine.request import machine_facts
from specdec.measure.costs import Costs
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.trials import INTERVAL
from specdec.measure.whatif import Calibration, what_if
from specdec.models.pair import silence_libraries

GAMMAS = range(9)
FURTHER = [
    "One day, a little boy named Max found a big box in the garden. He opened it and",
    "There was a small cat who did not like the rain. Every time it rained, she",
    "Ben and Mia went to the beach with their dad. They wanted to build",
    "Once there was an old tree in the middle of the village. The children",
    "The bear was very hungry. He walked through the woods and looked for",
    '"Where is my red hat?" asked Anna. Her brother looked under the bed and said,',
    '"I am scared of the dark," said Tim. His sister took his hand and said,',
    '"Can you help me, please?" asked the bird. The frog jumped closer and said,',
    '"Look what I found!" shouted Sam. His friend came running and asked,',
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    'def count_words(text):\n    """Return how often each word occurs."""\n',
    "import json\n\ndef load_config(path):\n    with open(path) as file:\n",
    "for i in range(10):\n    if i % 2 == 0:\n        print(",
    "Text:\nThe sun came up and the birds began to sing. Lily put on her blue coat and went out to play in the snow. "
    "She made a big snowman with a long nose.\n\nThe same text with Anna instead of Lily:\n",
    "List: apple, banana, cherry, grape, lemon, melon, orange, peach, pear, plum\n\nThe same list once more: apple,",
]


def lane(pair: specdec.Pair, prompt: str, gamma, params: specdec.SamplingParams) -> list:
    return list(
        chain.from_iterable(specdec.driven(specdec.speculative(pair, prompt, gamma=gamma, params=params), INTERVAL))
    )


def spread(ratios: list[float]) -> str:
    low, *_, high = statistics.quantiles(ratios, n=20)
    off = statistics.median(abs(ratio - 1) for ratio in ratios)
    return f"{statistics.median(ratios):.3f} (5-95 %: {low:.3f}-{high:.3f}), off by {off:.1%} in the median"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--prompts", type=int, default=20)
    arguments = parser.parse_args()
    silence_libraries()
    leave_a_core()
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=arguments.tokens, ignore_eos=True)
    prompts = [*(item.prompt for item in read_prompts(EXAMPLES)), *FURTHER][: arguments.prompts]
    for gamma in (Calibration(), *GAMMAS):
        lane(pair, prompts[0], gamma, params)
    runs, recorded = {}, []
    for i, prompt in enumerate(prompts):
        order = [Calibration(), *GAMMAS]
        for gamma in order[i % len(order) :] + order[: i % len(order)]:
            events = lane(pair, prompt, gamma, params)
            if isinstance(gamma, int):
                runs[i, gamma] = specdec.collect(events).metrics
            else:
                recorded.append(events)
    pooled = Costs.of(*recorded)
    print(f"{pair.describe()}\n{machine_facts(pair.target.device)}\n{pooled}")
    equal, said, passes, seconds = 0, 0, [], defaultdict(lambda: defaultdict(list))
    for i, events in enumerate(recorded):
        for name, costs in (("its own recording", Costs.of(events)), ("all recordings", pooled)):
            for gamma, outcome in zip(GAMMAS, what_if(events, costs, GAMMAS), strict=True):
                seconds[name][gamma].append(outcome.seconds / runs[i, gamma].decode_seconds)
        for gamma, outcome in zip(GAMMAS, what_if(events, pooled, GAMMAS), strict=True):
            same = (outcome.target_passes, outcome.drafted) == (runs[i, gamma].target_passes, runs[i, gamma].drafted)
            equal, said = equal + same, said + outcome.exact
            if outcome.exact and not same:
                print(f"Not the same: prompt {i}, gamma {gamma}.")
            passes.append(abs(outcome.target_passes - runs[i, gamma].target_passes))
    print(f"Target passes and draft tokens: {equal} of {len(passes)} equal, {said} said to be exact; ", end="")
    print(f"the largest difference is {max(passes):.2f} passes.")
    for name, by_gamma in seconds.items():
        print(f"Seconds expected / measured, costs from {name}: {spread(list(chain(*by_gamma.values())))}")
        print("  " + ", ".join(f"\u03b3 {gamma}: {statistics.median(row):.3f}" for gamma, row in by_gamma.items()))


if __name__ == "__main__":
    main()
