"""Trials to figures: a summary an entrant, with its speed-up over plain ``generate`` in the same runs and prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from specdec.lanes.table import BASELINE, LANES, LOOP, Entrant
from specdec.measure.metrics import Metrics, latency_reduction, pool, speedup
from specdec.measure.plan import Trial


@dataclass(frozen=True)
class Summary:
    """One entrant over all its trials. ``gains`` and ``rates`` hold one figure a run, all its prompts together."""

    lane: str
    gamma: int | str | None
    metrics: Metrics  # all trials as if they were one call
    typical: Metrics  # the same of the middle run of each prompt: one hiccup of the machine leaves it alone
    gains: list[float]  # speed-up over the baseline
    rates: list[float]  # tokens a second after the first token
    same: int  # trials that wrote the baseline's text
    compared: int  # trials that have a baseline

    @property
    def gain(self) -> float | None:
        """Median over the runs."""
        return median(self.gains) if self.gains else None

    @property
    def entrant(self) -> Entrant:
        return Entrant(self.lane, self.gamma)


def summarise(trials: Iterable[Trial], baseline: Entrant = BASELINE) -> list[Summary]:
    """A summary an entrant, by lane and draft length, of the trials that are ``comparable``."""
    trials = comparable(trials)
    base = {(t.run, t.prompt): t for t in trials if t.entrant == baseline}
    by_entrant: dict[Entrant, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_entrant[trial.entrant].append(trial)
    return [_summary(entrant, found, base) for entrant, found in sorted(by_entrant.items(), key=_place)]


def comparable(trials: Iterable[Trial]) -> list[Trial]:
    """Where some calls are still to come, those runs of a prompt count that all entrants have, so that none is judged
    by other prompts than the rest; before there is one, all."""
    trials = list(trials)
    cells: dict[Entrant, set[tuple[int, str]]] = defaultdict(set)
    for trial in trials:
        cells[trial.entrant].add((trial.run, trial.prompt))
    shared = set.intersection(*cells.values()) if cells else set()
    return [trial for trial in trials if (trial.run, trial.prompt) in shared] if shared else trials


def best_gamma(summaries: Sequence[Summary]) -> Summary | None:
    """The speculative lane of highest median speed-up at a fixed draft length, 0 included as our loop alone."""
    fixed = [s for s in summaries if s.gain and s.lane == LOOP.lane and isinstance(s.gamma, int)]
    return max(fixed, key=lambda s: s.gain, default=None)


def find(summaries: Sequence[Summary], entrant: Entrant) -> Summary | None:
    return next((s for s in summaries if s.entrant == entrant), None)


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


def _summary(entrant: Entrant, trials: list[Trial], base: dict[tuple[int, str], Trial]) -> Summary:
    gains, rates = [], []
    for run in sorted({trial.run for trial in trials}):
        # A run that was broken off counts over the prompts that both have.
        both = [(base[run, t.prompt].metrics, t.metrics) for t in trials if t.run == run and (run, t.prompt) in base]
        pooled = [pool(side) for side in zip(*both, strict=True)]
        if pooled and (gain := speedup(*pooled)):
            gains.append(gain)
        if rate := pool(t.metrics for t in trials if t.run == run).tokens_per_second:
            rates.append(rate)
    compared = [(t, base[t.run, t.prompt]) for t in trials if (t.run, t.prompt) in base]
    same = sum(ours.token_ids == theirs.token_ids for ours, theirs in compared)
    return Summary(*entrant, pool(t.metrics for t in trials), _typical(trials), gains, rates, same, len(compared))


def _typical(trials: list[Trial]) -> Metrics:
    by_prompt: dict[str, list[Metrics]] = defaultdict(list)
    for trial in trials:
        by_prompt[trial.prompt].append(trial.metrics)
    middles = []
    for found in by_prompt.values():
        found.sort(key=lambda m: m.seconds_per_token or 0.0)
        middles.append(found[(len(found) - 1) // 2])
    return pool(middles)


def _place(item: tuple[Entrant, Any]) -> tuple:
    entrant, _ = item
    names = list(dict.fromkeys(lane.name for lane in LANES))
    gamma = -1 if entrant.gamma is None else entrant.gamma
    return names.index(entrant.lane), gamma if isinstance(gamma, int) else float("inf")


def rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row a category and entrant, then a row an entrant over all: plain numbers under the names of the columns."""
    categories = list(dict.fromkeys(trial.category for trial in trials))
    groups = [(c, [t for t in trials if t.category == c]) for c in categories]
    if len(categories) > 1:
        groups.append(("all", list(trials)))
    greedy = all(trial.greedy for trial in trials)
    return [_row(category, summary, greedy) for category, found in groups for summary in summarise(found)]


def _row(category: str, summary: Summary, greedy: bool) -> dict[str, Any]:
    m, gains, rates = summary.metrics, summary.gains, summary.rates
    return {
        "category": category,
        "lane": summary.lane,
        "gamma": summary.gamma,
        "runs": len(rates),
        "tokens_per_second": median(rates) if rates else None,
        "tokens_per_second_min": min(rates, default=None),
        "tokens_per_second_max": max(rates, default=None),
        "speedup": summary.gain,
        "speedup_min": min(gains, default=None),
        "speedup_max": max(gains, default=None),
        "latency_reduction": latency_reduction(summary.gain) if summary.gain else None,
        "acceptance": m.alpha,
        "tokens_per_target_pass": m.mean_acceptance_length,
        "outside_forward": summary.typical.overhead_share,
        "same_text": summary.same if greedy else None,  # when sampling, equal texts are not to be expected
        "compared": summary.compared,
    }
