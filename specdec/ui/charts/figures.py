"""Makes finished charts as Plotly figures. Text and grid take their colours from ``colours.css``, for both themes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, chain
from statistics import median_low
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec.lanes.table import BASELINE
from specdec.measure.losslessness import Common
from specdec.measure.plan import Trial
from specdec.measure.summary import find, summarise
from specdec.report.judge import Judgement
from specdec.report.losslessness import sample_name
from specdec.report.numbers import factor
from specdec.report.sweep import SweepRow
from specdec.ui.charts.labels import apart, shown

# Colours of marks in both themes: their contrast is at least 3:1 on the white page and on the dark one.
BLUE, GREY, ORANGE, TEAL = "#3a7fd0", "#7b8494", "#c2762a", "#4a948e"
TEXT, LINE = 14, 20  # pixels: the size of text, and the height of a line
MOST_DOTS = 120  # of a row
FAINT = "rgba(128, 128, 128, 0.25)"
NEAR = "\u00a0\u00a0\u00a0"  # between a mark and the number right of it
# Of words, for which these are too pale: those of the page, which differ between the themes.
INKS = {BLUE: "blue", GREY: "muted", ORANGE: "correction-mark"}
COLOURS = {"blue": BLUE, "grey": GREY, "orange": ORANGE, "teal": TEAL}  # by the names in the table of lanes


def sweep_figure(rows: Sequence[SweepRow], best: SweepRow | None, longest: int, one_pass: bool) -> go.Figure:
    """Speed-up, tokens per pass, acceptance and cost of a round against the draft length: medians of the runs.

    Bars go from the lowest to the highest run. ``longest``: the longest draft length of the sweep. ``one_pass``: a
    draft takes one pass, whatever its length. Without our loop the cost of a round is not known, and not drawn.
    """
    fixed, x = [row for row in rows if isinstance(row.gamma, int)], [r.gamma for r in rows if isinstance(r.gamma, int)]
    drafted = [row for row in fixed if row.judgement.alpha is not None]
    costs = [row for row in drafted if row.judgement.split and row.judgement.v and row.judgement.c is not None]
    heights = [0.46, 0.18, 0.18, 0.18] if costs else [0.56, 0.22, 0.22]
    figure = make_subplots(rows=len(heights), shared_xaxes=True, vertical_spacing=0.05, row_heights=heights)
    gains, end = [row.summary.gains for row in fixed], longest + 0.5
    y = [median_low(found) for found in gains]
    figure.add_scatter(
        x=x, y=y, mode="lines+markers", line={"color": BLUE, "width": 2}, marker={"size": 8},
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": BLUE} | bars(gains, y),
        row=1, col=1,
    )  # fmt: skip
    # Names stand right of all lines, or right of a line that has not come so far yet.
    last = end if x and x[-1] == longest else x[-1] if x else 0
    ends = [("plain, 1x", end, 1.0, GREY), *([("<b>\u25cf measured</b>", last, y[-1], BLUE)] if fixed else [])]
    figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "8px,3px"}, row=1, col=1)
    predicted = [(gamma, row.predicted) for gamma, row in zip(x, fixed, strict=True) if row.predicted]
    if predicted:
        dashed = {"color": GREY, "width": 2, "dash": "6px,4px"}
        at, values = [gamma for gamma, _ in predicted], [value for _, value in predicted]
        # Its hollow marks are seen around those of the measured line, where the lines are one.
        hollow = {"symbol": "diamond-open", "size": 10, "color": GREY, "line": {"width": 1.5}}
        figure.add_scatter(x=at, y=values, mode="lines+markers", line=dashed, marker=hollow, row=1, col=1)
        ends.append(("\u25c7 predicted", last if at[-1] == x[-1] else at[-1], values[-1], GREY))
    auto = next((row.summary.gain for row in rows if row.gamma == "auto"), None)
    if auto:
        figure.add_hline(y=auto, line={"color": ORANGE, "width": 2, "dash": "2px,3px"}, row=1, col=1)
        ends.append((f"auto {auto:.2f}x", end, auto, ORANGE))
    drawn = [1.0, *([auto] if auto else []), *chain.from_iterable(gains), *(value for _, value in predicted)]
    room = 0.2 * (max(drawn) - min(drawn)) or 0.2
    low, top = max(0.0, min(drawn) - room / 2), max(drawn) + 1.4 * room
    _label_ends(figure, ends, low, top)
    if best and isinstance(best.gamma, int) and best.summary.gain:
        _mark_best(figure, best.gamma, best.summary.gain, top, longest)
    tokens = [row.judgement.tokens for row in drafted]
    kept = [100 * alpha for row in drafted if (alpha := row.judgement.alpha) is not None]
    for place, shares in ((2, tokens), (3, kept)):
        _add_small(figure, [row.gamma for row in drafted], shares, BLUE, "circle", place)
    figure.update_yaxes(title_text="Speed-up over plain<br>generate (times)", range=[low, top], row=1, col=1)
    figure.update_yaxes(title_text="Tokens per<br>target pass", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title_text="Acceptance<br>(%)", range=[0, 104], row=3, col=1)
    if costs:
        _add_costs(figure, [row.judgement for row in costs], last, one_pass)
    figure.update_xaxes(range=[-0.5, end], dtick=2 if longest > 8 else 1)
    figure.update_xaxes(showticklabels=True, row=1, col=1)  # the others may be below the first screen
    figure.update_xaxes(
        title_text="Draft length \u03b3 (guesses per round)<br>points: median run, bars: lowest to highest",
        row=len(heights),
        col=1,
    )
    return styled(figure, 620 if costs else 500, right=104)


def _add_small(
    figure: go.Figure, x: Sequence[Any], y: Sequence[float | None], colour: str, symbol: str, row: int
) -> None:
    """Add a line with marks to a chart below the first one."""
    look = {"line": {"color": colour, "width": 2}, "marker": {"size": 6, "symbol": symbol}}
    figure.add_scatter(x=x, y=y, mode="lines+markers", row=row, col=1, **look)


def _add_costs(figure: go.Figure, found: Sequence[Judgement], last: float, one_pass: bool) -> None:
    """What a round costs at each draft length, in target passes over one token: checking, which is v, and drafting.

    ``last``: where the names of the lines stand.
    """
    x = [one.gamma for one in found]
    lines = {
        "\u25cf check (v)": (BLUE, "circle", [one.v or 0.0 for one in found]),
        "\u25a0 draft, 1 pass" if one_pass else "\u25a0 draft": (
            ORANGE,
            "square",
            [(one.c or 0.0) * (one.draft_passes or 0) for one in found],
        ),
    }
    top = 1.15 * max(chain.from_iterable(values for *_, values in lines.values()))
    for colour, symbol, values in lines.values():
        _add_small(figure, x, values, colour, symbol, 4)
    ends = [(name, last, values[-1], colour) for name, (colour, _, values) in lines.items()]
    _label_ends(figure, ends, 0.0, top, 4, 80)
    figure.update_yaxes(title_text="Cost in<br>target passes", range=[0, top], nticks=4, row=4, col=1)


def _label_ends(
    figure: go.Figure,
    ends: Sequence[tuple[str, Any, float, str]],
    low: float,
    top: float,
    row: int = 1,
    pixels: int = 210,
) -> None:
    """Put a name at the right end of each line of a chart, whose values go from ``low`` to ``top`` over ``pixels``.

    ``ends``: for each line its name, the place of its end, and its colour, which its name has too.
    """
    places = apart([y for _, _, y, _ in ends], LINE * (top - low) / pixels, low, top)
    for (name, x, _, colour), place in zip(ends, places, strict=True):
        note = {"xanchor": "left", "yanchor": "middle", "showarrow": False, "xshift": 8}
        text = f'<span style="color: var(--sd-{INKS[colour]})">{name}</span>'
        figure.add_annotation(text=text, x=x, y=place, row=row, col=1, **note)


def _mark_best(figure: go.Figure, gamma: int, gain: float, top: float, longest: int) -> None:
    """Put a ring around the point, and its name at ``top``, above all lines."""
    ring = {"size": 15, "symbol": "circle-open", "line": {"width": 2.5, "color": BLUE}, "color": BLUE}
    figure.add_scatter(x=[gamma], y=[gain], mode="markers", marker=ring, row=1, col=1)
    anchor = "left" if gamma < longest / 6 else "right" if gamma > 0.8 * longest else "center"
    figure.add_annotation(
        text=f"fastest: \u03b3 {gamma}", x=gamma, y=gain, ax=gamma, ay=top, axref="x", ayref="y", row=1, col=1,
        xanchor=anchor, yanchor="top", arrowhead=0, arrowwidth=1, arrowcolor=GREY, standoff=9,
    )  # fmt: skip


def waterfall_figure(found: Judgement) -> go.Figure:
    """From plain ``generate`` to speculative, in milliseconds per token; the steps add up exactly.

    Drawn from top to bottom, so that the steps' names are horizontal on a phone too.
    """
    names = [shown(name) + NEAR for name in [*(name for name, _ in found.steps), "Speculative"]]
    values = [1e3 * seconds for _, seconds in found.steps]
    total = sum(values)
    ends = list(accumulate(values))
    figure = go.Figure(
        go.Waterfall(
            y=names, x=[*values, total], orientation="h",
            measure=["absolute", *["relative"] * (len(values) - 1), "total"],
            textposition="none", connector={"line": {"color": GREY, "width": 1}},
            decreasing={"marker": {"color": BLUE}}, increasing={"marker": {"color": ORANGE}},
            totals={"marker": {"color": GREY}},
        )
    )  # fmt: skip
    # Right of every bar, because left of one a number would overlap the steps' names.
    figure.add_scatter(
        y=names, x=[max(end, end - value) for end, value in zip(ends, values, strict=True)] + [total], mode="text",
        text=[NEAR + (_signed(v) if 0 < i < len(values) else f"{v:.2f}") for i, v in enumerate([*values, total])],
        textposition="middle right", cliponaxis=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(title_text="Milliseconds per token (measured)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return styled(figure, 400, across=True, right=48)


def benchmark_figure(trials: Sequence[Trial]) -> go.Figure:
    """A row for each lane at each draft length: its speed-up over all prompts, with a bar from lowest to highest run.

    Drawn from top to bottom, so that the lanes' names are horizontal on a phone too. Where there is more than one
    category of prompts, small dots below the bar are the medians of the categories, which the table names.
    """
    lanes = [s for s in summarise(trials) if s.gains and s.lane_config != BASELINE]
    groups = list(dict.fromkeys(trial.category for trial in trials))
    categories = [(c, summarise([t for t in trials if t.category == c])) for c in groups[:MOST_DOTS] if len(groups) > 1]
    figure = go.Figure()
    widest = 1.0
    for place, lane in enumerate(lanes):
        config, gains, middle = lane.lane_config, lane.gains, median_low(lane.gains)
        colour = COLOURS[config.row.colour]
        found = [(c, s.gain) for c, group in categories if (s := find(group, config)) and s.gain]
        figure.add_scatter(
            x=[gain for _, gain in found], y=[place + 0.26] * len(found), mode="markers", showlegend=False,
            marker={"color": colour, "size": 6, "symbol": "circle"}, cliponaxis=False,
            customdata=[f"{shown(category)}: {gain:.2f}x" for category, gain in found],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=[middle], y=[place], name=config.label, mode="markers", showlegend=False,
            marker={"color": colour, "size": 12, "symbol": config.row.sign or "star"},
            error_x={"type": "data", "symmetric": False, "thickness": 2, "width": 6, "color": colour}
            | bars([gains], [middle]),
            hovertemplate=f"{config.label}: {middle:.2f}x ({min(gains):.2f}\u2013{max(gains):.2f})<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=[max(gains)], y=[place], mode="text", text=[f"{NEAR}<b>{factor(middle)}x</b>"],  # as in the headline
            textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
        )  # fmt: skip
        widest = max(widest, *gains, *(gain for _, gain in found))
    dots = ", dots: categories" if categories else ""
    title = f"Speed-up over plain generate (times)<br>marks: median run, bars: all runs{dots}"
    figure.update_xaxes(title_text=title, range=[0, 1.15 * widest])  # leaves room for a label right of the widest bar
    lines = [_line("y domain", 0, 1, "x", 1, GREY)]
    lines += [_line("x domain", 0, 1, "y", at - 0.5, FAINT) for at in range(1, len(lanes))]
    figure.update_layout(shapes=lines)  # at once, because plotly checks all of them again whenever one is added
    # The draft length stays in one piece, at the beginning of a line.
    lines_of = (shown(lane.lane_config.label.replace("\u03b3 ", "\u03b3\u00a0")).split("<br>") for lane in lanes)
    names = ["<br>".join(line + NEAR for line in parts) for parts in lines_of]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5])
    figure.add_annotation(
        text="plain generate", x=1, y=0, yref="y domain", xanchor="left", yanchor="top", showarrow=False, xshift=-6
    )
    figure = _from_above(figure, 52 * len(names) + LINE, legend=0, lines=3, right=64).update_layout(margin_b=10 + LINE)
    return figure.update_layout(hovermode="closest")


def samples_figure(found: Sequence[Common], draws: int, lane: str) -> go.Figure:
    """The counts of the most frequent continuations in the three samples of the test of losslessness.

    Each sample has ``draws`` continuations; ``lane`` is the key of the tested lane.

    The bars of a sample are hollow, filled or hatched, so that they differ without colours too. A grey band behind the
    second bar, around the count of the first one, holds its end in about 19 of 20 cases if both samples have one
    distribution.
    """
    names = [shown(common.text) for common in found]
    clear = "rgba(0, 0, 0, 0)"
    hatched = {"color": clear, "pattern": {"shape": "/", "size": 6, "fgcolor": ORANGE}}
    figure = go.Figure()
    for name, counts, colour, look in (
        ("plain generate", [common.plain for common in found], GREY, {"color": clear}),
        (sample_name(lane), [common.lossless for common in found], BLUE, {"color": BLUE}),
        ("speculative, lossy", [common.lossy for common in found], ORANGE, hatched),
    ):
        figure.add_bar(
            y=list(range(len(names))), x=counts, name=name, orientation="h", text=counts, textposition="outside",
            textfont={"size": TEXT}, constraintext="none", cliponaxis=False,
            marker=look | {"line": {"color": colour, "width": 1.5}},
        )  # fmt: skip
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name="chance: 19 of 20 blue bars end here",
        marker={"symbol": "square", "size": 13, "color": FAINT, "line": {"color": GREY, "width": 1.5}},
    )  # fmt: skip
    edge = {"color": GREY, "width": 1}  # the fill alone is too faint to be seen by everybody
    for place, common in enumerate(found):
        low, high = chance_band(common.plain, common.lossless, draws)
        across = {"yref": "y", "y0": place - 0.125, "y1": place + 0.125}  # behind the second bar of three
        figure.add_shape(type="rect", x0=low, x1=high, **across, fillcolor=FAINT, layer="below", line={"width": 0})
        figure.add_shape(type="rect", x0=low, x1=high, **across, line=edge)  # both ends are seen over the bar too
    figure.update_xaxes(title_text=f"Times drawn, of {draws:,} continuations", rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=[name + NEAR for name in names], autorange="reversed"
    )
    rows = 60 * len(names) + 2 * LINE
    figure = _from_above(figure, rows, legend=0, lines=2, right=36)
    # In one line where there is room. Where there is none, the chart gives its lines of the height.
    above = 1 + (2 * LINE + 28) / rows
    legend = {"orientation": "h", "x": 0, "y": above, "yref": "paper", "yanchor": "bottom"}
    return figure.update_layout(bargap=0.25, showlegend=True, legend=legend)


def chance_band(one: int, other: int, draws: int) -> tuple[float, float]:
    """Where the count ``other`` lies beside the count ``one`` in about 19 of 20 cases, if both have one distribution.

    Both are counts of ``draws`` independent draws, so their difference has the variance 2 n p (1 - p). p is estimated
    from both. The normal approximation is coarse for counts below five.
    """
    share = (one + other) / (2 * draws)
    wide = 1.96 * math.sqrt(2 * draws * share * (1 - share))
    return max(0.0, one - wide), min(float(draws), one + wide)


def _from_above(figure: go.Figure, rows: int, legend: int, lines: int, right: int) -> go.Figure:
    """``styled``, with the legend and the axis above the rows, where a reader sees them first.

    ``rows``: the height of the rows in pixels. ``legend``: the number of its entries. ``lines``: the lines of text of
    the axis, its numbers included.
    """
    axis = LINE * lines + 10
    styled(figure, 40 + axis + rows, legend=legend, across=True, right=right)
    figure.update_layout(legend={"yref": "container", "y": 1, "yanchor": "top"}, margin_t=LINE * legend + 14 + axis)
    return figure.update_xaxes(side="top")


def _line(along: str, start: float, end: float, across: str, at: float, colour: str) -> dict[str, Any]:
    """A line from ``start`` to ``end`` of one axis, at a place of the other one."""
    one, other = along[0], across[0]
    ends = {f"{one}ref": along, f"{one}0": start, f"{one}1": end, f"{other}ref": across, f"{other}0": at}
    return ends | {f"{other}1": at, "type": "line", "line": {"color": colour, "width": 1}}


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")


def bars(gains: Sequence[Sequence[float]], middles: Sequence[float]) -> dict[str, list[float]]:
    """Error bars from the median to the highest and the lowest run."""
    pairs = list(zip(gains, middles, strict=True))
    return {"array": [max(g) - m for g, m in pairs], "arrayminus": [m - min(g) for g, m in pairs]}


def styled(
    figure: go.Figure, height: int, legend: int = 0, across: bool = False, right: int = 14, hover: str = "x"
) -> go.Figure:
    """Give a figure the page's style.

    ``legend``: the number of entries, one on each line above the chart, in addition to ``height``. ``across``: values
    increase from left to right. ``right``: pixels right of the chart, for labels.
    """
    axis: dict[str, Any] = {"fixedrange": True, "zeroline": False, "gridcolor": "#808080", "automargin": True}
    above = LINE * legend + 14
    figure.update_layout(
        height=height + LINE * legend, showlegend=legend > 0, dragmode=False, template="none", bargap=0.35,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"size": TEXT},
        margin={"l": 10, "r": right, "t": above, "b": 10}, hovermode="y" if across else hover,
        legend={
            "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "traceorder": "normal",
            "itemclick": False, "itemdoubleclick": False,
        },
    )  # fmt: skip
    axis["title_font"] = {"size": TEXT}
    figure.update_xaxes(**axis | {"showgrid": across})
    figure.update_yaxes(**axis | {"showgrid": not across})
    return figure
