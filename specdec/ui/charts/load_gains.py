"""The chart of a pair's computed gains under load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specdec.report import numbers
from specdec.report.load import LoadGain
from specdec.ui.charts.figures import BLUE, GREY, LINE, NEAR, ORANGE, TEAL, bars, styled
from specdec.ui.charts.labels import apart

COLOURS, SIGNS = (BLUE, ORANGE, TEAL, GREY), ("circle", "diamond", "square", "star", "triangle-up")
HEIGHT, PLOT = 300, 200  # pixels: of a panel, and about that of its axes' rectangle
STEP = 0.07  # from a line's marks to those of the next line, as a share of the distance of two values
PAYS = "pays above 1x"
MARKS, LIMIT = "points: median run, bars: lowest to highest", "dashed: at the limit of this machine"


class Panel(NamedTuple):
    """What is along a panel, the title of that axis, what each line is for, and a line's name."""

    along: str
    title: str
    lines: str
    name: str


BY_CONTEXT = Panel("context", "Context (cached tokens of each call)", "at_once", "{} at once")
BY_LOAD = Panel("at_once", "Calls at once", "context", "{} tokens")


def gains_figure(best: Sequence[LoadGain]) -> go.Figure:
    """Gain over plain decoding against the context, and against calls at once; ``best`` as ``best_gains`` gives it.

    Points are medians of the runs, bars go from the lowest to the highest. A dashed line has the gains at the limit of
    the machine. What has a single value is not drawn along an axis, unless both have.
    """
    panels = [panel for panel in (BY_CONTEXT, BY_LOAD) if len(_values(best, panel.along)) > 1] or [BY_LOAD]
    limits = [gain.limit for gain in best if gain.limit is not None]
    drawn = [1.0, *chain.from_iterable(gain.gains for gain in best), *limits]
    room = 0.08 * (max(drawn) - min(drawn)) or 0.1
    low, top = max(0.0, min(drawn) - room), max(drawn) + room
    figure = make_subplots(rows=len(panels), vertical_spacing=0.16)
    for row, panel in enumerate(panels, 1):
        _add_panel(figure, best, panel, row, (low, top))
    reading = "<br>".join([panels[-1].title, MARKS, *([LIMIT] if limits else [])])
    figure.update_xaxes(title_text=reading, row=len(panels), col=1)
    figure.update_yaxes(title_text="Computed gain over<br>plain decoding (times)", range=[low, top])
    return styled(figure, HEIGHT * len(panels) + 40, right=124, hover="closest")


def _values(best: Sequence[LoadGain], field: str) -> list[int]:
    return sorted({getattr(gain, field) for gain in best})


def _add_panel(
    figure: go.Figure, best: Sequence[LoadGain], panel: Panel, row: int, bounds: tuple[float, float]
) -> None:
    """Add the lines of a panel, and their marks with their names at its right edge."""
    best = sorted(best, key=attrgetter(panel.along))
    values, kinds = _values(best, panel.along), _values(best, panel.lines)
    names: list[tuple[str, dict[str, Any]]] = [(PAYS, {"opacity": 0})]
    ends = [1.0]
    for number, kind in enumerate(kinds):
        line = [gain for gain in best if getattr(gain, panel.lines) == kind]
        look: dict[str, Any] = {
            "size": 8,
            "symbol": SIGNS[number % len(SIGNS)],
            "color": COLOURS[number % len(COLOURS)],
        }
        aside = STEP * (number - (len(kinds) - 1) / 2)  # bars at one place would hide each other
        _add_line(figure, line, [values.index(getattr(gain, panel.along)) + aside for gain in line], look, row)
        names.append((panel.name.format(kind), look))
        ends.append(line[-1].gain)
    figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "8px,3px"}, row=row, col=1)
    low, top = bounds
    right = len(values) - 0.7
    places = apart(ends, LINE * (top - low) / PLOT, low, top)
    for (name, look), place in zip(names, places, strict=True):
        figure.add_scatter(
            x=[right], y=[place], mode="markers+text", marker=look, text=[NEAR + name], textposition="middle right",
            cliponaxis=False, hoverinfo="skip", row=row, col=1,
        )  # fmt: skip
    figure.update_xaxes(
        title_text=panel.title, title_standoff=8, tickvals=list(range(len(values))), ticktext=list(map(str, values)),
        range=[-0.3, right], row=row, col=1,
    )  # fmt: skip


def _add_line(figure: go.Figure, line: Sequence[LoadGain], x: Sequence[float], look: dict[str, Any], row: int) -> None:
    colour, middles = look["color"], [gain.gain for gain in line]
    figure.add_scatter(
        x=x, y=middles, mode="lines+markers", line={"color": colour, "width": 2}, marker=look,
        error_y={"type": "data", "symmetric": False, "thickness": 1.5, "width": 4, "color": colour}
        | bars([gain.gains for gain in line], middles),
        text=list(map(_read_out, line)), hovertemplate="%{text}<extra></extra>", row=row, col=1,
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=[gain.limit for gain in line], mode="lines", line={"color": colour, "width": 1, "dash": "3px,3px"},
        hoverinfo="skip", row=row, col=1,
    )  # fmt: skip


def _read_out(gain: LoadGain) -> str:
    """What a point says when the pointer is on it."""
    load = f"{gain.context} tokens, {gain.at_once} at once"
    limit = "" if gain.limit is None else f"<br>at the limit: {numbers.times_or_none(gain.limit)}"
    return f"{load}<br>\u03b3 {gain.gamma}: {numbers.times(gain.gains)}{limit}"
