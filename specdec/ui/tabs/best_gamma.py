"""The tab that finds the best draft length, explains it, computes what-if, and offers code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import gradio as gr

from specdec.engine.decode import speculative
from specdec.engine.policy import policy_of
from specdec.errors import InvalidInput
from specdec.events import Event, SamplingParams, longest_draft
from specdec.facts import on_servers, takes_one_pass
from specdec.lanes.decoding_thread import Batches, driven
from specdec.measure.costs import Costs
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.recorded_text import require_free_text
from specdec.measure.results.format import Results
from specdec.measure.summary import fastest, share_of, summarise
from specdec.measure.sweep import CONFIGS, NEW_TOKENS, RUNS, within
from specdec.measure.task import Task
from specdec.measure.trials import INTERVAL
from specdec.measure.whatif import ORACLE, Calibration, PredictedRun, what_if
from specdec.models.pair import Pair, Prompt
from specdec.report import numbers, provenance, sentences
from specdec.report.figure_table import FigureTable
from specdec.report.provenance import HERE, Origin
from specdec.report.sweep import OWN_LOOP, SweepRow, block_note, marked, sweep_rows, sweep_table, theory_note
from specdec.ui import html
from specdec.ui.charts.sweep import small_figures, sweep_figure
from specdec.ui.fields import integer, number_field
from specdec.ui.files import file_buttons, offered
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_stream import enforce_limits
from specdec.ui.tabs.code import code_answer
from specdec.ui.tabs.grammar_field import grammar_named
from specdec.ui.tabs.measurement import (
    Buttons,
    ResultPanel,
    Values,
    logged,
    measured_params,
    pair_measurement,
    settings_fold,
    sizes,
)
from specdec.ui.tabs.race_form import RaceForm
from specdec.ui.tabs.results_io import Opening, kept_results

RESULTS = "sweep.results.jsonl"
_TAKE_HOME = "import(%s).then((home) => home.mount(element, props, watch));"
OWN = "The prompt of the race"
RECORDED = 128  # the fewest tokens for what-if
TERMS = (
    "The gain, measured and predicted by theory, is over our loop at \u03b3 0 in the same run. c is the time of a "
    "draft pass and v the time to check a round, both in target passes over one token"
)
WHAT_IF = ("Draft length", "tokens per pass", "guesses", "ms per token", "computed gain over \u03b3 0")


class GammaTab:
    """Built inside a ``gr.Tab``. ``ask`` holds the race's fields, ``scripts`` the addresses of scripts by name."""

    def __init__(
        self, jobs: JobQueue, examples: Sequence[PromptItem], limits: Limits, ask: RaceForm, scripts: dict[str, str]
    ):
        self._jobs, self._limits = jobs, limits
        self._examples = {item.name: item for item in examples}
        gr.HTML(
            '<p class="sd-lede">Measures every draft length \u03b3 (guesses per round), and names the fastest.</p>',
            apply_default_css=False,
        )
        self._prompt, self._chat, self._grammar = ask.prompt, ask.chat, [ask.grammar, ask.grammar_text]
        self._opening = Opening("sweep", scripts["results"], jobs, kept_results("sweep"))
        self._buttons = Buttons("Find the best \u03b3", "gamma", self._opening.button)
        with settings_fold("gamma"):
            with gr.Row(elem_classes="sd-form"):
                self._chosen = gr.CheckboxGroup(
                    [OWN, *self._examples], value=[OWN], label="Prompts", elem_id="sd-gamma-prompts"
                )
            with gr.Row(elem_classes="sd-form"):
                self._tokens, self._runs = sizes("gamma", limits, NEW_TOKENS, RUNS)
                self._temperature = number_field(
                    0, "Temperature", info="0 is greedy", step=0.05, elem_id="sd-gamma-temperature"
                )
        self._findings = ResultPanel("gamma", further=3)
        hint = "JSON lines with every call. To see them again, here or on another specdec page, use Open results."
        self._files = file_buttons(scripts["files"], "Save results", hint, "sd-gamma-files", "sweep")
        self._link = self._opening.link_field()
        settings = {"open": False, "elem_classes": "sd-after"}
        with gr.Accordion("Code for the best \u03b3", visible=False, elem_id="sd-gamma-home", **settings) as self._home:
            look: dict[str, Any] = {"html_template": "", "elem_classes": "sd-live", "apply_default_css": False}
            self._lines = gr.HTML("", js_on_load=_TAKE_HOME % scripts["takehome"], **look)
        with gr.Accordion("What if: other draft lengths from one run", elem_id="sd-gamma-whatif", **settings):
            gr.HTML(
                '<p class="sd-hint">This records one run whose draft length changes from round to round. The page '
                "computes every other draft length from it: exact tokens per pass for greedy text, expected values for "
                "sampling, and for a draft that takes one pass whatever its length.</p>",
                apply_default_css=False,
            )
            self._record = Buttons("Record one run", "whatif")
            self._outcomes = gr.HTML("", elem_id="sd-whatif-table", elem_classes="sd-fragment", apply_default_css=False)
            self.best = gr.State("")  # the best draft length of what-if, as text
            self.race_it = gr.Button("Race it", visible=False, elem_id="sd-whatif-race")

    def wire(self, tab: gr.Tab, address: gr.HTML, named: Callable[[], Values]) -> None:
        asked = [self._prompt, self._chat, self._chosen, self._tokens, self._runs, self._temperature, *self._grammar]
        cleared = self._findings.cleared | {self._home: gr.update(visible=False), self._lines: ""}
        cleared |= {self._files: None, self._link: None}
        self._buttons.wire(self._jobs, self._sweep_job, asked, cleared, named)
        self._opening.wire(tab, address, self._buttons.status, cleared, self._finished)
        sized = [self._chosen, self._tokens, self._runs, self._grammar[0]]
        self._buttons.estimate(self._jobs, tab.select, sized, _size)
        given = [self._prompt, self._chat, self._chosen, self._tokens, self._temperature, *self._grammar]
        cleared = {self._outcomes: "", self.best: "", self.race_it: gr.update(visible=False)}
        self._record.wire(self._jobs, self._what_if_job, given, cleared, named)

    def _items(self, prompt: str, chat: bool, chosen: Sequence[str]) -> tuple[PromptItem, ...]:
        if not chosen:
            raise InvalidInput("No prompt is chosen; choose at least one.")
        own = [PromptItem(OWN, OWN, prompt or "", bool(chat))] if OWN in chosen else []
        return (*own, *(item for name, item in self._examples.items() if name in chosen))

    def _sweep_job(
        self,
        prompt: str,
        chat: bool,
        chosen: list[str],
        tokens: float,
        runs: float,
        temperature: float,
        kind: str | None,
        grammar: str | None,
    ) -> Job:
        params = measured_params(tokens, temperature, kind, grammar)
        plan = Plan(self._items(prompt, chat, chosen), CONFIGS, params, integer("Runs", runs))
        self._limits.take(params.max_new_tokens, plan.runs, grammar=params.grammar)
        settings = {"prompts": len(plan.prompts), "runs": plan.runs} | logged(params)
        return Job(self._buttons.name, plan.tokens, partial(self._sweep, plan=plan), settings)

    def _sweep(self, context: JobContext, plan: Plan) -> Iterator[Values]:
        measured = pair_measurement(context, within(plan, longest_draft(context.slot.facts)), self._limits)
        for text, results in measured.steps():
            yield {self._buttons.status: text} | (self._shown(results, HERE) if results else {})
        if (results := measured.results) is None:
            return
        yield {self._files: offered({RESULTS: measured.text}), self._link: self._opening.value(results)}
        if ending := self._ending(context, results):
            yield ending

    def _shown(self, results: Results, origin: Origin) -> Values:
        """Verdict, and the chart and the table if a draft length was measured."""
        plan, found = results.plan, results.trials
        facts = results.about["pair"]
        rows = sweep_rows(summarise(found), takes_one_pass(facts))
        best = marked(rows, found, plan)
        figures = []
        servers = on_servers(facts)
        if any(isinstance(row.gamma, int) for row in rows):  # a server may not tell its draft length
            longest = max((gamma for _, gamma in plan.configs if isinstance(gamma, int)), default=0)
            figures = [sweep_figure(rows, None if best is None else rows[best], longest, servers)]
            figures += small_figures(rows, longest, takes_one_pass(facts))
        notes = filter(None, [provenance.grammar_note(plan.params), block_note(facts), theory_note(rows)])
        return self._findings.show(results, origin, _tables(rows, best, servers) if rows else "", figures, notes)

    def _finished(self, results: Results, origin: Origin) -> Values:
        """A finished sweep that is opened: verdict, chart, table and explanation."""
        return self._shown(results, origin) | self._findings.explain(results)

    def _ending(self, context: JobContext, results: Results) -> Values:
        """The end of a whole sweep: why the fastest draft length is fastest, and the code that uses it."""
        plan, best = results.plan, fastest(summarise(results.trials))
        if best is None or not share_of(results.trials, plan).whole:
            return {}
        item = plan.prompts[0]
        # The code to take home lets the text end at its EOS.
        params, gamma = replace(plan.params, ignore_eos=False), best.gamma or 0
        settings = {"prompt": item.prompt, "chat": int(item.message(context.pair.tokenizer) != item.prompt)}
        started: dict[str, Any] = {
            "pair": context.slot.facts,
            "gamma": gamma if isinstance(gamma, int) else str(policy_of(gamma)),
        }
        started |= {"params": asdict(params), "acceptance": "lossless", "accept_top_k": None}
        answer = json.loads(code_answer(json.dumps({"settings": settings, "started": started})))
        lines = json.dumps({"gamma": started["gamma"]} | answer)
        shown = {
            self._home: gr.update(visible=True),
            self._lines: lines,
            self._link: self._opening.value(results, answer),
        }
        return shown | self._findings.explain(results)

    def _what_if_job(
        self,
        prompt: str,
        chat: bool,
        chosen: list[str],
        tokens: float,
        temperature: float,
        kind: str | None,
        grammar: str | None,
    ) -> Job:
        params = measured_params(tokens, temperature, kind, grammar)
        require_free_text(params)  # before it is recorded
        item = self._items(prompt, chat, chosen)[0]
        # With fewer tokens not all draft lengths are measured.
        params = replace(params, max_new_tokens=min(max(RECORDED, params.max_new_tokens), self._limits.new_tokens))
        work = partial(self._what_if, item=item, params=params)
        return Job(self._record.name, params.max_new_tokens, work, asdict(params))

    def _what_if(self, context: JobContext, item: PromptItem, params: SamplingParams) -> Iterator[Values]:
        status, message, events = self._record.status, item.message(context.pair.tokenizer), list[Event]()
        enforce_limits(context.pair, message, params, self._limits)
        yield {status: html.status(f"Recording {params.max_new_tokens} tokens.")}
        recorded = partial(_recorded, prompt=message, params=params, seconds=self._limits.seconds)
        with closing(context.run_task(Task(recorded, params.max_new_tokens))) as batches:
            for batch in batches:
                events += batch
                if context.stop.is_set():
                    yield {status: html.status("Stopped.")}
                    return
        costs = Costs.of(events)
        outcomes = what_if(events, costs)
        best = fastest_outcome(outcomes)
        yield {
            status: "",
            self._outcomes: outcome_table(item.name, outcomes, best, costs.assumed),
            self.best: best.name,
            self.race_it: gr.update(value=f"Race it: {_named(best)}", visible=True),
        }


