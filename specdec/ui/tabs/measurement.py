"""Shared by the tabs that measure: size fields, buttons, the way through the queue, progress and findings."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from specdec.errors import SpecdecError, with_names
from specdec.events import SamplingParams
from specdec.facts import on_servers, takes_one_pass
from specdec.measure.kept import Begun, kept_trials
from specdec.measure.plan import LEAST_TOKENS, Plan, Trial
from specdec.measure.results.format import MOST_CALLS, Results
from specdec.measure.results.text import ResultsText
from specdec.measure.summary import comparable
from specdec.measure.task import Task
from specdec.models.pair import Pair
from specdec.report import sentences
from specdec.report.cost_map import measured_growth, points
from specdec.report.provenance import Origin, asked_line, provenance_line
from specdec.report.sweep import Overall, overall
from specdec.report.why import why_figures
from specdec.ui import html
from specdec.ui.charts.drawn import drawn, figure_place
from specdec.ui.charts.figures import waterfall_figure
from specdec.ui.fields import LABELS, integer, message_place, number_field, read_number
from specdec.ui.files import TextFile
from specdec.ui.jobs.context import Cancelled, Job, JobContext, QueuePosition
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_stream import enforce_limits
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, done, followed
from specdec.ui.tabs.cost_map import CostMap
from specdec.ui.tabs.grammar_field import grammar_from_fields

Values = dict[Any, Any]  # by component
CHART_EVERY = 2.0  # the least seconds between two results that a running measurement shows

# During a measurement its fragments are replaced again and again. What a person has opened in them stays open.
_KEEP_FOLDS = """
const open = new Set(), folds = () => [...element.querySelectorAll("details")];
const note = ({ target }) => open[target.open ? "add" : "delete"](folds().indexOf(target));
const reopen = () => folds().forEach((fold, at) => { if (open.has(at)) fold.open = true; });
element.addEventListener("toggle", note, true);
new MutationObserver(reopen).observe(element, { childList: true, subtree: true });
"""

# If Gradio itself ends a job (the quota of a shared GPU is used up, the server is lost), its notice gives the reason.
REFUSED = "The job did not finish. The notice at the top gives the reason, if it is known."


class Buttons:
    """The button Start, which Stop replaces during a run, and the ``status``.

    The live view swaps the two buttons and lets screen readers read the findings.
    """

    def __init__(self, label: str, name: str, beside: Callable[[], None] = lambda: None):
        """``beside`` builds further components in the row of Start."""
        self.name = name
        with gr.Row(elem_classes="sd-startRow"):
            self.start = gr.Button(label, variant="primary", elem_id=f"sd-{name}-start", elem_classes="sd-go")
            self.halt = gr.Button("Stop", variant="secondary", elem_id=f"sd-{name}-stop", elem_classes="sd-halt")
            self._estimate = gr.HTML("", elem_id=f"sd-{name}-estimate", elem_classes="sd-estimate")
            beside()
        self.status = message_place(f"sd-{name}-status")

    def estimate(
        self,
        jobs: JobQueue,
        opened: Any,
        fields: list[Any],
        size_of: Callable[..., tuple[str, int, int]],
        by_race: bool = True,
        after: Any = None,
    ) -> None:
        """Show beside Start how long it will take, at the event ``opened`` and when a field changes.

        ``size_of`` turns the fields' values into the work: in words, the number of its parts, and the tokens of each.
        ``by_race``: until a job of this kind has run, a race gives the time of a token. ``after`` is a listener that
        changes one of the fields without an event.
        """

        def say(*values: Any) -> str:
            try:
                work, count, tokens = size_of(*values)
            except SpecdecError:
                return ""  # Start shows what is wrong
            if not (0 < count <= MOST_CALLS and 0 < tokens <= jobs.limits.new_tokens):
                return ""
            return sentences.work_ahead(work, jobs.expected(self.name, count * tokens, by_race))

        said: Values = {"fn": say, "inputs": fields, "outputs": self._estimate, "queue": False} | INTERNAL
        gr.on([opened, *(field.change for field in fields)], trigger_mode="always_last", **said)
        if after is not None:
            after.then(**said)

    def wire(
        self,
        jobs: JobQueue,
        job_of: Callable[..., Job],
        inputs: list[Any],
        cleared: Values,
        named: Callable[[], Values],
    ) -> None:
        """Run ``job_of(*inputs)`` on Start. The job yields values for the status and for the keys of ``cleared``.

        ``cleared`` has each component's value without a result. An earlier result stays until the job yields more than
        a status, so a refusal does not erase it. ``named`` gives the page's header, for the first answer.
        """

        async def run(request: gr.Request, *values: Any) -> AsyncIterator[Values]:
            fresh, first = False, True
            try:
                yield {self.status: ""}
                # Reading a file of prompts takes a while.
                job = await done(jobs, request, "read settings", partial(job_of, *values))
                async with aclosing(followed(jobs, request, job)) as steps:
                    async for shown in steps:
                        if isinstance(shown, QueuePosition):
                            yield {self.status: html.status(sentences.ahead(*shown))}
                            continue
                        if not fresh and shown.keys() - {self.status}:
                            shown, fresh = cleared | shown, True
                        yield shown | (named() if first else {})
                        first = False
            except Cancelled as error:
                yield {self.status: html.status(str(error))}
            except SpecdecError as error:
                yield {self.status: html.error(with_names(error, LABELS))} | named()

        def stop(request: gr.Request) -> None:
            jobs.stop(request.session_hash or "", self.name)

        begin = f"(...values) => {{ window.specdec.go({json.dumps(self.name)}); return values; }}"
        rest = f"() => {{ window.specdec.rest({json.dumps(self.name)}); }}"
        outputs = [self.status, *cleared, *named()]
        ran = self.start.click(run, inputs, outputs, js=begin, **UNLIMITED, **INTERNAL)
        ran.then(None, js=rest, **INTERNAL)
        ran.failure(lambda: html.error(REFUSED), outputs=self.status, js=rest, queue=False, **INTERNAL)
        self.halt.click(stop, queue=False, **INTERNAL)


class ResultPanel:
    """Verdict, chart and table, and a fold that shows where the time goes, from plain ``generate`` to speculative.

    All are hidden or empty until known; ``cleared`` has the values for that.
    """

    def __init__(self, name: str, further: int = 0):
        """``further``: how many charts stand below the first one, side by side where there is room."""
        look: dict[str, Any] = {"elem_classes": "sd-fragment", "apply_default_css": False}
        self._verdict = gr.HTML("", elem_id=f"sd-{name}-verdict", js_on_load=_KEEP_FOLDS, **look)
        with gr.Column():  # in it a phone shows the table first
            self._plot = figure_place(f"sd-{name}-plot")
            self._further: list[gr.Plot] = []
            if further:
                with gr.Row(elem_classes="sd-further"):
                    for number in range(1, further + 1):
                        with gr.Column(min_width=300):
                            self._further.append(figure_place(f"sd-{name}-plot-{number}"))
            self._table = gr.HTML("", elem_id=f"sd-{name}-table", js_on_load=_KEEP_FOLDS, **look)
        self._map = CostMap(name)
        settings = {"open": False, "visible": False, "elem_id": f"sd-{name}-why", "elem_classes": "sd-after"}
        with gr.Accordion("Why", **settings) as self._fold:
            self._steps = gr.Plot(None, show_label=False, elem_classes="sd-figure")
            self._facts = gr.HTML("", **look)
        self.cleared = self._map.cleared | {self._verdict: "", self._plot: gr.update(visible=False), self._table: ""}
        self.cleared |= {place: gr.update(visible=False) for place in self._further}
        self.cleared |= {self._fold: gr.update(visible=False), self._steps: None, self._facts: ""}

    def show(
        self, results: Results, origin: Origin, table: str, figures: Sequence[go.Figure], notes: Iterable[str] = ()
    ) -> Values:
        """The values that show these results. ``notes`` go below the verdict. Without figures the last charts stay."""
        found = _judged(results)
        found_in = html.FoundIn(asked_line(results.plan), origin.sentence, provenance_line(results.about))
        below = [*(note.text for note in found.notes), *notes]
        about = found.judgement.is_about
        shown = html.verdict_html(found.headline, found.factor, below, about, found.shares, found_in)
        charts: Values = {}
        if figures:
            for place, figure in zip_longest((self._plot, *self._further), figures):
                charts[place] = gr.update(value=drawn(figure), visible=True) if figure else gr.update(visible=False)
        return {self._verdict: shown, self._table: table} | charts

    def explain(self, results: Results) -> Values:
        """The values of the map and of the fold. The fold is empty if the steps are not known."""
        found = _judged(results).judgement
        one_pass = takes_one_pass(results.about["pair"])
        shown = self._map.show(points(results.trials, one_pass), measured_growth(results.trials))
        if not found.steps:
            return shown
        values = shown | {self._steps: drawn(waterfall_figure(found)), self._facts: html.facts(why_figures(found))}
        return values | {self._fold: gr.update(visible=True)}


def _judged(results: Results) -> Overall:
    facts = results.about["pair"]
    servers = on_servers(facts)
    return overall(results.trials, results.plan, one_pass=takes_one_pass(facts), on_servers=servers)


def measured_params(
    tokens: float | None, temperature: float | None, kind: str | None, grammar: str | None
) -> SamplingParams:
    """The settings of a measurement, whose texts have all their tokens unless a grammar ends them.

    ``kind`` and ``grammar``: the values of ``grammar_fields``. Raises ``InvalidInput``.
    """
    obeyed = grammar_from_fields(kind, grammar)
    length, heat = integer("New tokens", tokens), read_number("Temperature", temperature)
    return SamplingParams(length, heat, seed=0, ignore_eos=obeyed is None, grammar=obeyed)


def logged(params: SamplingParams) -> dict[str, Any]:
    """The settings for the log, of a grammar the kind only."""
    return asdict(params) | {"grammar": params.grammar and params.grammar.kind}


def settings_fold(name: str) -> gr.Accordion:
    """The fold for the settings of a tab, which are seldom changed."""
    return gr.Accordion("Settings", open=False, elem_id=f"sd-{name}-settings", elem_classes="sd-after sd-settings")


def sizes(name: str, limits: Limits, tokens: int, runs: int) -> tuple[gr.Number, gr.Number]:
    """The fields for the size of a measurement. ``tokens`` and ``runs`` are their first values."""
    return (
        number_field(
            tokens, LABELS["max_new_tokens"], info=f"{LEAST_TOKENS} to {limits.new_tokens}", elem_id=f"sd-{name}-tokens"
        ),
        number_field(runs, LABELS["runs"], info=f"up to {limits.runs}", elem_id=f"sd-{name}-runs"),
    )


def allowed(pair: Pair, plan: Plan, limits: Limits) -> Plan:
    """The plan. Raises ``InvalidInput`` if it is above the page's limits."""
    limits.take(plan.params.max_new_tokens, plan.runs, len(plan.prompts))
    for item in plan.prompts:
        enforce_limits(pair, item.message(pair.tokenizer), plan.params, limits)
    return plan


