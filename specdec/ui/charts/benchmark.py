"""The chart of a benchmark: the speed-up of each lane over all prompts, and in each category of prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil
from re import sub
from typing import Any, NamedTuple

import plotly.graph_objects as go

from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, find, summarise
from specdec.report import sentences
from specdec.report.benchmark import short_name
from specdec.report.numbers import factor, speedups
from specdec.ui.charts.figures import (
    COLOURS,
    FAINT,
    GREY,
    GRID,
    LINE,
    NEAR,
    PAGE,
    add_title,
    bars,
    from_above,
    straight,
)
from specdec.ui.charts.labels import multiples, round_step, shown, unbroken

MOST_ROWS = 24  # categories; a benchmark may have hundreds
MOST_NAME = 24  # characters of a category's name where a pointer shows it
TOP = LINE + 6  # pixels above the first row of each part, for the name of the line of plain generate
ROOM = 10  # pixels of a row above and below its name
# Pixels of the title above the categories and of a line of their legend; from the top of a category to its first line
# of marks, between two of these lines, and from the last one to the next row.
TITLE, KEYS, FIRST, LEVEL, REST = 2 * LINE + 16, LINE + 2, 18, 15, 18
PHONE = 210  # pixels of the axis on a phone
SIGN = 44  # pixels of an entry of the legend without its words
LETTER = 7.5  # pixels of a letter, on average
KEY = "mark: the run in the table, bar: lowest to highest run"
# The draft lengths of a lane differ by shape, those of a lane with a mark of its own by filling.
SHAPES, FILLINGS = ("star", "diamond", "x", "pentagon", "hourglass"), ("", "-open", "-dot", "-open-dot")


class Row(NamedTuple):
    """A category: its name, and each lane's speed-up in it."""

    category: str
    gains: dict[LaneConfig, float]


