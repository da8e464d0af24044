"""The chart of speed-up and acceptance against temperature, from several results files."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec.measure.summary import Summary
from specdec.ui.charts.figures import COLOURS, GREY, LINE, bars, styled


def temperature_figure(found: Sequence[tuple[float, Summary]]) -> go.Figure:
    """Draw the speed-up over plain ``generate``, and below it the share of tested guesses that were kept.

    ``found``: temperatures and lanes, from the lowest temperature to the highest. A dashed line is the acceptance to be
    expected, the mean of the sum of min(p, q) over the tested guesses; only sampled runs record it.
    """
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.07, row_heights=[0.55, 0.45])
    rows = list(dict.fromkeys(summary.lane_config.row for _, summary in found))
    expects = False
    for row in rows:
        line = [(at, summary) for at, summary in found if summary.lane_config.row == row]
        colour = COLOURS[row.colour]
        look = {"line": {"color": colour, "width": 2}, "marker": {"size": 9, "symbol": row.sign or "star"}}
        gains = [summary.gains for _, summary in line]
        middles = [median_low(each) for each in gains]
        figure.add_scatter(
            x=[at for at, _ in line], y=middles, mode="lines+markers", name=row.label, **look, row=1, col=1,
            error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": colour}
            | bars(gains, middles),
        )  # fmt: skip
        kept = [(at, 100 * alpha) for at, summary in line if (alpha := summary.figure("alpha")) is not None]
        expected = [(at, 100 * share) for at, summary in line if (share := summary.figure("overlap")) is not None]
        figure.add_scatter(
            x=[at for at, _ in kept], y=[share for _, share in kept], mode="lines+markers", showlegend=False, **look,
            row=2, col=1,
        )  # fmt: skip
        if expected:
            figure.add_scatter(
                x=[at for at, _ in expected], y=[share for _, share in expected], mode="lines", row=2, col=1,
                name="expected: mean of \u03a3 min(p, q)", showlegend=not expects,
                line={"color": GREY, "width": 2, "dash": "6px,4px"},
            )  # fmt: skip
            expects = True
    figure.add_hline(y=1, line={"color": GREY, "width": 1}, row=1, col=1)
    figure.update_yaxes(title_text="Speed-up over plain<br>generate (times)", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="Acceptance<br>(%)", range=[0, 104], row=2, col=1)
    figure.update_xaxes(title_text="Temperature<br>points: median run, bars: lowest to highest", row=2, col=1)
    return styled(figure, 400 + LINE, legend=len(rows) + expects)
