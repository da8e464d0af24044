"""Runs the losslessness test of the page under many seeds: ``python -m benchmarks.losslessness_seeds [seeds] [draws]``.

Lossless sampling must pass under every seed (by chance it fails once in 1,000), and lossy acceptance must be caught
under every seed. Prints a line for each seed: total variation, its mean by chance and its bound, p-value, guesses kept,
cells and seconds; then how often each passed. The exit status is 1 if one of them failed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from statistics import median

import specdec
from specdec.measure.losslessness import PARAMS, self_test


def main(seeds: int = 20, draws: int = 500) -> None:
    pair = specdec.load_pair()
    passed = caught = 0
    took, p_values = [], []
    for seed in range(seeds):
        began = time.perf_counter()
        *_, found = self_test(pair, params=replace(PARAMS, seed=seed), draws=draws)
        took.append(time.perf_counter() - began)
        p_values.append((found.lossless.p_value, found.lossy.p_value))
        passed += found.lossless.p_value >= found.level
        caught += found.lossy.p_value < found.level
        samples = {"lossless": (found.lossless, found.alpha), "lossy": (found.lossy, found.lossy_alpha)}
        columns = [
            f"{name} {c.total_variation:.3f} (chance {c.noise_mean:.3f}, up to {c.noise_bound:.3f}) "
            f"p {c.p_value:.2g} alpha {alpha:.2f} cells {c.cells}"
            for name, (c, alpha) in samples.items()
        ]
        print(f"seed {seed:2}  {found.verdict}", *columns, f"{took[-1]:.0f} s", sep="  ", flush=True)
    print(f"lossless passed {passed} of {seeds}, lossy caught {caught} of {seeds}, at {found.level}, {draws} draws")
    lossless, lossy = zip(*p_values, strict=True)
    print(
        f"p of lossless: least {min(lossless):.2g}, median {median(lossless):.2g}; of lossy: largest {max(lossy):.2g}; "
        f"{median(took):.0f} s a test ({min(took):.0f}-{max(took):.0f})"
    )
    sys.exit(passed < seeds or caught < seeds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