def benchmark_figure(trials: Sequence[Trial], servers: bool = False) -> go.Figure:
    """A row for each lane at each draft length: its speed-up over all prompts, with a bar from lowest to highest run.

    Where there is more than one category of prompts, each has a row below with a mark for each lane, the median run,
    and the figure of the fastest. A lane's mark is in the same line of each row, so no mark is over another one. A
    legend above them says which mark is which lane. Names are left of the axis; the line of the plain lane goes
    through all rows. ``servers``: servers ran the lanes.
    """
    lanes = [s for s in summarise(trials) if s.gains and s.lane_config != BASELINE]
    groups = list(dict.fromkeys(trial.category for trial in trials))
    rows = [Row(c, _gains(lanes, [t for t in trials if t.category == c])) for c in groups[:MOST_ROWS]]
    rows = [row for row in rows if row.gains] if len(groups) > 1 else []
    # Leaves room for a label right of the widest bar.
    drawn = [*(gain for lane in lanes for gain in lane.gains), *(gain for row in rows for gain in row.gains.values())]
    most = 1.15 * max([1.0, *drawn])
    signs = _signs([lane.lane_config for lane in lanes])
    names = [_name(lane.lane_config.label) for lane in lanes]
    tops = list(accumulate((2 * ROOM + LINE * len(lines) for lines in names), initial=TOP))
    keys = tops[-1] + TITLE  # where the legend begins
    entry = ceil(LETTER * max((len(short_name(lane.lane_config)) for lane in lanes), default=0))
    start = keys + KEYS * ceil(len(lanes) / max(1, PHONE // (entry + SIGN))) if rows else tops[-1]
    high = FIRST + LEVEL * (len(lanes) - 1) + REST  # a row
    begin = start + TOP * bool(rows)
    ends = list(range(begin, begin + high * len(rows) + 1, high))
    whole = ends[-1]
    figure = go.Figure()
    middles = [(one + other) / 2 for one, other in [*pairwise(tops), *pairwise(ends)]]
    for at, lane in zip(middles, lanes, strict=False):
        _add_lane(figure, lane, at, signs[lane.lane_config])
    _add_rows(figure, rows, ends, signs)
    ticks = multiples(0, most, round_step(most / 8))
    figure.update_xaxes(range=[0, most], tickvals=ticks)
    spans = [(0, tops[-1]), *([(start, whole)] if rows else [])]  # no line goes through title and legend
    lines = [straight("y", *span, "x", 1, GREY) | {"line": {"color": GREY, "width": 2}} for span in spans]
    lines += [straight("y", *span, "x", tick, GRID) | {"layer": "below"} for span in spans for tick in ticks]
    lines += [straight("x domain", 0, 1, "y", top, FAINT) for top in [*tops[1:-1], *ends[1:-1]]]
    figure.update_layout(shapes=lines)  # at once, because plotly checks all of them again whenever one is added
    texts = ["<br>".join(f"<b>{line}</b>{NEAR}" for line in lines) for lines in names]
    texts += ["<br>".join(f"<b>{line}</b>{NEAR}" for line in shown(row.category).split("<br>")) for row in rows]
    figure.update_yaxes(range=[whole, 0], tickvals=middles, ticktext=texts, showgrid=False)
    plain = sentences.plain(servers)
    for top, _ in spans:
        _add_beside_plain(figure, f"{plain.removeprefix('the ')}, 1x", top, most)
    left = ceil(LETTER * max((len(line) for text in texts for line in _words(text).split("<br>")), default=0))
    figure = from_above(figure, whole, legend=0, lines=3, right=30).update_layout(margin_l=left)
    figure.update_xaxes(showgrid=False)  # it has a grid of its own
    add_title(figure, f"Speed-up over {plain} (times)", KEY, 1, LINE + 8)
    if rows:
        _add_lower_axis(figure)
        first = f"the first {len(rows)} of {len(groups)}; " * (len(groups) > MOST_ROWS)
        title = '<b style="color: var(--sd-ink)">Speed-up in each category of prompts (times)</b>'
        add_title(figure, "", f"{title}<br>{first}median run, with the figure of the fastest", 1 - keys / whole, 0)
        legend = {"orientation": "h", "x": 0, "y": 1 - keys / whole, "yref": "paper", "yanchor": "top"}
        figure.update_layout(showlegend=True, legend=legend | {"entrywidth": entry})
    # Titles begin above the names, because on a phone the axis is too short for them.
    figure.update_annotations({"xshift": -left}, {"xref": "paper"})
    return figure.update_layout(hovermode="closest")


def _signs(configs: Sequence[LaneConfig]) -> dict[LaneConfig, str]:
    """The mark of each lane: no two lengths of one lane have the same, as far as there are enough."""
    seen: Counter[str] = Counter()
    found = {}
    for config in configs:
        number = seen[config.lane]
        shapes = (config.row.sign,) if config.row.sign else SHAPES
        filling = FILLINGS[number // len(shapes) % len(FILLINGS)]
        found[config] = f"{shapes[number % len(shapes)]}{filling}"
        seen[config.lane] += not (config.row.sign and config.lane == LOOP.lane)  # our loop alone has a mark of its own
    return found


def _words(text: str) -> str:
    """A name without its style."""
    return sub("</?b>", "", text)


def _name(label: str) -> list[str]:
    """The lines of a lane's name: the lane, then its draft length."""
    *parts, last = label.split(", ")
    return [line for part in (*(f"{part}," for part in parts), last) for line in shown(part).split("<br>")]


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


def _add_lane(figure: go.Figure, lane: Summary, at: float, sign: str) -> None:
    """Add the mark of a lane with its bar, and its speed-up. ``at``: the middle of its row."""
    config, gains, shown = lane.lane_config, lane.gains, lane.gain or 0.0
    colour = COLOURS[config.row.colour]
    figure.add_scatter(
        x=[shown], y=[at], name=config.label, mode="markers", showlegend=False,
        marker={"color": colour, "size": 12, "symbol": sign},
        error_x={"type": "data", "symmetric": False, "thickness": 2, "width": 6, "color": colour}
        | bars([gains], [shown]),
        hovertemplate=f"{config.label}: {speedups(gains, shown)}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[max(gains)], y=[at], mode="text", text=[f"{NEAR}<b>{factor(shown)}x</b>"],  # as in the headline
        textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip


def _add_rows(figure: go.Figure, rows: Sequence[Row], tops: Sequence[int], signs: dict[LaneConfig, str]) -> None:
    """Add the categories: a mark for each lane, and the figure of the fastest right of its mark."""
    names = [unbroken(row.category, MOST_NAME) for row in rows]
    best = [max(row.gains, key=lambda config: row.gains[config]) for row in rows]
    for line, config in enumerate(signs):
        here = [at for at, row in enumerate(rows) if config in row.gains]
        if not here:
            continue  # it would be in the legend
        gains = [rows[at].gains[config] for at in here]
        figure.add_scatter(
            x=gains, y=[tops[at] + FIRST + LEVEL * line for at in here], mode="markers+text",
            text=[f"\u00a0<b>{factor(rows[at].gains[config])}x</b>" if config == best[at] else "" for at in here],
            textposition="middle right", name=short_name(config),
            marker={"color": COLOURS[config.row.colour], "size": 11, "symbol": signs[config]},
            customdata=[f"{names[at]}, {config.label}: {factor(gain)}x" for at, gain in zip(here, gains, strict=True)],
            hovertemplate="%{customdata}<extra></extra>", cliponaxis=False,
        )  # fmt: skip


def _add_beside_plain(figure: go.Figure, text: str, top: float, most: float) -> None:
    """Add a text at the ``top`` of the line of plain generate, left of it if only there is room on a phone."""
    wide, left = LETTER * len(text), PHONE / most
    place: dict[str, Any] = (
        {"xanchor": "left", "xshift": 8} if wide <= PHONE - left else {"xanchor": "right", "xshift": -8}
    )
    figure.add_annotation(text=text, x=1, y=top + 2, yanchor="top", showarrow=False, borderpad=0, bgcolor=PAGE, **place)
