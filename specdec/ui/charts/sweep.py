"""The charts of a sweep over draft lengths, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil, floor, log10
from statistics import median_low
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec.report.judge import Judgement
from specdec.report.sweep import SweepRow
from specdec.ui.charts.figures import BLUE, GREY, LINE, ORANGE, add_title, bars, coloured, styled
from specdec.ui.charts.labels import apart

ALONG = "Draft length \u03b3 (guesses per round)"
# Pixels: the axes' rectangle of the first chart and of the others, and below each its axis with numbers and name.
FIRST, SMALL, AXIS = 200, 76, 58
STEPS = (1, 2, 2.5, 3, 4, 5, 6, 10, 20)  # of a grid, times a power of ten
GRID = "rgba(128, 128, 128, 0.16)"  # about as the grid of the other charts, in both themes
CURVE = "fixed \u03b3"
RIGHT = 62  # pixels right of the charts, for the names of the curve and of the two level lines


class Chart(NamedTuple):
    """A chart of the column: its title, the lines of its key (marks with their colours), and its height in pixels."""

    title: str
    key: Sequence[Sequence[tuple[str, str]]] = ()
    height: int = SMALL

    @property
    def above(self) -> int:
        """The pixels of its title and its key."""
        return LINE * (1 + len(self.key)) + 8


def sweep_figure(rows: Sequence[SweepRow], best: SweepRow | None, longest: int, one_pass: bool) -> go.Figure:
    """Speed-up, tokens per pass, acceptance and cost of a round against the draft length: medians of the runs.

    Bars go from the lowest to the highest run. ``longest``: the longest draft length of the sweep. ``one_pass``: a
    draft takes one pass, whatever its length. Without our loop the cost of a round is not known, and not drawn.

    Titles and keys are above the charts, so that on a phone the charts have the whole width.
    """
    fixed = [(row.gamma, row) for row in rows if isinstance(row.gamma, int)]
    drafted = [(gamma, row.judgement) for gamma, row in fixed if row.judgement.alpha is not None]
    costs = [(gamma, j) for gamma, j in drafted if j.split and j.v and j.c is not None]
    predicted = [(gamma, row.predicted) for gamma, row in fixed if row.predicted]
    key = [[("\u25cf median run (bar: all runs)", BLUE), *([("\u25c7 predicted", GREY)] if predicted else [])]]
    if any(row.gamma == "auto" and row.summary.gain for row in rows):
        key.append([("\u00b7\u00b7\u00b7 auto: chooses \u03b3 anew in each round", ORANGE)])
    charts = [
        Chart("Speed-up over plain generate (times)", key, FIRST),
        Chart("Tokens per target pass"),
        Chart("Acceptance (% of tested guesses)"),
    ]
    if costs:
        draft = "\u25a0 draft, 1 pass" if one_pass else "\u25a0 draft"
        charts.append(Chart("Cost of a round (target passes)", [[("\u25cf check (v)", BLUE), (draft, ORANGE)]]))
    figure = make_subplots(rows=len(charts), shared_xaxes="all")
    _add_gains(figure, rows, fixed, predicted, longest)
    if best and isinstance(best.gamma, int) and best.summary.gain:
        _mark_best(figure, best.gamma, best.summary.gain, longest)
    _add_small(figure, 2, [(gamma, j.tokens) for gamma, j in drafted], BLUE, "circle")
    _add_small(figure, 3, [(gamma, 100 * j.alpha) for gamma, j in drafted if j.alpha is not None], BLUE, "circle")
    figure.update_yaxes(rangemode="tozero", nticks=4, row=2, col=1)
    figure.update_yaxes(range=[0, 104], row=3, col=1)
    if costs:
        _add_costs(figure, costs)
    figure.update_xaxes(
        range=[-0.5, longest + 0.5], dtick=2 if longest > 8 else 1, showticklabels=True, title_text=ALONG
    )
    figure.update_xaxes(title_standoff=4)
    # The first chart has a grid of its own.
    return _one_below_the_other(figure, charts).update_yaxes(showgrid=False, row=1, col=1)


def _one_below_the_other(figure: go.Figure, charts: Sequence[Chart]) -> go.Figure:
    """Give each chart its height, with its title and key above it and its axis below it."""
    whole = sum(chart.above + chart.height + AXIS for chart in charts)
    styled(figure, whole, right=RIGHT).update_layout(height=whole, margin={"t": 0, "b": 0})
    top = 0
    for row, chart in enumerate(charts, 1):
        start = top + chart.above
        top = start + chart.height + AXIS
        high, low = 1 - start / whole, 1 - (start + chart.height) / whole
        figure.update_yaxes(domain=[low, high], row=row, col=1)
        lines = [(3 * "\u00a0").join(coloured(name, colour) for name, colour in marks) for marks in chart.key]
        add_title(figure, chart.title, "<br>".join(lines), high)
    return figure


def _add_gains(
    figure: go.Figure,
    rows: Sequence[SweepRow],
    fixed: Sequence[tuple[int, SweepRow]],
    predicted: Sequence[tuple[int, float]],
    longest: int,
) -> None:
    """The first chart: the speed-up at each draft length, the predicted one, and the level lines of plain and auto."""
    gains = [row.summary.gains for _, row in fixed]
    y = [median_low(found) for found in gains]
    if predicted:
        # Hollow, and wider than the points, so that both are seen where they are at one place.
        mark = {"symbol": "diamond-open", "size": 12, "color": GREY, "line": {"width": 1.5}}
        figure.add_scatter(
            x=[gamma for gamma, _ in predicted], y=[value for _, value in predicted], mode="markers", marker=mark,
            cliponaxis=False, row=1, col=1,
        )  # fmt: skip
    figure.add_scatter(
        x=[gamma for gamma, _ in fixed], y=y, mode="lines+markers", line={"color": BLUE, "width": 2},
        marker={"size": 8}, cliponaxis=False, row=1, col=1,
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": BLUE} | bars(gains, y),
    )  # fmt: skip
    levels = [("plain", 1.0, GREY, 2, "8px,3px")]
    auto = next((row.summary.gain for row in rows if row.gamma == "auto"), None)
    if auto:
        levels.append(("auto", auto, ORANGE, 2, "2px,3px"))
    drawn = [1.0, *([auto] if auto else []), *chain.from_iterable(gains), *(value for _, value in predicted)]
    room = 0.2 * (max(drawn) - min(drawn)) or 0.2
    low, top = max(0.0, min(drawn) - room / 2), max(drawn) + 1.4 * room
    figure.update_yaxes(range=[low, top], row=1, col=1)
    _add_grid(figure, low, top, [level for _, level, *_ in levels])
    for _, level, colour, width, dash in levels:
        figure.add_hline(y=level, line={"color": colour, "width": width, "dash": dash}, row=1, col=1)
    ends = [(name, level, colour) for name, level, colour, *_ in levels] + [(CURVE, found, BLUE) for found in y[-1:]]
    places = apart([level for _, level, _ in ends], LINE * (top - low) / FIRST, low, top)
    for (name, _, colour), place in zip(ends, places, strict=True):
        figure.add_annotation(
            text=coloured(name, colour), x=longest + 0.5, y=place, xanchor="left", yanchor="middle", xshift=4,
            showarrow=False, row=1, col=1,
        )  # fmt: skip


def _add_grid(figure: go.Figure, low: float, top: float, levels: Sequence[float]) -> None:
    """The grid of the first chart. A level line is no grid line, so none of these is drawn close to one.

    Its numbers are not close to the last level line either, if another step than the usual one can do so.
    """
    near = 7 * (top - low) / FIRST  # seven pixels
    wanted = _step((top - low) / 6)
    power = 10.0 ** floor(log10(wanted))
    steps = sorted((power * step for step in STEPS), key=lambda step: abs(log10(step / wanted)))
    choices = [ticks for step in steps if 3 <= len(ticks := _ticks(low, top, step)) <= 7]
    ticks = next((ticks for ticks in choices if all(abs(tick - levels[-1]) > near for tick in ticks)), choices[0])
    figure.update_yaxes(tickvals=ticks, ticktext=[f"{round(tick, 6):g}" for tick in ticks], row=1, col=1)
    for tick in ticks:
        if all(abs(tick - level) > near for level in levels):
            figure.add_hline(y=tick, line={"color": GRID, "width": 1}, layer="below", row=1, col=1)


def _ticks(low: float, top: float, step: float) -> list[float]:
    return [step * n for n in range(ceil(low / step), floor(top / step) + 1)]


def _step(least: float) -> float:
    """The smallest of 1, 2 and 5, times a power of ten, that is not below ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * 0.999)


