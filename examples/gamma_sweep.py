"""Find the fastest draft length for a prompt: ``python -m examples.gamma_sweep [FILE.html]``.

Needs the extra page: ``pip install ".[page]"``.

Measures our loop at several draft lengths in turns. Writes a chart of the gain over the loop without a draft, beside
what the closed form predicts (Leviathan et al. 2211.17192, Theorem 3.8). ``python -m specdec sweep`` and the page's tab
Best gamma do this for all lengths, with a verdict.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from statistics import median

import plotly.graph_objects as go

import specdec

PROMPT, GAMMAS, RUNS = "Once upon a time", (0, 1, 2, 3, 5, 8), 3


def main(path: str = "gamma_sweep.html") -> None:
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=64, ignore_eos=True)
    found = defaultdict(list)
    for run in range(RUNS + 1):  # the first run warms up and does not count
        for gamma in GAMMAS:
            lane = specdec.speculative(pair, PROMPT, gamma=gamma, params=params)
            metrics = specdec.collect(specdec.driven(lane)).metrics
            if run:
                found[gamma].append(metrics)

    one_token = median(m.verify_seconds / m.target_passes for m in found[0])
    gains, predicted = [[1.0] * RUNS], [1.0]
    for gamma in GAMMAS[1:]:
        runs = found[gamma]
        gains.append([m.tokens_per_second / loop.tokens_per_second for m, loop in zip(runs, found[0], strict=True)])
        alpha = runs[0].alpha  # greedy text: the same in each run
        c = median(m.draft_seconds / m.drafted for m in runs) / one_token
        v = median(m.verify_seconds / m.target_passes for m in runs) / one_token
        predicted.append(sum(alpha**i for i in range(gamma + 1)) / (gamma * c + v))
        print(f"γ {gamma}: {median(gains[-1]):.2f}x measured, {predicted[-1]:.2f}x predicted, {alpha:.0%} kept")

    middles = [median(each) for each in gains]
    bars = {
        "symmetric": False,
        "array": [max(each) - middle for each, middle in zip(gains, middles, strict=True)],
        "arrayminus": [middle - min(each) for each, middle in zip(gains, middles, strict=True)],
    }
    figure = go.Figure()
    figure.add_scatter(x=GAMMAS, y=middles, error_y=bars, name="measured: median, lowest and highest run")
    figure.add_scatter(x=GAMMAS, y=predicted, line={"dash": "dash"}, name="predicted by the closed form")
    figure.update_layout(
        xaxis_title="Draft length γ",
        yaxis_title="Speed-up over our loop at γ 0 (times)",
        yaxis_rangemode="tozero",
        template="plotly_white",
        legend={"y": 1.1, "orientation": "h"},
    )
    figure.write_html(path)
    print(f"The chart is in {path}.")


if __name__ == "__main__":
    main(*sys.argv[1:2])