def pair_measurement(context: JobContext, plan: Plan, limits: Limits, before: TextFile | None = None) -> Measurement:
    """The calls of a plan on the loaded pair. ``before`` is a file of results, whose calls are not measured again."""
    allowed(context.pair, plan, limits)
    task = Task(partial(kept_trials, plan=plan, before=before), plan.tokens)
    return Measurement(context, context.run_task(task), len(plan), limits)


class Measurement:
    """Follows the calls of a plan, which run one after another, and keeps their results."""

    def __init__(
        self,
        context: JobContext,
        calls: Generator[Begun | Trial | None, None, None],
        planned: int,
        limits: Limits,
    ):
        """``calls`` yields a ``Begun`` first, then each of the ``planned`` calls when it has ended."""
        self._context, self._calls, self._planned, self._limits = context, calls, planned, limits
        self._found: list[Trial] = []
        self._lines: ResultsText | None = None

    @property
    def results(self) -> Results | None:
        """None before the first call has ended."""
        if self._lines is None or not self._found:
            return None
        return Results(self._lines.about, self._lines.plan, list(self._found))

    @property
    def text(self) -> str:
        """The results in the format of a file."""
        assert self._lines is not None  # there are results by now
        return self._lines.write(self._found)

    def steps(self) -> Iterator[tuple[str, Results | None]]:
        """Measure. Yield a status, and the results so far; None until two calls can be compared.

        After that it yields not after each call but every ``CHART_EVERY`` seconds, so that status, verdict, chart and
        table are always of the same calls.

        It yields only between two calls, so that showing results costs no call any time. It ends when the job is
        stopped or the page's limit is reached; the last status says so.
        """
        found, planned, done = self._found, self._planned, 0
        first, shown_at = 0.0, float("-inf")
        yield html.status("Warming up."), None
        with closing(self._calls) as steps:
            for step in steps:
                if isinstance(step, Begun):
                    self._lines = step.lines
                    found += step.found
                elif step is not None:
                    found.append(step)
                    done += 1
                    self._context.counts["calls"] = done
                if self._ended() and len(found) < planned:
                    break
                if isinstance(step, Trial):
                    now = time.monotonic()
                    first = first or now  # from here on without the warm-up
                    each = (now - first) / (done - 1) if done > 1 else None
                    text = sentences.calls_left(len(found), planned, each)
                    if len(found) == 1:
                        yield html.status(text, len(found) / planned), None
                    elif now - shown_at > CHART_EVERY:
                        shown_at = now
                        yield html.status(text, len(found) / planned), self.results
        why = self._ended() if len(found) < planned else ""
        if not why:
            yield "", self.results
            return
        counted = len(comparable(found))
        rest = f"; the verdict uses {counted:,} calls, of runs that all lanes finished" * (counted < len(found))
        yield html.status(f"{why}: {len(found):,} of {planned:,} calls done{rest}."), self.results

    def _ended(self) -> str:
        """Why there is no further call; empty if there is no reason."""
        most = self._limits.seconds
        if most is not None and self._context.seconds > most:
            return f"Stopped after {most:.0f}\u00a0s, this page's limit"
        return "Stopped" if self._context.stop.is_set() else ""
