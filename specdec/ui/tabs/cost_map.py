"""The place of the map of acceptance against cost on the page, with its title and explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from specdec.report.cost_map import FREE, Point, line_growth
from specdec.ui import html
from specdec.ui.charts.cost_map import map_figure
from specdec.ui.charts.drawn import drawn, figure_place

TITLE = "Where speculation pays"
LEGEND = (
    "Each point is measured: how many of the tested guesses are kept, and what a draft pass costs. Above the line, "
    "speculation is faster than our loop without a draft; below it, slower."
)
THEORY = (
    "The line is theory (Leviathan et al., Theorem 3.8, at the best \u03b3). It takes v, the time to check a round "
    "over the time to check one token, "
)
MEASURED_V = "as it was measured: {range} for the measured draft lengths. In the paper v is 1."
PAPERS_V = "as 1, like the paper, because no measured draft length gives a line with a larger one."
BLOCK = (
    " A block drafter takes one pass for a whole draft, so a round costs c + v at every \u03b3, and its line differs."
)


class CostMap:
    """Hidden with fewer than two points, which are no map; ``cleared`` has the values for that."""

    def __init__(self, name: str):
        self._title = gr.HTML("", elem_classes="sd-fragment", apply_default_css=False)
        self._plot = figure_place(f"sd-{name}-map")
        self._theory = gr.HTML("", elem_classes="sd-fragment", apply_default_css=False)
        self.cleared: dict[Any, Any] = {self._title: "", self._plot: gr.update(visible=False), self._theory: ""}

    def show(self, found: Sequence[Point], growth: Mapping[int, float], more: str = "") -> dict[Any, Any]:
        """The values that show these points, and the line with the v that was measured at each draft length.

        ``more`` ends the explanation.
        """
        if len(found) < 2:
            return dict(self.cleared)
        theory = f"{THEORY}{_taken(line_growth(growth))}{BLOCK * any(point.one_pass for point in found)}"
        return {
            self._title: html.titled(TITLE, f"{LEGEND}{more}"),
            self._plot: gr.update(value=drawn(map_figure(found, growth)), visible=True),
            self._theory: html.folded("What the line is", html.paragraph(theory)),
        }


def _taken(growth: Mapping[int, float]) -> str:
    """Which v the line takes, in words."""
    if growth is FREE:
        return PAPERS_V
    low, high = (f"{v:.2f}" for v in (min(growth.values()), max(growth.values())))
    return MEASURED_V.format(range=low if low == high else f"{low}\u2013{high}")