def _mark_best(figure: go.Figure, gamma: int, gain: float, longest: int) -> None:
    """Put a ring around the point, and its name at the top, above all lines."""
    ring = {"size": 15, "symbol": "circle-open", "line": {"width": 2.5, "color": BLUE}, "color": BLUE}
    figure.add_scatter(x=[gamma], y=[gain], mode="markers", marker=ring, cliponaxis=False, row=1, col=1)
    anchor = "left" if gamma < longest / 6 else "right" if gamma > 0.8 * longest else "center"
    figure.add_annotation(
        text=f"fastest: \u03b3 {gamma}", x=gamma, y=gain, ax=gamma, ay=figure.layout.yaxis.range[1], axref="x",
        ayref="y", row=1, col=1, xanchor=anchor, yanchor="top", arrowhead=0, arrowwidth=1, arrowcolor=GREY, standoff=9,
    )  # fmt: skip


def _add_small(
    figure: go.Figure, row: int, found: Sequence[tuple[int, float | None]], colour: str, symbol: str
) -> None:
    """Add a line with marks to a chart below the first one."""
    look: dict[str, Any] = {"line": {"color": colour, "width": 2}, "marker": {"size": 6, "symbol": symbol}}
    x, y = [gamma for gamma, _ in found], [value for _, value in found]
    figure.add_scatter(x=x, y=y, mode="lines+markers", cliponaxis=False, row=row, col=1, **look)


def _add_costs(figure: go.Figure, found: Sequence[tuple[int, Judgement]]) -> None:
    """What a round costs at each draft length, in target passes over one token: checking, which is v, and drafting."""
    check = [(gamma, one.v or 0.0) for gamma, one in found]
    draft = [(gamma, (one.c or 0.0) * (one.draft_passes or 0)) for gamma, one in found]
    _add_small(figure, 4, check, BLUE, "circle")
    _add_small(figure, 4, draft, ORANGE, "square")
    top = 1.15 * max(value for _, value in check + draft)
    figure.update_yaxes(range=[0, top], nticks=4, row=4, col=1)
