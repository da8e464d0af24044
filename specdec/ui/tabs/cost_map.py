"""The place of the map of acceptance against cost on the page, with its title and explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from specdec.report.cost_map import Point
from specdec.ui import html
from specdec.ui.charts.cost_map import map_figure
from specdec.ui.charts.drawn import drawn, figure_place

TITLE = "Where speculation pays"
LEGEND = (
    "Each point is measured: the share of tested guesses that are kept, against the cost of a draft pass. The line is "
    "theory (Leviathan et al., Theorem 3.8, at the best \u03b3). Above the line, speculation is faster than our loop "
    "without a draft. v is the time of a target pass over a round, divided by that of a pass over one token; the "
    "line assumes the same v at every \u03b3. At a hollow point, speculation was slower."
)


class CostMap:
    """Hidden with fewer than two points, which are no map; ``cleared`` has the values for that."""

    def __init__(self, name: str):
        self._title = gr.HTML("", elem_classes="sd-fragment", apply_default_css=False)
        self._plot = figure_place(f"sd-{name}-map")
        self.cleared: dict[Any, Any] = {self._title: "", self._plot: gr.update(visible=False)}

    def show(self, found: Sequence[Point], v: float | None, more: str = "") -> dict[Any, Any]:
        """The values that show these points, and the line with the measured ``v``; ``more`` ends the explanation."""
        if len(found) < 2:
            return {self._title: "", self._plot: gr.update(visible=False)}
        title = html.titled(TITLE, f"{LEGEND}{more}")
        return {self._title: title, self._plot: gr.update(value=drawn(map_figure(found, v)), visible=True)}