def _tables(rows: Sequence[SweepRow], best: int | None, servers: bool) -> str:
    """The fastest row, \u03b3 0 and auto, and a fold with all rows. ``best`` is the marked row."""
    if servers:
        return html.table_html(sweep_table(rows, best, servers))
    first = fastest([row.summary for row in rows])
    telling = [at for at, row in enumerate(rows) if row.gamma in (0, "auto") or row.summary is first]
    table = sweep_table(rows, best)
    caption = table.caption.removesuffix(OWN_LOOP)  # in the terms
    every = html.table_html(replace(table, caption=f"{caption}. {TERMS}"))
    if len(telling) == len(rows):
        return every
    few = replace(table.part(telling, slice(4)), caption=caption, minor=table.columns[3:4])
    return html.table_html(few) + html.folded("All draft lengths", every)


def _recorded(pair: Pair, prompt: Prompt, params: SamplingParams, seconds: float | None) -> Batches:
    """The batches of events that what-if is computed from."""
    return driven(speculative(pair, prompt, gamma=Calibration(), params=params), INTERVAL, seconds)


def _size(chosen: Sequence[str], tokens: float, runs: float, kind: str | None) -> tuple[str, int, int]:
    """The work of a sweep with these values, for ``Buttons.estimate``. ``kind``: of the race's grammar."""
    count, length = len(CONFIGS) * len(chosen) * integer("Runs", runs), integer("New tokens", tokens)
    obeyed = grammar_named(kind)
    return sentences.calls(count, length, obeyed and f"{obeyed}, as set for the race"), count, length


