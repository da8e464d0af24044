"""Compares γ auto with the best fixed γ in sampled calls: ``python -m benchmarks.auto_costs``.

In sampled calls auto decides by estimated costs, so that a seed repeats the text. Here it also decides by measured
ones, as in greedy calls. The embedded target writes 128 tokens of each example prompt at temperature 1, with several
drafts and with each of ``--runs`` seeds in turns. For each prompt, the fixed γ of half of the seeds is the one that was
fastest with the other half. Speeds are tokens per second of the thread's processor time, prompt included, because other
programs may use the machine. Shares are medians over the prompts with (lowest-highest). Puts the table into
docs/performance.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked_runs
from specdec.engine.chooser import Chooser
from specdec.lanes.decoding_thread import driven
from specdec.measure.prompts import EXAMPLES, read_prompts

DRAFTS = {"2-layer draft": None, "early exit, 3 layers": "early-exit:3", "prompt lookup": "prompt-lookup"}
FIXED = (0, 1, 2, 3, 4, 5, 8)
TOKENS = 128


class ByTheClock:
    """γ auto whose costs are corrected by measured times."""

    def __str__(self) -> str:
        return "auto by measured costs"

    def start(self) -> Chooser:
        return _Measuring()


class _Measuring(Chooser):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, name == "measures" or value)  # the loop sets it to False in sampled calls


def seconds_of(pair: specdec.Pair, prompt: Any, gamma: Any, seed: int) -> float:
    """Processor seconds of a call."""
    params = specdec.SamplingParams(TOKENS, temperature=1.0, seed=seed, ignore_eos=True)
    found = specdec.collect(driven(specdec.speculative(pair, prompt, gamma=gamma, params=params)))
    assert found.metrics.cpu_seconds is not None
    return found.metrics.cpu_seconds


def fastest(seconds: dict[str, list[float]], half: int) -> int:
    """The fixed γ of the least seconds in half of the runs."""
    return min(FIXED, key=lambda gamma: sum(seconds[str(gamma)][half::2]))


def shares(pair: specdec.Pair, runs: int) -> list[list[Any]]:
    """For each prompt: auto's speed over that of the best fixed γ, by estimated and measured costs, and the γ of each
    half."""
    gammas: Sequence[Any] = (*FIXED, "auto", ByTheClock())
    found = []
    for item in read_prompts(EXAMPLES):
        prompt, seconds = item.message(pair.tokenizer), defaultdict(list)
        for seed in range(-1, runs):
            for gamma in gammas:
                took = seconds_of(pair, prompt, gamma, max(seed, 0))
                if seed >= 0:  # the first turn warms up
                    seconds[str(gamma)].append(took)
        best = [fastest(seconds, half) for half in (1, 0)]
        fixed = sum(sum(seconds[str(gamma)][half::2]) for half, gamma in enumerate(best))
        found.append([*(fixed / sum(seconds[str(gamma)]) for gamma in gammas[-2:]), best])
    return found


def main() -> None:
    runs, rows = max(asked_runs(__doc__), 2), []  # two halves
    for name, draft in DRAFTS.items():
        by_prompt = shares(specdec.load_pair(draft=draft) if draft else specdec.load_pair(), runs)
        estimated, measured, best = zip(*by_prompt, strict=True)
        cells = [f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})" for values in (estimated, measured)]
        rows.append([name, *cells, ", ".join("/".join(map(str, dict.fromkeys(each))) for each in best)])
        print(rows[-1], flush=True)
    about = (
        f"`python -m benchmarks.auto_costs --runs {runs}`: {TOKENS} tokens of each example prompt, temperature 1.\n\n"
    )
    heads = ("Draft", "auto, estimated costs", "auto, measured costs", "best fixed γ of each prompt")
    write("auto_costs", about + table(heads, rows))


if __name__ == "__main__":
    main()
