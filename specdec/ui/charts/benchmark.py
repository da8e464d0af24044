"""The chart of a benchmark: the speed-up of each lane over all prompts, and in each category of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import median_low
from typing import NamedTuple

import plotly.graph_objects as go

from specdec.lanes.table import BASELINE, LaneConfig
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, find, summarise
from specdec.report.benchmark import short_name
from specdec.report.numbers import factor, speedups
from specdec.ui.charts.figures import COLOURS, FAINT, GREY, LINE, NEAR, add_title, bars, from_above, straight
from specdec.ui.charts.labels import levels, unbroken

MOST_ROWS = 24  # categories; a benchmark may have hundreds
MOST_NAME = 24  # characters of a category's name, which has a line of its own
# Pixels of a lane's row, from its top: its name, its mark, and the next row.
NAME, MARK, ROW = 6, 38, 58
# Pixels of the title above the categories, and of a category: its name, the first line of marks, and the next row.
TITLE, FIRST, REST = 3 * LINE, 34, 24
LEVEL = 19  # pixels between two lines of marks
PHONE = 290  # pixels of the axis on a phone, where marks with their numbers are closest
KEY = "mark: median run, bar: lowest to highest run"
NUMBER = "number: draft length \u03b3 (0: our loop, no draft)"


class Row(NamedTuple):
    """A category: its name, each lane's speed-up in it, and the line of the row in which that mark is."""

    category: str
    gains: dict[LaneConfig, float]
    lines: dict[LaneConfig, int]

    @property
    def height(self) -> int:
        return FIRST + LEVEL * max(self.lines.values()) + REST


def benchmark_figure(trials: Sequence[Trial]) -> go.Figure:
    """A row for each lane at each draft length: its speed-up over all prompts, with a bar from lowest to highest run.

    Where there is more than one category of prompts, each has a row below with a mark for each lane, the median run.
    The number beside a mark is the lane's draft length. Names are above the marks, so that on a phone these have the
    whole width.
    """
    lanes = [s for s in summarise(trials) if s.gains and s.lane_config != BASELINE]
    groups = list(dict.fromkeys(trial.category for trial in trials))
    found = [(c, _gains(lanes, [t for t in trials if t.category == c])) for c in groups[:MOST_ROWS] if len(groups) > 1]
    found = [(category, gains) for category, gains in found if gains]
    # Leaves room for a label right of the widest bar.
    drawn = [*(gain for lane in lanes for gain in lane.gains), *(gain for _, gains in found for gain in gains.values())]
    most = 1.15 * max([1.0, *drawn])
    rows = [_row(category, gains, most) for category, gains in found]
    tops = [number * ROW for number in range(len(lanes))]
    start = len(lanes) * ROW + TITLE * bool(rows)
    ends = list(accumulate((row.height for row in rows), initial=start))
    figure = go.Figure()
    for top, lane in zip(tops, lanes, strict=True):
        _add_lane(figure, lane, top)
    _add_rows(figure, rows, ends)
    figure.update_xaxes(range=[0, most])
    # The line of plain generate leaves out the names.
    lines = [straight("y", top + MARK - 12, top + ROW, "x", 1, GREY) for top in tops]
    lines += [straight("y", top + FIRST - 10, end, "x", 1, GREY) for top, end in zip(ends[:-1], ends[1:], strict=True)]
    lines += [straight("x domain", 0, 1, "y", top, FAINT) for top in [*tops[1:], *ends[1:-1]]]
    figure.update_layout(shapes=lines)  # at once, because plotly checks all of them again whenever one is added
    whole = ends[-1]
    figure.update_yaxes(range=[whole, 0], showticklabels=False, showgrid=False)
    figure.add_annotation(
        text="plain generate", x=1, y=0, yref="y domain", xanchor="left", yanchor="top", showarrow=False, xshift=-6,
        yshift=-LINE * bool(rows),  # below the lower axis
    )  # fmt: skip
    figure = from_above(figure, whole + LINE, legend=0, lines=3, right=14).update_layout(margin_b=10 + LINE)
    add_title(figure, "Speed-up over plain generate (times)", KEY, 1, LINE + 8)
    if rows:
        _add_lower_axis(figure)
        left_out = f"; the first {len(rows)} of {len(groups)}" * (len(groups) > MOST_ROWS)
        title = f"In each category of prompts (median run{left_out})"
        add_title(figure, title, NUMBER, 1 - start / whole)
    return figure.update_layout(hovermode="closest")


