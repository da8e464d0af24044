"""Is sampling lossless, and would the self-test notice if not? ``python tests/losslessness_seeds.py [seeds] [draws]``.

The self-test of the embedded pair under 20 seeds, its own settings otherwise. Lossless sampling must pass every time
(by chance it fails once in 1,000) and lossy acceptance must be caught every time. A line a seed: total variation, what
chance gives and its bound, p-value, guesses kept, cells and seconds.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import specdec  # noqa: E402
from specdec.measure.losslessness import PARAMS, self_test  # noqa: E402


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
