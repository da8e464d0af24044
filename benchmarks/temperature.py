"""Measures acceptance and speed against temperature: ``python -m benchmarks.temperature``.

The embedded pair writes 128 tokens of each example prompt at temperatures from 0 to 1.5, in turns. The table has the
speed-up over plain ``generate``, the part from speculation, c, v (docs/metrics.md), acceptance, the acceptance expected
by the sum of min(p, q), and the tokens per target pass. Speed-ups are medians (lowest-highest) over the runs. Puts the
table into docs/performance.md.
"""

from __future__ import annotations

from statistics import median

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import COLUMNS, Turn, asked_runs, cells, in_turns
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.report import numbers

TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
GAMMA = 5


def main() -> None:
    runs = asked_runs(__doc__)
    pair = specdec.load_pair()
    params = {t: specdec.SamplingParams(128, temperature=t, seed=0, ignore_eos=True) for t in TEMPERATURES}
    turns = {f"{t:g}": Turn(pair, (GAMMA,), some) for t, some in params.items()}
    rows = []
    for (name, _), lane in in_turns(turns, read_prompts(EXAMPLES), runs).items():
        expected = [side.lane.overlap for side in lane.sides if side.lane.overlap is not None]
        length = numbers.number(lane.figure("mean_acceptance_length"), 2)
        rows.append([name, *cells(lane), numbers.percent(median(expected)) if expected else "", length])
    about = f"`python -m benchmarks.temperature --runs {runs}`: γ {GAMMA}, 128 tokens of each example prompt.\n\n"
    write("temperature", about + table(("Temperature", *COLUMNS, "expected", "tokens a target pass"), rows))


if __name__ == "__main__":
    main()