def _add_lower_axis(figure: go.Figure) -> None:
    """Repeat the axis below, because the rows are many."""
    figure.add_scatter(x=[None], y=[None], xaxis="x2", showlegend=False, hoverinfo="skip")
    axis = figure.layout.xaxis.to_plotly_json() | {"side": "bottom", "overlaying": "x", "showgrid": False}
    figure.update_layout(xaxis2=axis, margin_b=figure.layout.margin.b + LINE, height=figure.layout.height + LINE)


def _gains(lanes: Sequence[Summary], trials: Sequence[Trial]) -> dict[LaneConfig, float]:
    """The speed-up of each lane over these trials. A lane without one is left out."""
    here = summarise(trials)
    configs = [lane.lane_config for lane in lanes]
    return {config: s.gain for config in configs if (s := find(here, config)) and s.gain}


def _row(category: str, gains: dict[LaneConfig, float], most: float) -> Row:
    """A row in which no mark with its number is over another one, not even on a phone."""
    wide = 16 + 8 * max(len(_number(config)) for config in gains)  # pixels of a mark and its number
    found = levels([gain * PHONE / most for gain in gains.values()], wide)
    return Row(category, gains, dict(zip(gains, found, strict=True)))


def _number(config: LaneConfig) -> str:
    """The draft length of a lane, short enough for a place beside its mark."""
    return "" if config.gamma is None else str(config.gamma)[:4]


def _add_lane(figure: go.Figure, lane: Summary, top: int) -> None:
    """Add the name of a lane, its mark with its bar, and its speed-up. ``top``: where its row begins."""
    config, gains, middle = lane.lane_config, lane.gains, median_low(lane.gains)
    colour = COLOURS[config.row.colour]
    figure.add_scatter(
        x=[middle], y=[top + MARK], name=config.label, mode="markers", showlegend=False,
        marker={"color": colour, "size": 12, "symbol": config.row.sign or "star"},
        error_x={"type": "data", "symmetric": False, "thickness": 2, "width": 6, "color": colour}
        | bars([gains], [middle]),
        hovertemplate=f"{config.label}: {speedups(gains)}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[max(gains)], y=[top + MARK], mode="text", text=[f"{NEAR}<b>{factor(middle)}x</b>"],  # as in the headline
        textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    _add_name(figure, f"<b>{config.label}</b>", top)


def _add_rows(figure: go.Figure, rows: Sequence[Row], tops: Sequence[int]) -> None:
    """Add the categories: the name of each with its fastest lane, and below it a mark for each lane."""
    shown = [unbroken(row.category, MOST_NAME) for row in rows]
    for config in dict.fromkeys(config for row in rows for config in row.gains):
        here = [at for at, row in enumerate(rows) if config in row.gains]
        gains = [rows[at].gains[config] for at in here]
        figure.add_scatter(
            x=gains, y=[tops[at] + FIRST + LEVEL * rows[at].lines[config] for at in here],
            mode="markers+text", text=[f"\u00a0{_number(config)}"] * len(here), textposition="middle right",
            marker={"color": COLOURS[config.row.colour], "size": 10, "symbol": config.row.sign or "star"},
            customdata=[f"{shown[at]}, {config.label}: {factor(gain)}x" for at, gain in zip(here, gains, strict=True)],
            hovertemplate="%{customdata}<extra></extra>", showlegend=False, cliponaxis=False,
        )  # fmt: skip
    for name, row, top in zip(shown, rows, tops, strict=False):
        best, gain = max(row.gains.items(), key=lambda found: found[1])
        _add_name(figure, f"<b>{name}</b>{NEAR}fastest: {short_name(best)}, {factor(gain)}x", top)


def _add_name(figure: go.Figure, text: str, top: int) -> None:
    figure.add_annotation(
        text=text, xref="x domain", x=0, y=top + NAME, xanchor="left", yanchor="top", showarrow=False, borderpad=0
    )
