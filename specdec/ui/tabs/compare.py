"""The fold that shows several results files in one table, over their temperatures, and on one map."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError
from specdec.measure.results.format import read_results
from specdec.report.compare import ResultsComparison, compare_results, comparison_table
from specdec.ui import html
from specdec.ui.charts.drawn import drawn, figure_place
from specdec.ui.charts.temperature import temperature_figure
from specdec.ui.fields import message_place
from specdec.ui.files import chosen_files, files_field
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, done
from specdec.ui.tabs.cost_map import CostMap

TEMPERATURE = (
    "Speed-up and acceptance against temperature",
    "Each lane at its best \u03b3 in each file. The dashed line is the acceptance to be expected: the mean over the "
    "tested guesses of the sum of min(p, q) over the vocabulary (Leviathan et al., Corollary 3.6). Greedy runs have no "
    "such sum.",
)


class ComparePanel:
    """Built inside a ``gr.Tab``. ``script`` is the address of the script that reads files in the browser."""

    def __init__(self, jobs: JobQueue, script: str, results: str):
        self._jobs, self._limits = jobs, jobs.limits
        with gr.Accordion("Compare results", open=False, elem_id="sd-bench-compare", elem_classes="sd-after"):
            hint = (
                f"One or more {results}, of any pair, machine or settings; together up to "
                f"{self._limits.file_bytes / 1e6:g} MB."
            )
            self._files = files_field(script, "Results files", hint, "sd-compare-files", self._limits)
            self._shown = message_place("sd-compare", elem_classes="sd-fragment")
            self._heat_title = gr.HTML("", elem_classes="sd-fragment", apply_default_css=False)
            self._heat = figure_place("sd-compare-temperature")
            self._map = CostMap("compare")

    def wire(self) -> None:
        shown = [self._shown, self._heat_title, self._heat, *self._map.cleared]
        latest: dict[str, Any] = {"trigger_mode": "always_last"} | UNLIMITED | INTERNAL
        self._files.upload(self._listen, self._files, shown, **latest)

    async def _listen(self, request: gr.Request, value: Any) -> dict[Any, Any]:
        """Show the chosen files. If some cannot be read, name the first of them."""
        try:
            return await done(self._jobs, request, "compare", partial(self._compare, value))
        except SpecdecError as error:
            return self._charts(None) | {self._shown: html.error(str(error))}

    def _compare(self, value: Any) -> dict[Any, Any]:
        files = [read_results(file.text, file.name) for file in chosen_files(value, self._limits)]
        if not files:
            return self._charts(None) | {self._shown: ""}
        found = compare_results(files)
        table = html.table_html(comparison_table(found))
        sentence = html.note(found.sentence) if found.sentence else ""
        return self._charts(found) | {self._shown: sentence + table}

    def _charts(self, found: ResultsComparison | None) -> dict[Any, Any]:
        points, heated = (found.points, found.by_temperature) if found else ([], [])
        shown = self._map.show(points, {}, " Each number beside a point is the number of its file.")
        if not heated:
            return shown | {self._heat_title: "", self._heat: gr.update(visible=False)}
        figure = gr.update(value=drawn(temperature_figure(heated)), visible=True)
        return shown | {self._heat_title: html.titled(*TEMPERATURE), self._heat: figure}
