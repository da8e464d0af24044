"""How near "auto" comes to the best fixed draft length."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.plan import Trial


def auto_share(trials: Iterable[Trial]) -> dict[str, float]:
    """Speed at "auto" over that at the best fixed draft length, one figure a prompt; empty without both or two runs.

    The best is picked on every second run and both are scored on the others, so that luck does not choose it. Each
    speed is one over plain ``generate``'s in the same run.
    """
    rates = {trial.key: trial.metrics.tokens_per_second for trial in trials}
    runs = sorted({run for run, *_ in rates})
    fixed = {(lane, g) for _, _, lane, g in rates if lane == LOOP.lane and isinstance(g, int)}
    if ("speculative", "auto") not in {key[2:] for key in rates} or not fixed or len(runs) < 2:
        return {}

    def gain(entrant: tuple, prompt: str, scored: list[int]) -> float:
        return median(rates[run, prompt, *entrant] / rates[run, prompt, *BASELINE] for run in scored)

    shares = {}
    for prompt in dict.fromkeys(key[1] for key in rates):
        best = max(fixed, key=lambda entrant: gain(entrant, prompt, runs[::2]))
        shares[prompt] = gain(("speculative", "auto"), prompt, runs[1::2]) / gain(best, prompt, runs[1::2])
    return shares
