"""Whether the sweep's choice holds: ``python tests/gamma_choice.py``.

A sweep over the example prompts names the best draft length; all lengths are then measured anew, interleaved, and the
choice is scored against the best found there. Printed beside it: how far the closed form is off.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import specdec  # noqa: E402
from specdec.cli.arguments import leave_a_core  # noqa: E402
from specdec.measure.plan import Plan
from specdec.measure.prompts import EXAMPLES, read_prompts  # noqa: E402
from specdec.measure.summary import best_gamma, find, summarise  # noqa: E402
from specdec.measure.sweep import ENTRANTS, NEW_TOKENS, RUNS, prediction_error, sweep_rows  # noqa: E402
from specdec.measure.trials import trials


def main() -> None:
    leave_a_core()
    pair = specdec.load_pair()
    params = specdec.SamplingParams(NEW_TOKENS, ignore_eos=True)
    plan = Plan(tuple(read_prompts(EXAMPLES)), ENTRANTS, params, RUNS)
    first, second = (list(filter(None, trials(pair, plan))) for _ in range(2))
    choice, fresh = best_gamma(summarise(first)), summarise(second)
    best, scored = best_gamma(fresh), find(fresh, choice.entrant)
    print(f"The sweep chose γ {choice.gamma}, {choice.spread}; fresh runs are best at γ {best.gamma}, {best.spread}.")
    print(f"There the choice reaches {scored.spread}: {scored.gain / best.gain:.3f} of the best.")
    errors = [prediction_error(sweep_rows(summarise(found))) for found in (first, second)]
    print(f"Closed form against measured, median over γ 1-8: off by {errors[0]:.1%} and {errors[1]:.1%}.")


if __name__ == "__main__":
    main()
