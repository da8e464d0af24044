"""What the decoding thread costs a lane: ``python tests/driven_against_direct.py``.

Whole-call seconds of a lane through ``driven`` over the same call made directly. One ratio a run and prompt, from four
calls: direct, driven, driven, direct, so that a steady drift cancels out.
"""

from __future__ import annotations

import sys
import time
from itertools import chain
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import specdec  # noqa: E402
from specdec.call import prepare  # noqa: E402
from specdec.lanes import run_generate  # noqa: E402
from specdec.prompts import EXAMPLES, read_prompts  # noqa: E402
from specdec.race import enter  # noqa: E402
from specdec.trials import INTERVAL  # noqa: E402

LANES = ("generate", "speculative", "assisted")
GAMMA, TOKENS, RUNS = 5, 128, 5


def main() -> None:
    pair = specdec.load_pair()
    params = specdec.SamplingParams(TOKENS, seed=0, ignore_eos=True)

    def finished(events) -> float:
        """The lane's own clock at its end: the consumer's last nap is not the lane's."""
        return next(event.elapsed_seconds for event in events if isinstance(event, specdec.Finished))

    def driven(lane: str, prompt: str) -> float:
        return finished(chain.from_iterable(specdec.driven(enter(pair, prompt, lane, GAMMA, params), INTERVAL)))

    def direct(lane: str, prompt: str) -> float:
        if lane == "speculative":
            return finished(enter(pair, prompt, lane, GAMMA, params))
        call = prepare(lane, pair, prompt, params, GAMMA if lane == "assisted" else 0)
        began = time.perf_counter()
        run_generate(call, **({"assistant_model": pair.draft} if lane == "assisted" else {}))
        return time.perf_counter() - began

    prompts = [item.prompt for item in read_prompts(EXAMPLES)]
    for lane in LANES:  # both threads warm up
        direct(lane, prompts[0]), driven(lane, prompts[0])
    ratios: dict[str, list[float]] = {lane: [] for lane in LANES}
    for _ in range(RUNS):
        for prompt in prompts:
            for lane in LANES:
                first, *inner, last = (call(lane, prompt) for call in (direct, driven, driven, direct))
                ratios[lane].append(sum(inner) / (first + last))
    for lane, found in ratios.items():
        print(f"{lane}: driven / direct {median(found):.3f} ({min(found):.3f}-{max(found):.3f})")


if __name__ == "__main__":
    main()
