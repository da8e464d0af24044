"""Finished charts, as Plotly figures. Text and grid take their colours from ``colours.css``: both themes fit."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec.lanes.table import BASELINE
from specdec.measure.plan import Trial
from specdec.measure.summary import find, summarise
from specdec.report.judge import Judgement
from specdec.report.sweep import Row

# Colours of marks, with a contrast of at least 3:1 on the white page and on the dark one.
BLUE, GREY, ORANGE, TEAL = "#3a7fd0", "#7b8494", "#c2762a", "#5aa9a3"
COLOURS = {"blue": BLUE, "grey": GREY, "orange": ORANGE, "teal": TEAL}  # as the table of lanes names them


def sweep_figure(rows: Sequence[Row], best: Row | None) -> go.Figure:
    """Speed-up, tokens a pass and acceptance against the draft length: medians, bars from lowest to highest run."""
    fixed = [row for row in rows if isinstance(row.gamma, int)]
    auto = next((row for row in rows if row.gamma == "auto"), None)
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.56, 0.22, 0.22])
    x, gains = [row.gamma for row in fixed], [row.summary.gains for row in fixed]
    y = [median(found) for found in gains]
    bars = _bars(gains, y)
    figure.add_scatter(
        x=x, y=y, mode="lines+markers", name="measured", line={"color": BLUE, "width": 2}, marker={"size": 8},
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": BLUE} | bars,
        row=1, col=1,
    )  # fmt: skip
    predicted = [row for row in fixed if row.predicted]
    figure.add_scatter(
        x=[row.gamma for row in predicted], y=[row.predicted for row in predicted], mode="lines", name="closed form",
        line={"color": GREY, "width": 2, "dash": "6px,4px"}, row=1, col=1,
    )  # fmt: skip
    figure.add_hline(y=1, line={"color": GREY, "width": 1}, row=1, col=1)
    if auto:
        figure.add_hline(y=auto.summary.gain, line={"color": ORANGE, "width": 2, "dash": "2px,3px"}, row=1, col=1)
        note = {"x": -0.4, "y": auto.summary.gain, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
        figure.add_annotation(text=f"auto {auto.summary.gain:.2f}x", font={"color": ORANGE}, row=1, col=1, **note)
    if best and isinstance(best.gamma, int):
        mark = {"size": 15, "symbol": "circle-open", "line": {"width": 2.5, "color": BLUE}, "color": BLUE}
        figure.add_scatter(
            x=[best.gamma], y=[best.summary.gain], mode="markers", marker=mark, name=f"fastest, \u03b3 {best.gamma}",
            row=1, col=1,
        )  # fmt: skip
    drafted = [row for row in fixed if row.judgement.alpha is not None]
    tokens = [row.judgement.tokens for row in drafted]
    kept = [100 * alpha for row in drafted if (alpha := row.judgement.alpha) is not None]
    for place, values in ((2, tokens), (3, kept)):
        figure.add_scatter(
            x=[row.gamma for row in drafted], y=values, mode="lines+markers", showlegend=False,
            line={"color": BLUE, "width": 2}, marker={"size": 6}, row=place, col=1,
        )  # fmt: skip
    figure.update_yaxes(title_text="Speed-up over plain<br>generate (times)", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="Tokens a<br>target pass", rangemode="tozero", row=2, col=1)
    figure.update_yaxes(title_text="Acceptance<br>(%)", range=[0, 104], row=3, col=1)
    figure.update_xaxes(range=[-0.5, 16.5], dtick=2)
    figure.update_xaxes(
        title_text="Draft length \u03b3 (guesses a round)<br>points: median run, bars: lowest to highest", row=3, col=1
    )
    return _styled(figure, 620)


def waterfall_figure(found: Judgement) -> go.Figure:
    """From plain ``generate`` to speculative, in milliseconds a token; the steps add up exactly.

    Drawn from the top down, so that the steps' names are horizontal on a phone too.
    """
    names = [name.replace(" ", "<br>", 1) for name, _ in found.steps] + ["Speculative"]
    values = [1e3 * seconds for _, seconds in found.steps]
    total = sum(values)
    figure = go.Figure(
        go.Waterfall(
            y=names, x=[*values, total], orientation="h",
            measure=["absolute", *["relative"] * (len(values) - 1), "total"],
            text=[_signed(v) if 0 < i < len(values) else f"{v:.2f}" for i, v in enumerate([*values, total])],
            textposition="outside", cliponaxis=False, connector={"line": {"color": GREY, "width": 1}},
            decreasing={"marker": {"color": BLUE}}, increasing={"marker": {"color": ORANGE}},
            totals={"marker": {"color": GREY}},
        )
    )  # fmt: skip
    figure.update_xaxes(title_text="Milliseconds a token (measured)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return _styled(figure, 400, legend=False, across=True)


def benchmark_figure(trials: Sequence[Trial]) -> go.Figure:
    """Speed-up by category, each lane at its best draft length over all prompts; bars from lowest to highest run."""
    overall = [s for s in summarise(trials) if s.gains and s.entrant != BASELINE]
    lanes = {}
    for key in dict.fromkeys(summary.entrant.key for summary in overall):
        lanes[key] = max((s for s in overall if s.entrant.key == key), key=lambda s: s.gain or 0.0).entrant
    categories = list(dict.fromkeys(trial.category for trial in trials))
    by_category = {c: summarise([t for t in trials if t.category == c]) for c in categories}
    figure = go.Figure()
    for key, entrant in lanes.items():
        found = [(c, s.gains) for c in categories if (s := find(by_category[c], entrant)) and s.gains]
        middles = [median(gains) for _, gains in found]
        bars = _bars([gains for _, gains in found], middles)
        colour = COLOURS[entrant.row.colour]
        figure.add_scatter(
            # Plotly interprets markup in names, but would show the entity of a quote as it is.
            x=[escape(category, quote=False) for category, _ in found], y=middles,
            name=entrant.label, mode="markers", offsetgroup=key,
            marker={"color": colour, "size": 11, "symbol": entrant.row.sign or "star"},
            error_y={"type": "data", "symmetric": False, "thickness": 2, "width": 5, "color": colour} | bars,
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": GREY, "width": 1})
    figure.update_yaxes(title_text="Speed-up over plain generate (times)", rangemode="tozero")
    title = "Category (each lane at its best \u03b3 over all prompts)<br>points: median run, bars: lowest to highest"
    figure.update_xaxes(title_text=title, type="category")  # a category may be called "1"
    figure.update_layout(scattermode="group", scattergap=0.6)
    return _styled(figure, 400)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")


def _bars(gains: Sequence[Sequence[float]], middles: Sequence[float]) -> dict[str, list[float]]:
    """From the median up to the highest run and down to the lowest."""
    pairs = list(zip(gains, middles, strict=True))
    return {"array": [max(g) - m for g, m in pairs], "arrayminus": [m - min(g) for g, m in pairs]}


def _styled(figure: go.Figure, height: int, legend: bool = True, across: bool = False) -> go.Figure:
    """``across``: bars run from left to right, with a margin for the number beyond the longest one."""
    axis: dict[str, Any] = {"fixedrange": True, "zeroline": False, "gridcolor": "#808080", "automargin": True}
    figure.update_layout(
        height=height, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", showlegend=legend, dragmode=False,
        margin={"l": 10, "r": 44 if across else 14, "t": 36, "b": 10}, font={"size": 13}, template="none", bargap=0.35,
        hovermode="y" if across else "x",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )  # fmt: skip
    axis["title_font"] = {"size": 13}
    figure.update_xaxes(**axis | {"showgrid": across})
    figure.update_yaxes(**axis | {"showgrid": not across})
    return figure
