"""The chart of a benchmark: the speed-up of each lane."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import plotly.graph_objects as go

from specdec.lanes.table import BASELINE
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, find, summarise
from specdec.report.numbers import factor
from specdec.ui.charts.figures import COLOURS, FAINT, GREY, LINE, NEAR, add_title, bars, from_above, straight
from specdec.ui.charts.labels import shown, unbroken

MOST_DOTS = 120  # of a row
# Pixels of a row, from its top: the lane's name, its mark, the dots of the categories, their names, and the next row.
NAME, MARK, DOTS, ENDS = 6, 38, 58, 66
ROW, ROW_WITH_DOTS = 58, 94
LETTER = 0.022  # of the axis on a phone: the width of a letter


def benchmark_figure(trials: Sequence[Trial]) -> go.Figure:
    """A row for each lane at each draft length: its speed-up over all prompts, with a bar from lowest to highest run.

    Where there is more than one category of prompts, small dots below the bar are the medians of the categories. The
    lowest and the highest have names; the table names all. A lane's name is above its bar, so that on a phone the bars
    have the whole width.
    """
    lanes = [s for s in summarise(trials) if s.gains and s.lane_config != BASELINE]
    groups = list(dict.fromkeys(trial.category for trial in trials))
    categories = [(c, summarise([t for t in trials if t.category == c])) for c in groups[:MOST_DOTS] if len(groups) > 1]
    dots = [
        [(s.gain, c) for c, group in categories if (s := find(group, lane.lane_config)) and s.gain] for lane in lanes
    ]
    # Leaves room for a label right of the widest bar.
    drawn = [*(gain for lane in lanes for gain in lane.gains), *(gain for row in dots for gain, _ in row)]
    most = 1.15 * max([1.0, *drawn])
    height = ROW_WITH_DOTS if categories else ROW
    figure = go.Figure()
    for number, (lane, found) in enumerate(zip(lanes, dots, strict=True)):
        _add_lane(figure, lane, number * height)
        if found:
            _add_dots(figure, found, COLOURS[lane.lane_config.row.colour], number * height, most)
    figure.update_xaxes(range=[0, most])
    tops = [number * height for number in range(len(lanes))]
    # The line of plain generate leaves out the lanes' names.
    lines = [straight("y", top + MARK - 12, top + height, "x", 1, GREY) for top in tops]
    lines += [straight("x domain", 0, 1, "y", top, FAINT) for top in tops[1:]]
    figure.update_layout(shapes=lines)  # at once, because plotly checks all of them again whenever one is added
    whole = height * len(lanes)
    figure.update_yaxes(range=[whole, 0], showticklabels=False, showgrid=False)
    figure.add_annotation(
        text="plain generate", x=1, y=0, yref="y domain", xanchor="left", yanchor="top", showarrow=False, xshift=-6
    )
    figure = from_above(figure, whole + LINE, legend=0, lines=3, right=14).update_layout(margin_b=10 + LINE)
    key = "marks: median run, bars: all runs" + ", dots: categories" * bool(categories)
    add_title(figure, "Speed-up over plain generate (times)", key, 1, LINE + 8)
    return figure.update_layout(hovermode="closest")


def _add_lane(figure: go.Figure, lane: Summary, top: int) -> None:
    """Add the name of a lane, its mark with its bar, and its speed-up. ``top``: where its row begins."""
    config, gains, middle = lane.lane_config, lane.gains, median_low(lane.gains)
    colour = COLOURS[config.row.colour]
    figure.add_scatter(
        x=[middle], y=[top + MARK], name=config.label, mode="markers", showlegend=False,
        marker={"color": colour, "size": 12, "symbol": config.row.sign or "star"},
        error_x={"type": "data", "symmetric": False, "thickness": 2, "width": 6, "color": colour}
        | bars([gains], [middle]),
        hovertemplate=f"{config.label}: {middle:.2f}x ({min(gains):.2f}\u2013{max(gains):.2f})<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[max(gains)], y=[top + MARK], mode="text", text=[f"{NEAR}<b>{factor(middle)}x</b>"],  # as in the headline
        textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    figure.add_annotation(
        text=f"<b>{config.label}</b>", xref="x domain", x=0, y=top + NAME, xanchor="left", yanchor="top",
        showarrow=False, borderpad=0,
    )  # fmt: skip


def _add_dots(figure: go.Figure, found: Sequence[tuple[float, str]], colour: str, top: int, most: float) -> None:
    """Add a dot for each category, and below the dots the names of the lowest and the highest one."""
    figure.add_scatter(
        x=[gain for gain, _ in found], y=[top + DOTS] * len(found), mode="markers", showlegend=False, cliponaxis=False,
        marker={"color": colour, "size": 7, "symbol": "circle"},
        customdata=[f"{shown(category)}: {gain:.2f}x" for gain, category in found],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    (low, lowest), (high, highest) = min(found), max(found)  # of two alike, those with the first and the last name
    names = [(low / most, unbroken(lowest)), (high / most, unbroken(highest))]
    (_, left_ends), (right_begins, _) = (_span(at, name) for at, name in names)
    if left_ends + LETTER > right_begins:
        names = [((low + high) / 2 / most, f"{names[0][1]} \u2026 {names[1][1]}")]
    for at, name in names:
        start, end = _span(at, name)
        figure.add_annotation(
            text=name, x=at * most, y=top + ENDS, yanchor="top", showarrow=False, borderpad=0,
            xanchor="left" if start == at else "right" if end == at else "center",
        )  # fmt: skip


def _span(at: float, name: str) -> tuple[float, float]:
    """Where a name begins and ends on a phone, in shares of the axis. It begins or ends at ``at``, if that is close to
    an edge, and else its middle is there.
    """
    wide = LETTER * len(name)
    if at < wide / 2:
        return at, at + wide
    return (at - wide, at) if at > 1 - wide / 2 else (at - wide / 2, at + wide / 2)
