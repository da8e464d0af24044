"""The chart of the test of losslessness: how often each sample has the most frequent continuations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from specdec.measure.losslessness import Common
from specdec.report.losslessness import sample_name
from specdec.ui.charts.figures import BLUE, FAINT, GREY, LINE, NEAR, ORANGE, TEXT, from_above
from specdec.ui.charts.labels import shown

# Shares of a group: a bar, the thinner bar in front of the band of chance, from its middle to the edge of the band, and
# from there to the next bar.
WIDE, THIN, BAND, GAP = 0.25, 0.11, 0.12, 0.04


def samples_figure(found: Sequence[Common], draws: int, lane: str) -> go.Figure:
    """The counts of the most frequent continuations in the three samples of the test of losslessness.

    Each sample has ``draws`` continuations; ``lane`` is the key of the tested lane.

    The bars of a sample are hollow, filled or hatched, so that they differ without colours too. A grey band behind the
    second bar, around the count of the first one, holds its end in about 19 of 20 cases if both samples have one
    distribution. That bar is thinner, so that the whole band is seen.
    """
    names = [shown(common.text) for common in found]
    bands = [chance_band(common.plain, common.lossless, draws) for common in found]
    clear = "rgba(0, 0, 0, 0)"
    hatched = {"color": clear, "pattern": {"shape": "/", "size": 6, "fgcolor": ORANGE}}
    figure = go.Figure()
    plain, lossless, lossy = ([getattr(common, name) for common in found] for name in ("plain", "lossless", "lossy"))
    for name, counts, colour, look, middle, width in (
        ("plain generate", plain, GREY, {"color": clear}, -BAND - GAP - WIDE / 2, WIDE),
        (sample_name(lane), lossless, BLUE, {"color": BLUE}, 0, THIN),
        ("speculative, lossy", lossy, ORANGE, hatched, BAND + GAP + WIDE / 2, WIDE),
    ):
        figure.add_bar(
            y=list(range(len(names))), x=counts, name=name, orientation="h", width=width, offset=middle - width / 2,
            marker=look | {"line": {"color": colour, "width": 1.5}},
        )  # fmt: skip
        # The number of the second bar is right of the band, whose edge would cross it.
        ends = [max(count, high) for count, (_, high) in zip(counts, bands, strict=True)] if not middle else counts
        figure.add_scatter(
            y=[place + middle for place in range(len(names))], x=ends, mode="text", textposition="middle right",
            text=[f"\u00a0{count}" for count in counts], textfont={"size": TEXT}, cliponaxis=False, showlegend=False,
            hoverinfo="skip",
        )  # fmt: skip
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name="chance: 19 of 20 blue bars end here",
        marker={"symbol": "square", "size": 13, "color": FAINT, "line": {"color": GREY, "width": 1.5}},
    )  # fmt: skip
    figure.update_layout(shapes=[_band(place, *ends) for place, ends in enumerate(bands)])
    figure.update_xaxes(title_text=f"Times drawn, of {draws:,} continuations", rangemode="tozero", title_standoff=4)
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[name + NEAR for name in names],
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    rows = 66 * len(names) + 2 * LINE
    figure = from_above(figure, rows, legend=0, lines=2, right=36)
    # In one line where there is room. Where there is none, the chart gives its lines of the height.
    above = 1 + (2 * LINE + 28) / rows
    legend = {"orientation": "h", "x": 0, "y": above, "yref": "paper", "yanchor": "bottom"}
    return figure.update_layout(showlegend=True, legend=legend)


def _band(place: int, low: float, high: float) -> dict[str, object]:
    """The band of a group, behind its bars. Its edge is drawn because the fill alone is too faint for everybody."""
    corners = {"x0": low, "x1": high, "y0": place - BAND, "y1": place + BAND}
    look = {"fillcolor": FAINT, "line": {"color": GREY, "width": 1}, "layer": "between"}
    return {"type": "rect", "xref": "x", "yref": "y", **corners, **look}


def chance_band(one: int, other: int, draws: int) -> tuple[float, float]:
    """Where the count ``other`` lies beside the count ``one`` in about 19 of 20 cases, if both have one distribution.

    Both are counts of ``draws`` independent draws, so their difference has the variance 2 n p (1 - p). p is estimated
    from both. The normal approximation is coarse for counts below five.
    """
    share = (one + other) / (2 * draws)
    wide = 1.96 * math.sqrt(2 * draws * share * (1 - share))
    return max(0.0, one - wide), min(float(draws), one + wide)
