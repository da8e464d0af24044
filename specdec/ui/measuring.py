"""What the tabs that measure have in common: sizes, buttons, their way through the queue, progress and findings."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Generator, Iterator
from threading import Event
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from specdec.errors import InvalidInput, SpecdecError
from specdec.measure.plan import LEAST_TOKENS, Plan, Trial
from specdec.measure.summary import comparable
from specdec.models.pair import Pair
from specdec.report.judge import Judgement
from specdec.report.why import figures
from specdec.ui import fragments
from specdec.ui.fields import number_field
from specdec.ui.figures import waterfall_figure
from specdec.ui.limits import Limits
from specdec.ui.stream import check
from specdec.ui.work import INTERNAL, Job

LOG = logging.getLogger(__name__)

Values = dict[Any, Any]  # by component

# A full queue or Gradio's own checks refuse a job before its turn, and a lost server ends it; Gradio's notice says why.
REFUSED = "It did not run to its end; the notice at the top says what is known of it."


class Buttons:
    """Start, and Stop in its place while it runs; ``status`` says what goes on. The live view changes them round and
    reads out what was found."""

    def __init__(self, label: str, name: str):
        self._name = name
        self.start = gr.Button(label, variant="primary", elem_id=f"sd-{name}-start", elem_classes="sd-go")
        self.halt = gr.Button("Stop", variant="secondary", elem_id=f"sd-{name}-stop", elem_classes="sd-halt")
        self._withdraw = gr.Button("Withdraw", elem_id=f"sd-{name}-withdraw", elem_classes="sd-withdraw")
        self._waits = gr.Checkbox(visible=False)
        self.status = gr.HTML("", elem_id=f"sd-{name}-status", apply_default_css=False)

    def wire(
        self, job: Job, run: Callable[..., Iterator[Values]], inputs: list[Any], cleared: Values, **queue: Any
    ) -> None:
        """``run(pair, stop, *inputs)`` is a generator of values by component: of the status and of those ``cleared``.

        ``cleared`` has the value of each before there is a result. An earlier result stays until ``run`` first tells
        of more than the status: a refusal loses nothing.
        """

        def begin(request: gr.Request) -> str:
            return fragments.status(job.arm(request))

        def turn(request: gr.Request, *values: Any) -> Iterator[Values]:
            fresh = False
            try:
                with job.turn(request) as (pair, stop):
                    if stop.is_set():
                        yield {self.status: fragments.status("Stopped before its turn. Nothing ran.")}
                        return
                    for shown in run(pair, stop, *values):
                        if not fresh and shown.keys() - {self.status}:
                            shown, fresh = cleared | shown, True
                        yield shown
            except SpecdecError as error:
                yield {self.status: fragments.error(str(error))}
            except Exception:
                LOG.exception("A measurement failed.")
                yield {self.status: fragments.error("It failed; the log of the program says why.")}

        def refused(request: gr.Request) -> str:
            job.refused(request)
            return fragments.status("Cancelled. Nothing ran.") if job.stopped(request) else fragments.error(REFUSED)

        script = f"() => {{ window.specdec.%s({json.dumps(self._name)}); }}"
        asked = self.start.click(begin, outputs=self.status, js=script % "go", queue=False, **INTERNAL)
        ran = asked.then(turn, inputs, [self.status, *cleared], **queue, **INTERNAL)
        ran.then(None, js=script % "rest", **INTERNAL)
        ran.failure(refused, outputs=self.status, js=script % "rest", queue=False, **INTERNAL)
        # Only what waits is withdrawn: what runs ends by its flag, and tells what it found until then.
        withdraw = f"(waits) => {{ if (waits) document.querySelector('#sd-{self._name}-withdraw').click(); }}"
        self.halt.click(job.stop, outputs=self._waits, queue=False, **INTERNAL).then(
            None, self._waits, js=withdraw, **INTERNAL
        )
        self._withdraw.click(None, cancels=ran, api_visibility="private")


class Findings:
    """Verdict, chart and table; in a fold where the time goes from plain ``generate`` to speculative, and the figures
    behind it. All of them are hidden or empty until known; ``cleared`` has the values for that."""

    def __init__(self, name: str):
        look = {"elem_classes": "sd-fragment", "apply_default_css": False}
        self._verdict = gr.HTML("", elem_id=f"sd-{name}-verdict", **look)
        self._plot = gr.Plot(None, show_label=False, visible=False, elem_id=f"sd-{name}-plot", elem_classes="sd-figure")
        self._table = gr.HTML("", elem_id=f"sd-{name}-table", **look)
        settings = {"open": False, "visible": False, "elem_id": f"sd-{name}-why", "elem_classes": "sd-after"}
        with gr.Accordion("Why", **settings) as self._fold:
            self._steps = gr.Plot(None, show_label=False, elem_classes="sd-figure")
            self._facts = gr.HTML("", **look)
        self.cleared = {self._verdict: "", self._plot: gr.update(visible=False), self._table: ""}
        self.cleared |= {self._fold: gr.update(visible=False), self._steps: None, self._facts: ""}

    def show(self, verdict: str, table: str, figure: go.Figure | None) -> Values:
        """What stands there now; without a figure the last one stays."""
        shown = {self._verdict: verdict, self._table: table}
        return shown | ({self._plot: gr.update(value=figure, visible=True)} if figure else {})

    def explain(self, found: Judgement) -> Values:
        if not found.steps:
            return {}
        values = {self._steps: waterfall_figure(found), self._facts: fragments.facts(figures(found))}
        return values | {self._fold: gr.update(visible=True)}


def sizes(name: str, limits: Limits, tokens: int, runs: int) -> tuple[gr.Number, gr.Number]:
    """How much to measure; ``tokens`` and ``runs`` are the first values."""
    return (
        number_field(tokens, "New tokens", info=f"{LEAST_TOKENS} to {limits.new_tokens}", elem_id=f"sd-{name}-tokens"),
        number_field(runs, "Runs", info=f"up to {limits.runs}", elem_id=f"sd-{name}-runs"),
    )


def allowed(pair: Pair, plan: Plan, limits: Limits) -> Plan:
    """The plan, if the page offers as much."""
    for name, found, most in (("Runs", plan.runs, limits.runs), ("Prompts", len(plan.prompts), limits.prompts)):
        if found > most:
            raise InvalidInput(f"{name} {found} is above {most}. Nothing ran.")
    for item in plan.prompts:
        check(pair, item.prompt, plan.params, limits)
    return plan


def follow(
    steps: Generator[Trial | None, None, None], plan: Plan, stop: Event, limits: Limits, found: list[Trial]
) -> Iterator[tuple[str, bool]]:
    """Measure into ``found``; yield a status after each call, and whether a whole round of entrants is done.

    Between two calls only, so that showing falls into no call's time. Ends when ``stop`` is set or the page's limit is
    reached; the last status says so.
    """
    began, total, first = time.monotonic(), len(plan) - len(found), len(found)
    yield fragments.status("Warming up."), False
    for trial in steps:
        if trial is not None:
            found.append(trial)
        late = limits.seconds is not None and time.monotonic() - began > limits.seconds
        if (stop.is_set() or late) and len(found) < len(plan):
            steps.close()
            why = f"Stopped after {limits.seconds:.0f}\u00a0s, this page's limit" if late else "Stopped"
            counted = len(comparable(found))
            rest = f"; the verdict counts {counted}, of runs that every lane has" if counted < len(found) else ""
            yield fragments.status(f"{why}: {len(found)} of {len(plan)} calls made{rest}."), True
            return
        if trial is not None:
            done = len(found) - first
            left = (time.monotonic() - began) / done * (total - done)
            text = f"{len(found)} of {len(plan)} calls, about {left:.0f}\u00a0s left."
            yield fragments.status(text, len(found) / len(plan)), len(found) % len(plan.entrants) == 0
    yield "", True
