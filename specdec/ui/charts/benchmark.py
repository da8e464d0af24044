"""The chart of a benchmark: the speed-up of each lane over all prompts, and in each category of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from re import sub
from statistics import median_low
from typing import Any, NamedTuple

import plotly.graph_objects as go

from specdec.lanes.table import BASELINE, LaneConfig
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, find, summarise
from specdec.report.benchmark import short_name
from specdec.report.numbers import factor, speedups
from specdec.ui.charts.figures import COLOURS, FAINT, GREY, LINE, NEAR, PAGE, add_title, bars, from_above, straight
from specdec.ui.charts.labels import levels, unbroken

MOST_ROWS = 24  # categories; a benchmark may have hundreds
MOST_NAME = 24  # characters of a category's name, which has a line of its own
TOP = LINE + 6  # pixels above the first row, for the name of the line of plain generate
# Pixels of a lane's row, from its top: its name, its mark, and the next row.
NAME, MARK, ROW = 6, 36, 54
# Pixels of the title above the categories, and of a category: its name, the first line of marks, and the next row.
TITLE, FIRST, REST = 4 * LINE, 34, 24
LEVEL = 19  # pixels between two lines of marks
PHONE = 290  # pixels of the axis on a phone, where marks with their numbers are closest
LETTER = 7.5  # pixels of a letter, on average
KEY = "mark: median run, bar: lowest to highest run"
NUMBER = ("number: draft length \u03b3", "(0: our loop, no draft)")


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
    whole width. The name of a lane is above its mark; that of a category is beside the line of plain generate, which
    goes through all rows.
    """
    lanes = [s for s in summarise(trials) if s.gains and s.lane_config != BASELINE]
    groups = list(dict.fromkeys(trial.category for trial in trials))
    found = [(c, _gains(lanes, [t for t in trials if t.category == c])) for c in groups[:MOST_ROWS] if len(groups) > 1]
    found = [(category, gains) for category, gains in found if gains]
    # Leaves room for a label right of the widest bar.
    drawn = [*(gain for lane in lanes for gain in lane.gains), *(gain for _, gains in found for gain in gains.values())]
    most = 1.15 * max([1.0, *drawn])
    rows = [_row(category, gains, most) for category, gains in found]
    tops = [TOP + number * ROW for number in range(len(lanes))]
    start = TOP + len(lanes) * ROW + TITLE * bool(rows)
    ends = list(accumulate((row.height for row in rows), initial=start))
    figure = go.Figure()
    for top, lane in zip(tops, lanes, strict=True):
        _add_lane(figure, lane, top, most)
    _add_rows(figure, rows, ends, most)
    figure.update_xaxes(range=[0, most])
    whole = ends[-1]
    lines = [straight("y", 0, whole, "x", 1, GREY) | {"line": {"color": GREY, "width": 2}}]
    lines += [straight("x domain", 0, 1, "y", top, FAINT) for top in [*tops[1:], *ends[1:-1]]]
    figure.update_layout(shapes=lines)  # at once, because plotly checks all of them again whenever one is added
    figure.update_yaxes(range=[whole, 0], showticklabels=False, showgrid=False)
    _add_beside_plain(figure, "plain generate, 1x", 2, most)
    figure = from_above(figure, whole, legend=0, lines=3, right=14)
    add_title(figure, "Speed-up over plain generate (times)", KEY, 1, LINE + 8)
    if rows:
        _add_lower_axis(figure)
        left_out = f"median run; the first {len(rows)} of {len(groups)}<br>" * (len(groups) > MOST_ROWS)
        title = '<b style="color: var(--sd-ink)">In each category of prompts</b>'
        said = f"{left_out or 'median run, '}{NUMBER[0]}<br>{NUMBER[1]}"
        _add_beside_plain(figure, f"{title}<br>{said}", start - TITLE + 6, most)
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


def _add_lane(figure: go.Figure, lane: Summary, top: int, most: float) -> None:
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
    # Above its mark, and wholly within the chart.
    share = middle / most
    anchor, at = ("left", min(gains)) if share < 0.35 else ("right", max(gains)) if share > 0.65 else ("center", middle)
    _add_name(figure, f"<b>{config.label}</b>", top + NAME, x=at, xanchor=anchor)


def _add_rows(figure: go.Figure, rows: Sequence[Row], tops: Sequence[int], most: float) -> None:
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
        said = f"<b>{name}</b>{NEAR}fastest: {short_name(best)}, {factor(gain)}x"
        _add_beside_plain(figure, said, top + NAME, most)


def _add_beside_plain(figure: go.Figure, text: str, top: int, most: float) -> None:
    """Add a text right of the line of plain generate, or left of it if only there is room on a phone.

    Where there is room on neither side, it is over the line.
    """
    longest = max(len(sub(r"<[^>]*>", "", line)) for line in text.split("<br>"))
    wide, left = LETTER * longest, PHONE / most
    if wide <= PHONE - left or left < PHONE / 4:
        _add_name(figure, text, top, x=1, xanchor="left", xshift=8)
    elif wide <= left:
        _add_name(figure, text, top, x=1, xanchor="right", xshift=-8)
    else:
        _add_name(figure, text, top, xref="x domain", x=0, xanchor="left")


def _add_name(figure: go.Figure, text: str, top: int, **place: Any) -> None:
    """Add a text whose first line is ``top`` pixels below the top. No line of the grid goes through it."""
    look = {"showarrow": False, "borderpad": 0, "bgcolor": PAGE, "align": "left"}
    figure.add_annotation(text=text, y=top, yanchor="top", **look, **place)
