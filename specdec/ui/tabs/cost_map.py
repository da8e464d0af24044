"""The place of the map of acceptance against cost on the page, with its title and explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from specdec.report.cost_map import Point
from specdec.ui import html
from specdec.ui.charts.cost_map import map_figure
from specdec.ui.charts.drawn import drawn, figure_place

TITLE = "Where speculation pays"
LEGEND = (
    "Each point is measured: how many of the tested guesses are kept, and what a draft pass costs. Above the line, "
    "speculation is faster than our loop without a draft; below it, slower."
)
THEORY = (
    "The line is theory (Leviathan et al., Theorem 3.8, at the best \u03b3). v is the time to check a round over the "
    "time to check one token, 1 in the paper. Its range is that of the measured draft lengths."
)
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
        theory = html.paragraph(f"{THEORY}{BLOCK * any(point.one_pass for point in found)}")
        return {
            self._title: html.titled(TITLE, f"{LEGEND}{more}"),
            self._plot: gr.update(value=drawn(map_figure(found, growth)), visible=True),
            self._theory: html.folded("What the line is", theory),
        }
