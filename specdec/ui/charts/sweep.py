"""The charts of a sweep over draft lengths: the speed-up, and three small ones of what makes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import floor, log10
from typing import Any

import plotly.graph_objects as go

from specdec.report import sentences
from specdec.report.judge import Judgement
from specdec.report.sweep import SweepRow
from specdec.ui.charts.figures import BLUE, GREY, GRID, LINE, ORANGE, add_title, bars, coloured, styled
from specdec.ui.charts.labels import apart, multiples, round_step

ALONG = "Draft length \u03b3 (guesses per round)"
# Pixels: the axes' rectangle of the first chart and of the small ones, and below each its axis with numbers and name.
FIRST, SMALL, AXIS = 200, 110, 58
TOKENS = "Tokens per target pass", "guesses kept, and one token of the target"
KEPT = "Acceptance (% of tested guesses)", "guesses that the target kept"
COST = "Cost of a round (target passes)", "checking: one pass over all guesses (v)"
BLOCK_COST = COST[0], "checking: one pass (v); a draft is one pass too"
STEPS = (1, 2, 2.5, 3, 4, 5, 6, 10, 20)  # of a grid, times a power of ten
CURVE = "fixed \u03b3"
RIGHT = 66  # pixels right of a chart, for the names of its lines


def sweep_figure(rows: Sequence[SweepRow], best: SweepRow | None, longest: int, servers: bool = False) -> go.Figure:
    """The speed-up against the draft length: medians of the runs, with bars from the lowest to the highest run.

    ``longest``: the longest draft length of the sweep. Title and key are above the chart, so that on a phone it has the
    whole width. ``servers``: servers ran the lanes.
    """
    fixed = [(row.gamma, row) for row in rows if isinstance(row.gamma, int)]
    predicted = [(gamma, row.predicted) for gamma, row in fixed if row.predicted]
    key = [[("\u25cf median run (bar: all runs)", BLUE), *([("\u25c7 predicted", GREY)] if predicted else [])]]
    if any(row.gamma == "auto" and row.summary.gain for row in rows):
        key.append([("\u00b7\u00b7\u00b7 auto: chooses \u03b3 anew in each round", ORANGE)])
    figure = go.Figure()
    _add_gains(figure, rows, fixed, predicted, longest)
    if best and isinstance(best.gamma, int) and best.summary.gain:
        _mark_best(figure, best.gamma, best.summary.gain, longest)
    lines = [(3 * "\u00a0").join(coloured(name, colour) for name, colour in marks) for marks in key]
    _finish(figure, f"Speed-up over {sentences.plain(servers)} (times)", lines, FIRST, longest, ALONG)
    return figure.update_yaxes(showgrid=False)  # it has a grid of its own


def small_figures(rows: Sequence[SweepRow], longest: int, one_pass: bool) -> list[go.Figure]:
    """Tokens per pass, acceptance, and the cost of a round against the draft length, of the median runs.

    ``one_pass``: a draft takes one pass, whatever its length. Without our loop the cost of a round is not known, and
    not drawn. Before a draft length has run there is none.
    """
    found = [
        (row.gamma, row.judgement) for row in rows if isinstance(row.gamma, int) and row.judgement.alpha is not None
    ]
    if not found:
        return []
    tokens, kept, costs = go.Figure(), go.Figure(), go.Figure()
    _add_line(tokens, [(gamma, one.tokens) for gamma, one in found], BLUE, "circle")
    _finish(tokens, TOKENS[0], TOKENS[1:], SMALL, longest, ALONG).update_yaxes(rangemode="tozero", nticks=4)
    _add_line(kept, [(gamma, 100 * one.alpha) for gamma, one in found if one.alpha is not None], BLUE, "circle")
    _finish(kept, KEPT[0], KEPT[1:], SMALL, longest, ALONG).update_yaxes(range=[0, 104], nticks=4)
    known = [(gamma, one) for gamma, one in found if one.split and one.v and one.c is not None]
    if not known:
        return [tokens, kept]
    top = _add_costs(costs, known, longest)
    said = BLOCK_COST if one_pass else COST
    return [
        tokens,
        kept,
        _finish(costs, said[0], said[1:], SMALL, longest, ALONG).update_yaxes(range=[0, top], nticks=4),
    ]


def _finish(figure: go.Figure, title: str, lines: Sequence[str], height: int, longest: int, along: str) -> go.Figure:
    """Give a chart its style and height, with its title and further lines above it and its axis below it."""
    above = LINE * (1 + len(lines)) + 8
    styled(figure, above + height + AXIS, right=RIGHT).update_layout(margin={"t": above, "b": AXIS})
    figure.update_layout(height=above + height + AXIS)
    figure.update_xaxes(range=[-0.5, longest + 0.5], dtick=2 if longest > 8 else 1, title_text=along, title_standoff=4)
    add_title(figure, title, "<br>".join(lines), 1)
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
    y = [row.summary.gain or 0.0 for _, row in fixed]
    if predicted:
        # Hollow, and wider than the points, so that both are seen where they are at one place.
        mark = {"symbol": "diamond-open", "size": 10, "color": GREY, "line": {"width": 1.25}}
        figure.add_scatter(
            x=[gamma for gamma, _ in predicted], y=[value for _, value in predicted], mode="markers", marker=mark,
            cliponaxis=False,
        )  # fmt: skip
    figure.add_scatter(
        x=[gamma for gamma, _ in fixed], y=y, mode="lines+markers", line={"color": BLUE, "width": 2},
        marker={"size": 7}, cliponaxis=False,
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 5, "color": BLUE} | bars(gains, y),
    )  # fmt: skip
    levels = [("plain", 1.0, GREY, 2, "8px,3px")]
    auto = next((row.summary.gain for row in rows if row.gamma == "auto"), None)
    if auto:
        levels.append(("auto", auto, ORANGE, 2, "2px,3px"))
    drawn = [1.0, *([auto] if auto else []), *chain.from_iterable(gains), *(value for _, value in predicted)]
    room = 0.2 * (max(drawn) - min(drawn)) or 0.2
    low, top = max(0.0, min(drawn) - room / 2), max(drawn) + 1.4 * room
    figure.update_yaxes(range=[low, top])
    _add_grid(figure, low, top, [level for _, level, *_ in levels])
    for _, level, colour, width, dash in levels:
        figure.add_hline(y=level, line={"color": colour, "width": width, "dash": dash})
    ends = [(name, level, colour) for name, level, colour, *_ in levels] + [(CURVE, found, BLUE) for found in y[-1:]]
    _name_ends(figure, ends, longest, (low, top), FIRST)


def _add_grid(figure: go.Figure, low: float, top: float, levels: Sequence[float]) -> None:
    """The grid of the first chart. A level line is no grid line, so none of these is drawn close to one.

    Its numbers are not close to the last level line either, if another step than the usual one can do so.
    """
    near = 7 * (top - low) / FIRST  # seven pixels
    wanted = round_step((top - low) / 6)
    power = 10.0 ** floor(log10(wanted))
    steps = sorted((power * step for step in STEPS), key=lambda step: abs(log10(step / wanted)))
    choices = [ticks for step in steps if 3 <= len(ticks := multiples(low, top, step)) <= 7]
    choices.sort(key=lambda ticks: len(ticks) < 4)  # three tell little; the order within both groups stays
    ticks = next((ticks for ticks in choices if all(abs(tick - levels[-1]) > near for tick in ticks)), choices[0])
    figure.update_yaxes(tickvals=ticks, ticktext=[f"{round(tick, 6):g}" for tick in ticks])
    for tick in ticks:
        if all(abs(tick - level) > near for level in levels):
            figure.add_hline(y=tick, line={"color": GRID, "width": 1}, layer="below")


def _mark_best(figure: go.Figure, gamma: int, gain: float, longest: int) -> None:
    """Put a ring around the point, and its name at the top, above all lines."""
    ring = {"size": 15, "symbol": "circle-open", "line": {"width": 2.5, "color": BLUE}, "color": BLUE}
    figure.add_scatter(x=[gamma], y=[gain], mode="markers", marker=ring, cliponaxis=False)
    anchor = "left" if gamma < longest / 6 else "right" if gamma > 0.8 * longest else "center"
    figure.add_annotation(
        text=f"fastest: \u03b3 {gamma}", x=gamma, y=gain, ax=gamma, ay=figure.layout.yaxis.range[1], axref="x",
        ayref="y", xanchor=anchor, yanchor="top", arrowhead=0, arrowwidth=1, arrowcolor=GREY, standoff=9,
    )  # fmt: skip


def _name_ends(
    figure: go.Figure,
    ends: Sequence[tuple[str, float, str]],
    longest: int,
    bounds: tuple[float, float],
    height: int,
) -> None:
    """Put names right of lines: each with the line's last value and colour."""
    low, top = bounds
    places = apart([level for _, level, _ in ends], LINE * (top - low) / height, low, top)
    for (name, _, colour), place in zip(ends, places, strict=True):
        figure.add_annotation(
            text=coloured(name, colour), x=longest + 0.5, y=place, xanchor="left", yanchor="middle", xshift=4,
            showarrow=False,
        )  # fmt: skip


def _add_line(figure: go.Figure, found: Sequence[tuple[int, float | None]], colour: str, symbol: str) -> None:
    look: dict[str, Any] = {"line": {"color": colour, "width": 2}, "marker": {"size": 6, "symbol": symbol}}
    x, y = [gamma for gamma, _ in found], [value for _, value in found]
    figure.add_scatter(x=x, y=y, mode="lines+markers", cliponaxis=False, showlegend=False, **look)


def _add_costs(figure: go.Figure, found: Sequence[tuple[int, Judgement]], longest: int) -> float:
    """What a round costs at each draft length, in target passes over one token: checking, which is v, and drafting.

    Returns the top of the axis.
    """
    check = [(gamma, one.v or 0.0) for gamma, one in found]
    draft = [(gamma, (one.c or 0.0) * (one.draft_passes or 0)) for gamma, one in found]
    _add_line(figure, check, BLUE, "circle")
    _add_line(figure, draft, ORANGE, "square")
    top = 1.15 * max(value for _, value in check + draft)
    _name_ends(figure, [("checking", check[-1][1], BLUE), ("drafting", draft[-1][1], ORANGE)], longest, (0, top), SMALL)
    return top
