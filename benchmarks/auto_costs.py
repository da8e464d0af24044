"""Compares γ auto with the best fixed γ: ``python -m benchmarks.auto_costs``.

The embedded target writes 128 tokens of each example prompt with several drafts, greedy and at temperature 1, in
``--runs`` turns, each with a seed of its own. In greedy calls auto decides by measured costs. In sampled ones it
decides by estimated costs, so that a seed repeats the text; here it also decides by measured ones there. For each
prompt, the fixed γ of half of the runs is the one that was fastest in the other half. "one γ" is the fixed γ that is
best if it has to be the same for all prompts. Speeds are tokens per second of the thread's processor time, prompt
included, because other programs may use the machine. Shares are medians over the prompts with (lowest-highest). Puts
the table into docs/performance.md. ``--prompts FILE`` takes other prompts, and only prints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked
from specdec.engine.chooser import Chooser
from specdec.engine.round_times import RoundTimes
from specdec.lanes.decoding_thread import driven
from specdec.measure.prompts import EXAMPLES, read_prompts

DRAFTS = {"2-layer draft": None, "early exit, 3 layers": "early-exit:3", "prompt lookup": "prompt-lookup"}
FIXED = (0, 1, 2, 3, 4, 5, 8)
TOKENS = 128


class ByTheClock:
    """γ auto whose costs are corrected by measured times, as its calls share them."""

    def __init__(self) -> None:
        self.times = RoundTimes()

    def __str__(self) -> str:
        return "auto by measured costs"

    def start(self) -> Chooser:
        return _Measuring(self.times)


class _Measuring(Chooser):
    def __init__(self, times: RoundTimes):
        super().__init__()
        self._shared = times

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, self._shared if name == "times" else value)  # the loop sets None in sampled calls


def seconds_of(pair: specdec.Pair, prompt: Any, gamma: Any, temperature: float, seed: int) -> float:
    """Processor seconds of a call."""
    params = specdec.SamplingParams(TOKENS, temperature=temperature, seed=seed, ignore_eos=True)
    found = specdec.collect(driven(specdec.speculative(pair, prompt, gamma=gamma, params=params)))
    assert found.metrics.cpu_seconds is not None
    return found.metrics.cpu_seconds


def fastest(seconds: dict[str, list[float]], half: int) -> int:
    """The fixed γ of the least seconds in half of the runs."""
    return min(FIXED, key=lambda gamma: sum(seconds[str(gamma)][half::2]))


def shares(
    pair: specdec.Pair, prompts: Iterable[Any], temperature: float, runs: int
) -> tuple[list[list[float]], list[list[int]]]:
    """For each γ: its speed over that of the best fixed γ, prompt by prompt. And those best γ, of each half.

    After the fixed γ comes auto as it is and, in sampled calls, auto by measured costs.
    """
    autos = ["auto", ByTheClock()] if temperature else ["auto"]
    gammas: Sequence[Any] = (*FIXED, *autos)
    found, chosen = [], []
    for prompt in prompts:
        seconds = defaultdict(list)
        for seed in range(-1, runs):
            for gamma in gammas:
                took = seconds_of(pair, prompt, gamma, temperature, max(seed, 0))
                if seed >= 0:  # the first turn warms up
                    seconds[str(gamma)].append(took)
        best = [fastest(seconds, half) for half in (1, 0)]
        fixed = sum(sum(seconds[str(gamma)][half::2]) for half, gamma in enumerate(best))
        found.append([fixed / sum(seconds[str(gamma)]) for gamma in gammas])
        chosen.append(best)
    return [list(values) for values in zip(*found, strict=True)], chosen


def main() -> None:
    given = asked(__doc__, "prompts")
    runs, rows = max(given.runs, 2), []  # two halves
    items = read_prompts(Path(given.prompts) if given.prompts else EXAMPLES)
    for name, draft in DRAFTS.items():
        pair = specdec.load_pair(draft=draft) if draft else specdec.load_pair()
        prompts = [item.message(pair.tokenizer) for item in items]
        for temperature in (0.0, 1.0):
            found, best = shares(pair, prompts, temperature, runs)
            one = max(range(len(FIXED)), key=lambda i: median(found[i]))
            ways = [f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})" for values in found]
            auto, *by_the_clock = ways[len(FIXED) :]
            said = ", ".join("/".join(map(str, dict.fromkeys(each))) for each in best)
            calls = f"temperature {temperature:g}" if temperature else "greedy"
            rows.append([name, calls, auto, *(by_the_clock or ["–"]), f"γ {FIXED[one]}: {ways[one]}", said])
            print(rows[-1], flush=True)
    if given.prompts:
        return
    about = f"`python -m benchmarks.auto_costs --runs {runs}`: {TOKENS} tokens of each example prompt.\n\n"
    heads = ("Draft", "Calls", "auto", "auto, measured costs", "one γ", "best fixed γ of each prompt")
    write("auto_costs", about + table(heads, rows))


if __name__ == "__main__":
    main()