def fastest_outcome(outcomes: Sequence[PredictedRun]) -> PredictedRun:
    """The fastest outcome, except for the oracle, which no real run can reach."""
    real = [outcome for outcome in outcomes if outcome.name != ORACLE]
    return min(real, key=lambda outcome: outcome.seconds_per_token)


def _named(outcome: PredictedRun) -> str:
    return outcome.name if outcome.name == ORACLE else sentences.policy(outcome.name)


def outcome_table(prompt: str, outcomes: Sequence[PredictedRun], best: PredictedRun, assumed: str | None) -> str:
    """Every policy's outcome, with the best one marked."""
    exact = "all values are expected values"
    if any(outcome.exact for outcome in outcomes):
        exact = "tokens per pass are exact, except for a last guess that was not recorded"
    rows = [
        [
            _named(o),
            numbers.number(o.tokens_per_pass, 2),
            f"{o.drafted:.0f}",
            f"{1e3 * o.seconds_per_token:.2f}",
            f"{o.gain:.2f}x",
        ]
        for o in outcomes
    ]
    caption = (
        f"Computed from one recorded run on \u201c{prompt}\u201d, not measured: {exact}; the times are those of the "
        f"measured passes. {assumed or ''} The oracle is the best result that any choice of draft lengths could reach"
    )
    table = FigureTable(caption, WHAT_IF, rows, range(1, 5), outcomes.index(best), minor=("guesses",))
    return html.table_html(table)
