"""Tests whether the draft length that a sweep chooses is the best of fresh runs: ``python -m benchmarks.gamma_choice``.

A sweep over the example prompts chooses a draft length. All lengths are then measured again. Prints the choice with its
speed-up, the best length of the fresh runs, what share of the best the choice reaches there, and the error of the
closed form in both sweeps.
"""

from __future__ import annotations

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.measure.plan import Plan
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.summary import Summary, fastest, find, summarise
from specdec.measure.sweep import CONFIGS, NEW_TOKENS, RUNS
from specdec.measure.trials import trials
from specdec.report import numbers
from specdec.report.sweep import prediction_error, sweep_rows


def fixed_fastest(summaries: list[Summary]) -> Summary:
    """The fastest fixed draft length, our loop at 0 included."""
    return fastest([summary for summary in summaries if summary.gamma != "auto"])


def main() -> None:
    leave_a_core()
    pair = specdec.load_pair()
    params = specdec.SamplingParams(NEW_TOKENS, ignore_eos=True)
    plan = Plan(tuple(read_prompts(EXAMPLES)), CONFIGS, params, RUNS)
    first, second = (list(filter(None, trials(pair, plan))) for _ in range(2))
    choice, fresh = fixed_fastest(summarise(first)), summarise(second)
    best, scored = fixed_fastest(fresh), find(fresh, choice.lane_config)
    told = f"fresh runs are best at γ {best.gamma}, {numbers.times(best.gains)}"
    print(f"The sweep chose γ {choice.gamma}, {numbers.times(choice.gains)}; {told}.")
    print(f"There the choice reaches {numbers.times(scored.gains)}: {scored.gain / best.gain:.3f} of the best.")
    errors = [prediction_error(sweep_rows(summarise(found), one_pass=False)) for found in (first, second)]
    print(f"Closed form against measured, median over γ 1-8: off by {errors[0]:.1%} and {errors[1]:.1%}.")


if __name__ == "__main__":
    main()
