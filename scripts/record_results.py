"""Records the results that the tabs show first, on this machine: ``python -m scripts.record_results``.

The embedded pair: a sweep over the page's first example, a benchmark of all examples, and the test of losslessness,
each with the page's default settings. Record them on an idle machine, and again after a change of the pair, the passes
or the format of results.
"""

from __future__ import annotations

from specdec.cli.arguments import leave_a_core
from specdec.events import SamplingParams
from specdec.lanes.table import lane_configs
from specdec.measure.kept import Begun, kept_trials
from specdec.measure.losslessness import LosslessnessResult, self_test
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, NAME, Choice, read_prompts
from specdec.measure.results.file import measured_on
from specdec.measure.results.format import Results, figures_only
from specdec.measure.results.losslessness import losslessness_text
from specdec.measure.sweep import CONFIGS, NEW_TOKENS, RUNS
from specdec.models.loading import load_pair
from specdec.models.pair import Pair
from specdec.report.losslessness import losslessness_headline
from specdec.report.sweep import overall
from specdec.ui.tabs.results_io import RECORDED


def main() -> None:
    leave_a_core()
    pair, examples = load_pair(), tuple(read_prompts(EXAMPLES))
    params = SamplingParams(NEW_TOKENS, seed=0, ignore_eos=True)
    lanes = lane_configs(("generate", "speculative", "speculative:0"), (3, 5, 8))
    plans = {
        "sweep": Plan(examples[:1], CONFIGS, params, RUNS, Choice(NAME)),
        "bench": Plan(examples, lanes, params, RUNS, Choice(NAME)),
    }
    for key, plan in plans.items():
        results = _measured(pair, plan)
        said = overall(results.trials, plan)
        if said.judgement.is_about:
            raise SystemExit(f"Not written: {said.headline}")
        _write(f"{key}.jsonl", figures_only(results))
        print(said.headline)
    about = measured_on(pair)
    found = next(step for step in self_test(pair) if isinstance(step, LosslessnessResult))
    _write("lossless.json", losslessness_text({"about": about, "findings": found}))
    print(losslessness_headline(found))


def _measured(pair: Pair, plan: Plan) -> Results:
    found: list[Trial] = []
    for step in kept_trials(pair, plan):
        if isinstance(step, Begun):
            about = step.lines.about
        elif step is not None:
            found.append(step)
    return Results(about, plan, found)


def _write(name: str, text: str) -> None:
    (RECORDED / f"recorded_{name}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
