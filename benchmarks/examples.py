"""Measures what each example of the page gains: ``python -m benchmarks.examples``.

The settings are those of the page: the embedded pair, greedy, up to 128 tokens, γ 5, and a text ends at its EOS. Plain
``generate``, our loop without a draft and speculative decoding run in turns. Puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from benchmarks.document import table, write
from specdec.cli.arguments import leave_a_core
from specdec.events import SamplingParams
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.results.file import measured_on
from specdec.measure.summary import find, summarise
from specdec.measure.trials import trials
from specdec.models.loading import load_pair
from specdec.report import numbers
from specdec.report.judge import Judgement, judge

GAMMA, TOKENS = 5, 128
SPECULATIVE = LaneConfig("speculative", GAMMA)
HEAD = (
    "example", "tokens", "acceptance", "tokens a pass", "over plain `generate`", "our loop over plain", "speculation",
    "repeated 4-grams",
)  # fmt: skip


def judged(found: Iterable[Trial]) -> Judgement:
    """The trials of one prompt, judged as a race is."""
    summary = find(summarise(found), SPECULATIVE)
    assert summary is not None
    return judge(summary.sides, GAMMA)


def row(name: str, found: list[Trial]) -> list[str]:
    """A line of the table."""
    said, ids = judged(found), next(trial.token_ids for trial in found if trial.lane_config == SPECULATIVE)
    low, high = said.spread or (0.0, 0.0)
    return [
        name,
        str(len(ids)),
        numbers.percent(said.alpha),
        numbers.number(said.tokens, 2),
        f"{numbers.times_or_none(said.gain)} ({low:.2f}\u2013{high:.2f})",
        numbers.times_or_none(said.engine),
        numbers.times_or_none(said.speculation),
        numbers.percent(repeated_ngrams(ids)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.examples", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    leave_a_core()
    pair, items = load_pair(), tuple(read_prompts(EXAMPLES))
    plan = Plan(items, (BASELINE, LOOP, SPECULATIVE), SamplingParams(TOKENS), runs)
    found = list(filter(None, trials(pair, plan)))
    rows = [row(item.name, [trial for trial in found if trial.prompt == item.name]) for item in items]
    machine = measured_on(pair)["machine"]
    text = f"""## The page's examples

The embedded pair, greedy, up to {TOKENS} tokens, \u03b3 {GAMMA}; {numbers.runs(runs)} in turns on {machine["cpu"]},
medians with (lowest\u2013highest). A text ends at its end-of-text token, which the tables of
128 tokens for each prompt ignore. The factor over plain `generate` is that of our loop without a draft, times what
speculation gains over our loop.

```bash
python -m benchmarks.examples --runs {runs}
```

"""
    write("examples", text + table(HEAD, rows))


if __name__ == "__main__":
    main()
