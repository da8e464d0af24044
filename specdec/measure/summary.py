"""Summarises trials: for each config its speed-up over plain ``generate`` in the same runs and prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from specdec.lanes.table import BASELINE, LANES, LOOP, LaneConfig
from specdec.measure.gain import RunMetrics, median_run
from specdec.measure.metrics import Metrics, latency_reduction, pool
from specdec.measure.plan import Plan, Trial


@dataclass(frozen=True)
class Summary:
    """One config over all its trials.

    sides    for each run, all prompts together: plain ``generate``, this config, and our loop if it ran
    runs     the number of the run of each of ``sides``
    rates    tokens per second after the first token, for each run
    same     how many trials wrote the baseline's text, of the ``compared`` ones that have a baseline
    shown    the number of the run whose figures are shown; None for the one with the median speed-up. Our loop without
             a draft shows the run that the fastest draft length shows, because it has a share in that figure.
    """

    lane: str
    gamma: int | str | None
    sides: list[RunMetrics]
    runs: list[int]
    rates: list[float]
    same: int
    compared: int
    shown: int | None = None

    @property
    def gains(self) -> list[float]:
        """The speed-up over the baseline in each run."""
        return list(self.gain_of_run.values())

    @property
    def gain_of_run(self) -> dict[int, float]:
        """The speed-up by the number of the run. A run without one is left out."""
        return {run: gain for run, side in zip(self.runs, self.sides, strict=True) if (gain := side.gain)}

    @property
    def gain(self) -> float | None:
        """The speed-up of the run that is shown."""
        return self.median_run.gain if self.median_run else None

    @property
    def lane_config(self) -> LaneConfig:
        return LaneConfig(self.lane, self.gamma)

    @property
    def median_run(self) -> RunMetrics | None:
        """The run whose figures stand for this lane; None without a run of the baseline."""
        if self.shown in self.runs:
            return self.sides[self.runs.index(self.shown)]
        return median_run(self.sides) if self.sides else None

    @property
    def shown_run(self) -> int | None:
        """The number of that run."""
        return None if self.median_run is None else self.runs[self.sides.index(self.median_run)]

    def figure(self, name: str) -> float | None:
        """One of the lane's figures in the median run, by its name in ``Metrics``."""
        return getattr(self.median_run.lane, name) if self.median_run else None


def summarise(trials: Iterable[Trial], baseline: LaneConfig = BASELINE) -> list[Summary]:
    """A summary for each config, of the ``comparable`` trials.

    That of our loop without a draft shows the run of the fastest draft length.
    """
    by_config: dict[LaneConfig, list[Trial]] = defaultdict(list)
    for trial in comparable(trials):
        by_config[trial.lane_config].append(trial)
    base, loop = ({(t.run, t.prompt): t for t in by_config.get(config, ())} for config in (baseline, LOOP))
    found = [_summary(by_config[config], base, loop) for config in sorted(by_config, key=_place)]
    best = fastest([each for each in found if each.lane_config != LOOP])
    run = best.shown_run if best else None
    return [replace(each, shown=run) if each.lane_config == LOOP else each for each in found]


