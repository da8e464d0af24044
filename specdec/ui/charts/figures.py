"""The style of finished charts, and the chart of the steps to a gain. Text and grid take the colours of the theme."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from specdec.report.judge import Judgement
from specdec.ui.charts.labels import shown

# Colours of marks in both themes: their contrast is at least 3:1 on the white page and on the dark one.
BLUE, GREY, ORANGE, TEAL = "#3a7fd0", "#7b8494", "#c2762a", "#4a948e"
TEXT, LINE = 14, 20  # pixels: the size of text, and the height of a line
FAINT = "rgba(128, 128, 128, 0.25)"
PAGE = "#ffffff"  # behind a text; the style puts the page's own in its place
NEAR = "\u00a0\u00a0\u00a0"  # between a mark and the number right of it
GRID = "rgba(128, 128, 128, 0.16)"  # about as the grid that Plotly draws, in both themes
# Of words, for which these are too pale: those of the page, which differ between the themes.
INKS = {BLUE: "blue", GREY: "muted", ORANGE: "correction-mark"}
COLOURS = {"blue": BLUE, "grey": GREY, "orange": ORANGE, "teal": TEAL}  # by the names in the table of lanes


def waterfall_figure(found: Judgement) -> go.Figure:
    """From plain ``generate`` to speculative, in milliseconds per token; the steps add up exactly.

    Drawn from top to bottom, so that the steps' names are horizontal on a phone too.
    """
    steps = [*(name for name, _ in found.steps), "Speculative"]
    names = ["<br>".join(line + NEAR for line in shown(name).split("<br>")) for name in steps]
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


def from_above(figure: go.Figure, rows: int, legend: int, lines: int, right: int) -> go.Figure:
    """``styled``, with the legend and the axis above the rows, where a reader sees them first.

    ``rows``: the height of the rows in pixels. ``legend``: the number of its entries. ``lines``: the lines of text of
    the axis, its numbers included.
    """
    axis = LINE * lines + 10
    styled(figure, 40 + axis + rows, legend=legend, across=True, right=right)
    figure.update_layout(legend={"yref": "container", "y": 1, "yanchor": "top"}, margin_t=LINE * legend + 14 + axis)
    return figure.update_xaxes(side="top")


def straight(along: str, start: float, end: float, across: str, at: float, colour: str) -> dict[str, Any]:
    """A line from ``start`` to ``end`` of one axis, at a place of the other one."""
    one, other = along[0], across[0]
    ends = {f"{one}ref": along, f"{one}0": start, f"{one}1": end, f"{other}ref": across, f"{other}0": at}
    return ends | {f"{other}1": at, "type": "line", "line": {"color": colour, "width": 1}}


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")


def add_title(figure: go.Figure, title: str, more: str, at: float, pixels: int = 4) -> None:
    """Put a bold title, and below it a further line if there is ``more``, above a chart.

    ``at``: the top of the chart, a share of the figure's height. ``pixels``: the distance from there.
    """
    text = f'<b style="color: var(--sd-ink)">{title}</b>' + f"<br>{more}" * bool(more)
    figure.add_annotation(
        text=text, x=0, y=at, xref="paper", yref="paper", xanchor="left", yanchor="bottom", align="left",
        showarrow=False, borderpad=0, yshift=pixels,
    )  # fmt: skip


def coloured(name: str, colour: str) -> str:
    """A name in the colour of its marks, in the shade of the theme that is readable as text."""
    return f'<span style="color: var(--sd-{INKS[colour]})">{name}</span>'


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
