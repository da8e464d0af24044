"""The tab that measures lanes over a prompt set and offers the tables as files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput, quoted
from specdec.lanes.table import LANES, Lane, LaneConfig, lane_configs
from specdec.measure.plan import Plan
from specdec.measure.prompts import NAME
from specdec.measure.results.format import Results
from specdec.report import sentences
from specdec.report.provenance import HERE, Origin
from specdec.ui.fields import integer, number_field
from specdec.ui.files import TextFile, chosen, file_buttons, file_field, offered
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.tabs.benchmark_result import RESULTS, benchmark_files, shown_benchmark
from specdec.ui.tabs.compare import ComparePanel
from specdec.ui.tabs.grammar_field import grammar_fields, grammar_named
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
from specdec.ui.tabs.prompt_set import PromptSet, prompts_in
from specdec.ui.tabs.results_io import Opening, kept_results

LEDE = "Compares methods over many prompts, by their speed-up over plain generate."
KNOWN = "The embedded pair writes stories, dialogue and Python, and copies text; results on other prompts mean little."
MOST_TEXT = 200  # characters in the field for draft lengths


class BenchTab:
    """Built inside a ``gr.Tab``. ``scripts`` has the addresses of scripts by name."""

    def __init__(self, jobs: JobQueue, limits: Limits, scripts: dict[str, str]):
        files = scripts["files"]
        self._jobs, self._limits = jobs, limits
        gr.HTML(f'<p class="sd-lede">{LEDE}</p>', apply_default_css=False)
        self._opening = Opening("bench", scripts["results"], jobs, kept_results("bench"))
        self._buttons = Buttons("Run benchmark", "bench", self._opening.button)
        with settings_fold("bench"):
            with gr.Row(elem_classes="sd-form"):
                most = f"up to {limits.file_bytes / 1e6:g} MB"
                self._set = PromptSet("bench", files, jobs, limits)
                hint = f"A {RESULTS} with the same settings, {most}. Its calls are not measured again."
                self._earlier = file_field(files, "Earlier results (optional)", hint, "sd-bench-earlier", limits)
            with gr.Row(elem_classes="sd-form"):
                self._lanes = gr.CheckboxGroup(
                    [(lane.choice, lane.key) for lane in _choices()],
                    label="Further lanes",
                    elem_id="sd-bench-lanes",
                )
                self._gammas = gr.Textbox(
                    "3 5 8", label="Draft lengths (numbers or auto)", max_lines=1, elem_id="sd-bench-gammas"
                )
            with gr.Row(elem_classes="sd-form"):
                sized = sizes("bench", limits, tokens=64, runs=3)
                first = self._set.first_field()
                temperature = number_field(
                    0, "Temperature", info="0 is greedy", step=0.05, elem_id="sd-bench-temperature"
                )
                self.chat = gr.Checkbox(label="Chat", elem_id="sd-bench-chat")
            with gr.Column(elem_classes="sd-form"):
                kind, grammar = grammar_fields("sd-bench-grammar")
            self._sizes = [*sized, first, kind]
            self._settings = [*sized, first, temperature, self.chat, kind, grammar]
        self._findings = ResultPanel("bench")
        hint = f"{RESULTS} contains every call. To continue this benchmark, give it as earlier results."
        self._files = file_buttons(files, "Save results", hint, "sd-bench-files", "bench")
        self._link = self._opening.link_field()
        self._compare = ComparePanel(jobs, files, RESULTS)

    def wire(self, tab: gr.Tab, address: gr.HTML, named: Callable[[], Values]) -> None:
        asked = [self._set.file, self._earlier, self._lanes, self._gammas, *self._settings]
        sized = [self._set.categories, self._lanes, self._gammas, *self._sizes]
        self._buttons.estimate(self._jobs, tab.select, sized, _size, after=self._set.wire())
        cleared = self._findings.cleared | {self._files: None, self._link: None}
        self._buttons.wire(self._jobs, self._job, asked, cleared, named)
        self._compare.wire()
        self._opening.wire(tab, address, self._buttons.status, cleared, self._finished)

    def _job(
        self,
        prompts: Any,
        earlier: Any,
        lanes: list[str],
        gammas: str,
        tokens: float | None,
        runs: float | None,
        first: str | None,
        temperature: float | None,
        chat: bool,
        kind: str | None,
        grammar: str | None,
    ) -> Job:
        choice, items = self._set.read(prompts, first, bool(chat))
        before = chosen(earlier, self._limits)
        params = measured_params(tokens, temperature, kind, grammar)
        plan = Plan(items, _configs(lanes, gammas), params, integer("Runs", runs), choice)
        self._limits.take(params.max_new_tokens, plan.runs, len(plan.prompts), grammar=params.grammar)
        asked = {"prompts": len(plan.prompts), "runs": plan.runs, "lanes": lanes, "gammas": gammas}
        asked |= {"first": choice.first, "chat": choice.chat}
        work = partial(self._measure, plan=plan, before=before)
        return Job(self._buttons.name, plan.tokens, work, asked | logged(params))

    def _measure(self, context: JobContext, plan: Plan, before: TextFile | None) -> Iterator[Values]:
        measured = pair_measurement(context, plan, self._limits, before)
        for text, results in measured.steps():
            yield {self._buttons.status: text} | (self._shown(results, HERE) if results else {})
        if results := measured.results:
            yield self._ending(results, measured.text)

    def _shown(self, results: Results, origin: Origin) -> Values:
        unknown = results.about["pair"]["name"] == "embedded" and results.plan.chosen.name != NAME
        return shown_benchmark(self._findings, results, origin, [KNOWN] if unknown else [])

    def _finished(self, results: Results, origin: Origin) -> Values:
        """A finished benchmark that is opened: verdict, chart, table and explanation."""
        return self._shown(results, origin) | self._findings.explain(results)

    def _ending(self, results: Results, text: str) -> Values:
        files = offered(benchmark_files(results, text))
        return {self._files: files, self._link: self._opening.value(results)} | self._findings.explain(results)


def _size(
    categories: Sequence[str],
    lanes: Sequence[str],
    gammas: str,
    tokens: float | None,
    runs: float | None,
    first: str | None,
    kind: str | None,
) -> tuple[str, int, int]:
    """The work of a benchmark with these values, for ``Buttons.estimate``."""
    prompts = prompts_in(categories, first)
    count, length = prompts * len(_configs(lanes, gammas)) * integer("Runs", runs), integer("New tokens", tokens)
    return sentences.calls(count, length, grammar_named(kind)), count, length


def _choices() -> list[Lane]:
    """The lanes that run only if they are chosen."""
    return [lane for lane in LANES if not lane.race and lane.bench is not None]


def _configs(lanes: Sequence[str], gammas: str) -> tuple[LaneConfig, ...]:
    if unknown := set(lanes) - {lane.key for lane in _choices()}:
        raise InvalidInput(f"There is no lane {quoted(sorted(unknown))} in the list. Nothing ran.")
    keys = [lane.key for lane in LANES if lane.race or lane.key in lanes]
    return lane_configs(keys, _lengths(gammas))


def _lengths(text: str) -> list[int | str]:
    if len(text) > MOST_TEXT:
        raise InvalidInput(f"The draft lengths have {len(text)} characters; write at most {MOST_TEXT}.")
    try:
        found = [gamma_of(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise InvalidInput(
            f"The draft lengths are {quoted(text)}; give numbers from 0 to 16, auto, or confidence:0.4."
        ) from error
    if not found:
        raise InvalidInput("No draft length is given; write some, for example 3 5 8.")
    return found
