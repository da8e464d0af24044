"""The map of acceptance against the cost of a draft pass, as a Plotly figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb

from specdec.report.cost_map import Point, break_even, line_growth
from specdec.ui.charts.figures import BLUE, COLOURS, GREY, LINE, coloured, styled
from specdec.ui.charts.labels import apart, shown

HEIGHT, PLOT = 500, 390  # pixels: the height of the chart, and about that of its axes' rectangle
MOST_LABELS = 14
LEAST, ROOM = 0.06, 0.4  # the least width of the axis, and the room at each side as a share of the dearest point
NEAR, GAP = 0.05, 0.03  # of the width: points with names in one column, and the column's distance
NAMES = 0.2, 0.08  # of the width: a name on a phone, and on a wide screen
PAYS_NOT = ("<i>speculation does not pay</i>", "<i>speculation<br>does not pay</i>")
# The names at the ends of the lines, and pixels for them.
EVEN, BLOCKS, RIGHT = "break-even", "break-even,<br>one pass", 90
LOSES = "hollow: speculation was clearly slower"
Line = Sequence[tuple[float, float]]  # costs with acceptance rates, in small steps
PAYS = f"rgba{(*hex_to_rgb(BLUE), 0.13)}"  # light enough for both themes


def map_figure(points: Sequence[Point], growth: Mapping[int, float]) -> go.Figure:
    """Draw the points, and the line where the best draft length breaks even.

    The axis goes from the cheapest point to the dearest, with room beside them. The line takes ``line_growth`` of the
    measured v of each draft length, ``growth``. Points of block drafters among others have a line of their own. A point
    is hollow where speculation was clearly slower than our loop without a draft; the legend says so if there is one.
    """
    low, most = _span(points)
    figure = go.Figure()
    kinds = sorted({point.one_pass for point in points}) or [False]
    taken = line_growth(growth)
    line = break_even(taken, most, kinds[0])
    low = low if line[-1][0] == most else 0.0  # a line that ends before stays in view
    _add_line(figure, line, {"color": BLUE, "width": 2})
    _add_line(figure, [(c, 1.0) for c, _ in (line[0], line[-1])], {"width": 0}, fill="tonexty", fillcolor=PAYS)
    lines = {EVEN: line}
    if len(kinds) > 1:
        blocks = break_even(taken, most, True)
        _add_line(figure, blocks, {"color": GREY, "width": 2, "dash": "2px,3px"})
        lines[BLOCKS] = blocks
    _name_lines(figure, lines)
    place = {"x": most, "xanchor": "right", "showarrow": False, "borderpad": 4}
    if line[-1][1] < 0.88:  # otherwise there is no room for it
        figure.add_annotation(text="<i>speculation pays</i>", y=100, yanchor="top", **place)
    _name_loss(figure, [*lines.values()], points, (low, most), place)
    _add_points(figure, points)
    if len(points) <= MOST_LABELS:
        _name_points(figure, points, (low, most), [*lines.values()])
    figure.update_yaxes(title_text="Guesses kept, of those tested (%, \u03b1)", range=[0, 100], dtick=20)
    figure.update_xaxes(title_text="Time of a draft pass, in target passes (c)", range=[low or -0.02 * most, most])
    entries = len({point.lane_config for point in points})
    if any(point.loses for point in points):
        look = {"size": 11, "color": GREY, "symbol": "circle-open", "line": {"width": 1.5}}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=LOSES, marker=look)
        entries += 1
    return styled(figure, HEIGHT, legend=entries, hover="closest", right=RIGHT)


def _span(points: Sequence[Point]) -> tuple[float, float]:
    """The ends of the axis of costs."""
    if not points:
        return 0.0, 0.5
    costs = [point.c for point in points]
    room = max(ROOM * (max(costs) - min(costs)), ROOM * max(costs) / 2, LEAST / 2)
    low = min(costs) - room
    return (low if low > max(costs) / 4 else 0.0), max(costs) + room


def _name_lines(figure: go.Figure, lines: Mapping[str, Line]) -> None:
    """Put the name of each line right of its end."""
    ends = [line[-1] for line in lines.values()]
    places = apart([100 * alpha for _, alpha in ends], 200 * LINE / PLOT, 6, 94)
    for (name, (cost, _)), place in zip(zip(lines, ends, strict=True), places, strict=True):
        colour = GREY if name == BLOCKS else BLUE
        figure.add_annotation(
            text=coloured(name, colour), x=cost, y=place, xanchor="left", yanchor="middle", xshift=4, align="left",
            showarrow=False, borderpad=0,
        )  # fmt: skip


def _name_loss(
    figure: go.Figure,
    lines: Sequence[Line],
    points: Sequence[Point],
    span: tuple[float, float],
    place: Mapping[str, Any],
) -> None:
    """Name the region where speculation does not pay directly below the first of the lines, which bounds it.

    In two lines where one crosses another line or a point on a phone, and at the bottom without room for these.
    """
    start, most = span
    for text, wide, rows in ((PAYS_NOT[0], 0.68, 1), (PAYS_NOT[1], 0.36, 2)):
        high = 100 * (rows * LINE - 4) / PLOT
        around = [[100 * alpha for c, alpha in line if c >= most - wide * (most - start)] for line in lines]
        top = min(around[0], default=0.0)
        low = max([0.0, *(max(found) for found in around[1:] if found and max(found) < top)])
        middle = min((top + low) / 2, 94)
        beside = [100 * point.alpha for point in points if point.c > most - wide * (most - start)]
        beside += [alpha - 100 * LINE / PLOT for alpha in beside]  # a point below the line has its name below it
        if top - low > high and not any(abs(alpha - middle) < high for alpha in beside):
            figure.add_annotation(text=text, y=middle, yanchor="middle", align="right", **place)
            return
    figure.add_annotation(text=PAYS_NOT[0], y=0, yanchor="bottom", **place)


def _add_line(figure: go.Figure, line: Line, look: dict[str, Any], **more: Any) -> None:
    x, y = [c for c, _ in line], [100 * alpha for _, alpha in line]
    figure.add_scatter(x=x, y=y, mode="lines", line=look, showlegend=False, hoverinfo="skip", **more)


def _add_points(figure: go.Figure, points: Sequence[Point]) -> None:
    for config in dict.fromkeys(point.lane_config for point in points):
        found = [point for point in points if point.lane_config == config]
        sign = config.row.sign or "star"
        colour = COLOURS[config.row.colour]
        figure.add_scatter(
            x=[point.c for point in found], y=[100 * point.alpha for point in found], mode="markers",
            showlegend=False, cliponaxis=False,
            marker={
                "size": 11, "color": colour, "line": {"width": 1.5, "color": colour},
                "symbol": [f"{sign}-open" if point.loses else sign for point in found],
            },
            text=[
                f"{shown(point.label)}<br>{config.label}<br>c {point.c:.2f}, \u03b1 {100 * point.alpha:.0f} %, "
                f"{point.speculation:.2f}x our loop at \u03b3 0"
                for point in found
            ],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
        look = {"size": 11, "color": colour, "symbol": sign}  # in the legend no lane's mark is hollow
        figure.add_scatter(x=[None], y=[None], mode="markers", name=config.label, marker=look)


def _name_points(figure: go.Figure, points: Sequence[Point], span: tuple[float, float], lines: Sequence[Line]) -> None:
    """Put a name beside each point: on the right, or on the left if a line would cross it.

    All names are at different heights, because on a phone even points of very different costs would overlap. The name
    of a point below the first line is below the point, if there is room.
    """
    low, wide = span[0], span[1] - span[0]
    places = apart([100 * point.alpha for point in points], 100 * LINE / PLOT, 3, 92)
    for point, place in zip(points, places, strict=True):
        below = 100 * (point.alpha - LINE / PLOT)
        if _loses(lines[0], point) and not any(
            _crosses(line, point.c - wide / 10, point.c + wide / 10, below) for line in lines
        ):  # there it is not in the way of the region's name
            figure.add_annotation(
                text=shown(point.label), x=point.c, y=below, yanchor="middle", showarrow=False, borderpad=0
            )
            continue
        near = [other.c for other in points if abs(other.c - point.c) < NEAR * wide]
        before, after = min(near) - GAP * wide, max(near) + GAP * wide
        left = point.c > low + 0.6 * wide or _on_left(lines, before, after, span, place)
        figure.add_annotation(
            text=shown(point.label), x=point.c, y=100 * point.alpha, ay=place, ayref="y", axref="x",
            ax=before if left else after, xanchor="right" if left else "left",
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=GREY, standoff=6,
        )  # fmt: skip


def _loses(line: Line, point: Point) -> bool:
    """Whether a point is below the line."""
    return any(cost <= point.c and alpha > point.alpha for cost, alpha in line)


def _crosses(line: Line, start: float, end: float, height: float) -> bool:
    """Whether a line comes within half a line of text of ``height`` (percent) between ``start`` and ``end``."""
    half = 50 * LINE / PLOT
    return any(start <= c <= end and abs(100 * alpha - height) < half for c, alpha in line)


def _on_left(lines: Sequence[Line], before: float, after: float, span: tuple[float, float], height: float) -> bool:
    """Whether a name must be left of its point: a line would cross it on the right, and not on the left."""
    low, most = span
    for wide in ((most - low) * share for share in NAMES):
        for left, start in ((False, after), (True, before - wide)):
            if start >= low and not any(_crosses(line, start, start + wide, height) for line in lines):
                return left
    return False
