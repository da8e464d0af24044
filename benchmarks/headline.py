"""Measures the table of the README: ``python -m benchmarks.headline``.

The lanes and draft lengths of ``python -m specdec bench --gammas 3 5 8``, on the embedded pair and the example prompts:
128 greedy tokens each, without an early end. Prints the table with what follows from it, and writes both into README.md
and docs/performance.md.
"""

from __future__ import annotations

import specdec
from benchmarks.document import PERFORMANCE, ROOT, table, write
from benchmarks.in_turns import asked_runs
from specdec.lanes.table import LaneConfig, lane_configs
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.results.file import measured_on
from specdec.measure.summary import Summary, find, summarise
from specdec.measure.trials import trials
from specdec.report import numbers
from specdec.report.judge import judge

GAMMAS, TOKENS = (3, 5, 8), 128
COLUMNS = ("Lane", "γ", "over plain `generate`", "guesses kept", "tokens a target pass", "same text")


def row(summary: Summary) -> list[str]:
    alpha, length = summary.figure("alpha"), summary.figure("mean_acceptance_length")
    return [
        summary.lane_config.row.choice,
        "" if summary.gamma is None else str(summary.gamma),
        numbers.times(summary.gains),
        "" if alpha is None else numbers.percent(alpha),
        numbers.number(length, 2),
        f"{summary.same} of {summary.compared}",
    ]


def shares(found: list[Trial]) -> str:
    """What both shares are at γ 5, and how much faster that is than assisted generation."""
    ours, theirs = (LaneConfig(lane, 5) for lane in ("speculative", "assisted"))
    said = judge(find(summarise(found), ours).sides, 5)
    rival = find(summarise(found, theirs), ours)
    return (
        f"In the median run at γ 5 our loop gains {said.engine:.2f}x and speculation {said.speculation:.2f}x. A draft "
        f"pass costs {said.c:.2f} target\npasses (c), and checking six tokens costs {said.v:.2f} (v). "
        f"Speculative decoding runs at {numbers.times(rival.gains)}\nthe speed of transformers' assisted generation at "
        "γ 5.\n"
    )


def main() -> None:
    runs = asked_runs(__doc__)
    pair = specdec.load_pair()
    configs = lane_configs(("generate", "speculative:0", "speculative", "assisted"), GAMMAS)
    params = specdec.SamplingParams(TOKENS, seed=0, ignore_eos=True)
    items = tuple(read_prompts(EXAMPLES))
    found = list(filter(None, trials(pair, Plan(items, configs, params, runs))))
    machine = measured_on(pair)["machine"]
    about = (
        f"`python -m benchmarks.headline --runs {runs}` on {machine['cpu']}, {machine['threads']} thread: the embedded "
        f"pair, {len(items)} example\nprompts, {TOKENS} greedy tokens each; lanes in turns, medians with "
        "(lowest\u2013highest). The time to the first token is left\nout.\n\n"
    )
    text = about + table(COLUMNS, map(row, summarise(found))) + "\n" + shares(found)
    write("headline", text, ROOT / "README.md", PERFORMANCE)


if __name__ == "__main__":
    main()
