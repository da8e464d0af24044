"""The chart of servers under load."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec.report.load import LoadRow
from specdec.ui.charts.figures import BLUE, GREY, LINE, ORANGE, TEAL, bars, styled
from specdec.ui.charts.labels import shown

_LOOKS = ((GREY, "square"), (BLUE, "star"), (ORANGE, "diamond"), (TEAL, "circle"))  # the plain server is the first


def load_figure(rows: Sequence[LoadRow]) -> go.Figure:
    """Tokens per second of all calls together against calls at once, a line for each server.

    Points are of the run in the table, bars go from the lowest to the highest of all runs.
    """
    figure = go.Figure()
    names = list(dict.fromkeys(row.server for row in rows))
    for place, name in enumerate(names):
        line = [row for row in rows if row.server == name]
        colour, sign = _LOOKS[place % len(_LOOKS)]
        middles = [row.rate for row in line]
        figure.add_scatter(
            x=[str(row.at_once) for row in line], y=middles, mode="lines+markers", name=shown(name),
            line={"color": colour, "width": 2}, marker={"size": 9, "symbol": sign, "color": colour},
            error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": colour}
            | bars([row.rates for row in line], middles),
        )  # fmt: skip
    figure.update_xaxes(
        title_text="Calls at once<br>points: the run in the table, bars: lowest to highest", type="category"
    )
    figure.update_yaxes(title_text="Tokens per second,<br>all calls together", rangemode="tozero")
    return styled(figure, 280 + LINE, legend=len(names))
