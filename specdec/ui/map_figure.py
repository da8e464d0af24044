"""The map of acceptance against the cost of a draft pass, as a Plotly figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from specdec.report.cost_map import Point, break_even
from specdec.ui.figures import BLUE, COLOURS, GREY, LINE, styled
from specdec.ui.labels import apart, shown

HEIGHT, PLOT = 440, 330  # pixels of the chart, and about those of its axes' rectangle
MOST_LABELS = 14
PAYS = "rgba(58, 127, 208, 0.13)"  # a tint of BLUE on either theme


def map_figure(points: Sequence[Point], v: float | None) -> go.Figure:
    """The points, and the line where the best draft length breaks even: with v = 1, and with the measured ``v`` where
    it is larger. A hollow point is one where speculation measured slower than our loop without a draft."""
    most = max(0.5, *(1.3 * point.c for point in points)) if points else 0.5
    figure = go.Figure()
    grown = v is not None and round(v, 2) > 1
    line = break_even(v if v is not None and grown else 1.0, most)
    _add_line(figure, line, {"color": BLUE, "width": 2})
    above = {"fill": "tonexty", "fillcolor": PAYS}
    _add_line(figure, [(line[0][0], 1.0), (line[-1][0], 1.0)], {"width": 0}, **above)
    _label(figure, line, 0.62, f"breaks even,<br>v = {v:.2f} (measured)" if grown else "", "right", "bottom")
    paper = break_even(1.0, most)
    if grown:
        _add_line(figure, paper, {"color": GREY, "width": 2, "dash": "6px,4px"})
    _label(figure, paper, 0.5, "breaks even, v = 1", "left", "top")
    for text, y, anchor in (("speculation pays", 100, "top"), ("it does not pay", 0, "bottom")):
        figure.add_annotation(
            text=f"<i>{text}</i>", x=most, y=y, xanchor="right", yanchor=anchor, showarrow=False, borderpad=4
        )
    _add_points(figure, points, most)
    figure.update_yaxes(title_text="Acceptance \u03b1 (% of tested guesses)", range=[0, 100], dtick=20)
    figure.update_xaxes(title_text="Cost coefficient c (draft pass / target pass)", range=[-0.02 * most, most])
    lanes = len({point.entrant for point in points})
    return styled(figure, HEIGHT, legend=lanes if lanes > 1 else 0, hover="closest")


def _add_line(figure: go.Figure, line: Sequence[tuple[float, float]], look: dict[str, Any], **more: Any) -> None:
    x, y = [c for c, _ in line], [100 * alpha for _, alpha in line]
    figure.add_scatter(x=x, y=y, mode="lines", line=look, hoverinfo="skip", showlegend=False, **more)


def _add_points(figure: go.Figure, points: Sequence[Point], most: float) -> None:
    for entrant in dict.fromkeys(point.entrant for point in points):
        found = [point for point in points if point.entrant == entrant]
        sign = entrant.row.sign or "star"
        colour = COLOURS[entrant.row.colour]
        figure.add_scatter(
            x=[point.c for point in found], y=[100 * point.alpha for point in found], mode="markers",
            name=entrant.label, showlegend=True, cliponaxis=False,
            marker={
                "size": 11, "color": colour, "line": {"width": 1.5, "color": colour},
                "symbol": [sign if point.speculation >= 1 else f"{sign}-open" for point in found],
            },
            text=[
                f"{shown(point.label)}<br>{entrant.label}<br>c {point.c:.2f}, \u03b1 {100 * point.alpha:.0f} %, "
                f"{point.speculation:.2f}x our loop at \u03b3 0"
                for point in found
            ],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    if len(points) <= MOST_LABELS:
        _name_points(figure, points, most)


def _name_points(figure: go.Figure, points: Sequence[Point], most: float) -> None:
    """A name beside each point. All of them stand at heights of their own: on a phone even those far apart in cost
    would overlap."""
    share = PLOT / 100  # pixels of 1 %
    places = apart([100 * point.alpha for point in points], LINE / share, 3, 92)
    for point, place in zip(points, places, strict=True):
        left = point.c > 0.6 * most
        figure.add_annotation(
            text=shown(point.label), x=point.c, y=100 * point.alpha, xanchor="right" if left else "left",
            ax=-16 if left else 16, ay=(100 * point.alpha - place) * share,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=GREY, standoff=6,
        )  # fmt: skip


def _label(
    figure: go.Figure, line: Sequence[tuple[float, float]], share: float, text: str, xanchor: str, yanchor: str
) -> None:
    """A label at a line that rises: above it to the left of a place, or below it to the right."""
    c, alpha = line[int(share * (len(line) - 1))]
    if text:
        figure.add_annotation(text=text, x=c, y=100 * alpha, xanchor=xanchor, yanchor=yanchor, showarrow=False)
