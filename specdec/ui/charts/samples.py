"""The chart of the test of losslessness: how often each sample has the most frequent continuations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from specdec.measure.losslessness import Common
from specdec.report.losslessness import sample_name
from specdec.ui.charts.figures import BLUE, FAINT, GREY, LINE, NEAR, ORANGE, coloured, from_above
from specdec.ui.charts.labels import shown

GROUP = 74  # pixels of a group
# From the middle of a group, in shares of it: where each bar begins, and the band of chance. The band is directly below
# the second bar, so that no count is over it. A line from the bar's end goes through it.
WIDE, BAND = 0.2, 0.11
PLAIN, TESTED, CHANCE, LOSSY = -0.43, -0.17, 0.06, 0.22


def samples_figure(found: Sequence[Common], draws: int, lane: str) -> go.Figure:
    """The counts of the most frequent continuations in the three samples of the test of losslessness.

    Each sample has ``draws`` continuations; ``lane`` is the key of the tested lane.

    The bars of a sample are hollow, filled or hatched, so that they differ without colours too. Below the second bar is
    a grey band, around the count of the first one, within which it ends in about 19 of 20 cases if both samples have
    one distribution. Each count is at the end of its bar.
    """
    names = [shown(closed(common.text)) for common in found]
    bands = [chance_band(one.plain, one.lossless, draws) for one in found]
    clear = "rgba(0, 0, 0, 0)"
    hatched = {"color": clear, "pattern": {"shape": "/", "size": 6, "fgcolor": ORANGE}}
    figure, labels = go.Figure(), []
    plain, lossless, lossy = ([getattr(common, name) for common in found] for name in ("plain", "lossless", "lossy"))
    for name, counts, colour, look, start in (
        ("plain generate", plain, GREY, {"color": clear}, PLAIN),
        (sample_name(lane), lossless, BLUE, {"color": BLUE}, TESTED),
        ("lossy on purpose", lossy, ORANGE, hatched, LOSSY),
    ):
        figure.add_bar(
            y=list(range(len(names))), x=counts, name=name, orientation="h", width=WIDE, offset=start,
            marker=look | {"line": {"color": colour, "width": 1.5}},
        )  # fmt: skip
        middle = start + WIDE / 2
        labels += [_number(count, at + middle, coloured(str(count), colour)) for at, count in enumerate(counts)]
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name="range of chance",
        marker={"symbol": "square", "size": 13, "color": FAINT, "line": {"color": GREY, "width": 1.5}},
    )  # fmt: skip
    drawn = [_band(place, *band) for place, band in enumerate(bands)]
    drawn += [_end(place, count) for place, count in enumerate(lossless)]
    figure.update_layout(shapes=drawn, annotations=labels)  # at once: plotly checks all of them with each one
    figure.update_xaxes(title_text=f"Times drawn, of {draws:,} continuations", rangemode="tozero", title_standoff=4)
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[name.replace("<br>", f"{NEAR}<br>") + NEAR for name in names],
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    rows = GROUP * len(names) + 2 * LINE
    figure = from_above(figure, rows, legend=0, lines=2, right=36)
    # In one line where there is room. Where there is none, the chart gives its lines of the height.
    above = 1 + (2 * LINE + 28) / rows
    legend = {"orientation": "h", "x": 0, "y": above, "yref": "paper", "yanchor": "bottom"}
    return figure.update_layout(showlegend=True, legend=legend)


def closed(text: str) -> str:
    """A continuation, with the quote closed that it leaves open."""
    return f'{text}\u00a0\u2026"' if text.count('"') % 2 else text


def _number(end: float, at: float, text: str) -> dict[str, object]:
    """The count of a bar, right of its end."""
    look = {"xanchor": "left", "yanchor": "middle", "showarrow": False, "borderpad": 0, "xshift": 4}
    return {"text": text, "x": end, "y": at} | look


def _band(place: int, low: float, high: float) -> dict[str, object]:
    """The band of a group. Its edge is drawn because the fill alone is too faint for everybody."""
    corners = {"x0": low, "x1": high, "y0": place + CHANCE, "y1": place + CHANCE + BAND}
    return {
        "type": "rect",
        "xref": "x",
        "yref": "y",
        **corners,
        "fillcolor": FAINT,
        "line": {"color": GREY, "width": 1},
    }


def _end(place: int, count: int) -> dict[str, object]:
    """A line from the end of the second bar of a group through the band."""
    look = {"xref": "x", "yref": "y", "line": {"color": BLUE, "width": 3}}
    return {"type": "line", "x0": count, "x1": count, "y0": place + TESTED + WIDE, "y1": place + CHANCE + BAND, **look}


def chance_band(one: int, other: int, draws: int) -> tuple[float, float]:
    """Where the count ``other`` lies beside the count ``one`` in about 19 of 20 cases, if both have one distribution.

    Both are counts of ``draws`` independent draws, so their difference has the variance 2 n p (1 - p). p is estimated
    from both. The normal approximation is coarse for counts below five.
    """
    share = (one + other) / (2 * draws)
    wide = 1.96 * math.sqrt(2 * draws * share * (1 - share))
    return max(0.0, one - wide), min(float(draws), one + wide)