def comparable(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that can be compared while calls are still missing: the runs of a prompt that all configs have.

    So no config is judged by other prompts than the rest. Before there is such a run, all trials count.
    """
    trials = list(trials)
    cells: dict[LaneConfig, set[tuple[int, str]]] = defaultdict(set)
    for trial in trials:
        cells[trial.lane_config].add((trial.run, trial.prompt))
    shared = set.intersection(*cells.values()) if cells else set()
    return [trial for trial in trials if (trial.run, trial.prompt) in shared] if shared else trials


@dataclass(frozen=True)
class Share:
    """How much of a plan is measured. ``whole``: every config has a run of every prompt."""

    calls: int
    planned: int
    whole: bool


def share_of(trials: Iterable[Trial], plan: Plan) -> Share:
    done = {(trial.run, trial.prompt, trial.lane_config) for trial in trials}

    def complete(run: int, prompt: str) -> bool:
        return all((run, prompt, config) in done for config in plan.configs)

    whole = all(any(complete(run, item.name) for run in range(plan.runs)) for item in plan.prompts)
    return Share(len(done), len(plan), whole)


def fastest(summaries: Sequence[Summary]) -> Summary | None:
    """The fastest of our own lanes: every draft length, "auto", and our loop alone."""
    return max((s for s in summaries if s.gain and s.lane == LOOP.lane), key=lambda s: s.gain or 0.0, default=None)


def best_lengths(summaries: Sequence[Summary]) -> list[Summary]:
    """Each lane at its fastest draft length, without plain ``generate`` and without lanes that have no speed-up."""
    best: dict[str, Summary] = {}
    for summary in summaries:
        key = summary.lane_config.key
        if (
            summary.gain
            and summary.lane_config != BASELINE
            and (key not in best or summary.gain > (best[key].gain or 0.0))
        ):
            best[key] = summary
    return list(best.values())


def find(summaries: Sequence[Summary], config: LaneConfig) -> Summary | None:
    return next((s for s in summaries if s.lane_config == config), None)


def auto_share(trials: Iterable[Trial]) -> dict[str, float]:
    """Speed at "auto" / speed at the best fixed draft length, for each prompt. Empty without both, or with one run.

    The best length is chosen on every second run, and both are compared on the other runs, so that luck does not
    decide. Each speed is relative to plain ``generate`` in the same run. Only prompts with all of these speeds count.
    """
    rates = {(t.lane_config, t.prompt, t.run): rate for t in trials if (rate := t.metrics.tokens_per_second)}
    runs = sorted({run for _, _, run in rates})
    configs = {config for config, _, _ in rates}
    fixed = {config for config in configs if config.lane == LOOP.lane and isinstance(config.gamma, int)}
    auto = LaneConfig(LOOP.lane, "auto")
    if auto not in configs or not fixed or len(runs) < 2:
        return {}

    def gain(config: LaneConfig, prompt: str, scored: list[int]) -> float:
        return median_low(rates[config, prompt, run] / rates[BASELINE, prompt, run] for run in scored)

    shares = {}
    for prompt in dict.fromkeys(prompt for _, prompt, _ in rates):
        if any((config, prompt, run) not in rates for config in (BASELINE, auto, *fixed) for run in runs):
            continue
        best = max(fixed, key=lambda config: gain(config, prompt, runs[::2]))
        shares[prompt] = gain(auto, prompt, runs[1::2]) / gain(best, prompt, runs[1::2])
    return shares


Cells = dict[tuple[int, str], Trial]  # by run and prompt


def _summary(trials: list[Trial], base: Cells, loop: Cells) -> Summary:
    sides, runs, rates = [], [], []
    for run in sorted({trial.run for trial in trials}):
        if rate := _pool(trial for trial in trials if trial.run == run).tokens_per_second:
            rates.append(rate)
        # Of an interrupted run, the prompts that both have count.
        if both := [trial for trial in trials if trial.run == run and (run, trial.prompt) in base]:
            cells = [(run, trial.prompt) for trial in both]
            looped = _pool(loop[cell] for cell in cells) if all(cell in loop for cell in cells) else None
            runs.append(run)
            sides.append(RunMetrics(_pool(base[cell] for cell in cells), _pool(both), looped))
    compared = [(t, base[t.run, t.prompt]) for t in trials if (t.run, t.prompt) in base]
    same = sum(ours.token_ids == theirs.token_ids for ours, theirs in compared)
    return Summary(trials[0].lane, trials[0].gamma, sides, runs, rates, same, len(compared))


def _pool(trials: Iterable[Trial]) -> Metrics:
    return pool(trial.metrics for trial in trials)


def _place(config: LaneConfig) -> tuple[int, float]:
    names = list(dict.fromkeys(lane.name for lane in LANES))
    gamma = -1 if config.gamma is None else config.gamma
    return names.index(config.lane), gamma if isinstance(gamma, int) else float("inf")


def summary_rows(trials: Sequence[Trial], shown: int | None = None) -> list[dict[str, Any]]:
    """A row for each category and config, then a row for each config over all. Plain numbers by column name.

    ``shown``: the run whose figures all rows have; None for the median run of each row.
    """
    categories = list(dict.fromkeys(trial.category for trial in trials))
    groups = [(c, [t for t in trials if t.category == c]) for c in categories]
    if len(categories) > 1:
        groups.append(("all", list(trials)))
    greedy = all(trial.greedy for trial in trials)
    summaries = ((category, each) for category, found in groups for each in summarise(found))
    return [
        _row(category, each if shown is None else replace(each, shown=shown), greedy) for category, each in summaries
    ]


def _row(category: str, summary: Summary, greedy: bool) -> dict[str, Any]:
    return {
        "category": category,
        **summary_figures(summary),
        "same_text": summary.same if greedy else None,  # sampled texts need not be equal
        "compared": summary.compared,
    }


def summary_figures(summary: Summary) -> dict[str, Any]:
    """A config's figures over its runs: plain numbers by column name.

    They are those of one run, but for the lowest and the highest. The baseline itself has no speed-up by which a run
    could be chosen: unless one is ``shown``, it has no speed of its own if it ran several times. Each other row has the
    baseline's in the same run.
    """
    gains, rates, run = summary.gains, summary.rates, summary.median_run
    plain, many = summary.lane_config == BASELINE, len(rates) > 1 and summary.shown is None
    rate = run.lane.tokens_per_second if run else median_low(rates) if rates else None
    return {
        "lane": summary.lane,
        "gamma": summary.gamma,
        "runs": len(rates),
        "tokens_per_second": None if plain and many else rate,
        "tokens_per_second_min": min(rates, default=None),
        "tokens_per_second_max": max(rates, default=None),
        "plain_tokens_per_second": run.plain.tokens_per_second if run and not plain else None,
        "speedup": run.gain if run else None,
        "speedup_min": min(gains, default=None),
        "speedup_max": max(gains, default=None),
        "latency_reduction": latency_reduction(run.gain) if run and run.gain else None,
        "acceptance": summary.figure("alpha"),
        "expected_acceptance": summary.figure("overlap"),  # None for a greedy lane
        "tokens_per_target_pass": summary.figure("mean_acceptance_length"),
        "outside_forward": summary.figure("overhead_share"),
    }
