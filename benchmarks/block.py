"""Measures what block verification gains over verification guess by guess: ``python -m benchmarks.block``.

The embedded pair is sampled at several temperatures. Prints the mean tokens per target pass over all example
prompts and seeds, with calls of equal length. The gain is the ratio of the two means, with its standard error over the
calls. These are counts, so no figure depends on the speed of the machine. Puts the table into docs/performance.md.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev

import torch

import specdec
from benchmarks.document import table, write
from specdec.measure.prompts import EXAMPLES, read_prompts

TEMPERATURES = (0.5, 0.75, 1.0, 1.25, 1.5)
GAMMAS = (3, 5, 8)
SEEDS, TOKENS = range(6), 128


def tokens_a_pass(pair: specdec.Pair, acceptance: str, gamma: int, temperature: float) -> list[float]:
    """Tokens per target pass of each call."""
    found = []
    for example in read_prompts(EXAMPLES):
        for seed in SEEDS:
            params = specdec.SamplingParams(max_new_tokens=TOKENS, temperature=temperature, seed=seed, ignore_eos=True)
            lane = specdec.speculative(pair, example.prompt, gamma=gamma, params=params, acceptance=acceptance)
            found.append(specdec.collect(lane).metrics.mean_acceptance_length)
    return found


def main() -> None:
    torch.set_num_threads(2)
    pair = specdec.load_pair()
    calls = len(read_prompts(EXAMPLES)) * len(SEEDS)
    rows = []
    for temperature in TEMPERATURES:
        for gamma in GAMMAS:
            one, whole = (tokens_a_pass(pair, kind, gamma, temperature) for kind in ("lossless", "block"))
            gain = fmean(whole) / fmean(one)
            error = gain * math.hypot(*(stdev(values) / math.sqrt(calls) / fmean(values) for values in (one, whole)))
            means = f"{fmean(one):.2f}", f"{fmean(whole):.2f}"
            rows.append([str(temperature), str(gamma), *means, f"{gain:.3f} ± {error:.3f}"])
    about = (
        f"`python -m benchmarks.block`: means of {calls} calls of {TOKENS} tokens; the gain with its standard error."
    )
    write("block", f"{about}\n\n" + table(("Temperature", "γ", "guess by guess", "as a block", "gain"), rows))


if __name__ == "__main__":
    main()
