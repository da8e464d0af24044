"""Below the race of the tab Your server: a benchmark of both servers over many prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError
from specdec.lanes.table import BASELINE
from specdec.measure.plan import Plan
from specdec.measure.results.format import Results
from specdec.report import sentences
from specdec.report.provenance import ON_SERVERS
from specdec.servers.bench import UNTOLD
from specdec.ui import html
from specdec.ui.fields import LABELS, integer, number_field
from specdec.ui.files import file_buttons, offered
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.server_bench import ServersCalls
from specdec.ui.jobs.server_race import ServerRace, require_prompt
from specdec.ui.tabs.benchmark_result import RESULTS, benchmark_files, shown_benchmark
from specdec.ui.tabs.measurement import Buttons, Measurement, ResultPanel, Values
from specdec.ui.tabs.prompt_set import PromptSet, prompts_in
from specdec.ui.tabs.results_io import link_field, link_value, text_for_link

NAME, TITLE, RUNS = "server-bench", "Benchmark: many prompts", 3
CONFIGS = BASELINE, UNTOLD  # until the server has told how many guesses it makes
NOTE = (
    "How much faster is the server with speculation over many prompts, and on which? Both servers answer each prompt, "
    "one after the other and in turns. Length, temperature and chat are those above."
)


class ServerBench:
    """Built inside the tab. ``asking`` reads the tab's fields, whose values are ``inputs``. Raises ``InvalidInput``.

    ``tokens`` is the field among them for the length of an answer. ``scripts`` has the addresses of scripts by name.
    """

    def __init__(
        self,
        jobs: JobQueue,
        limits: Limits,
        asking: Callable[..., ServerRace],
        inputs: list[Any],
        tokens: gr.Number,
        scripts: dict[str, str],
    ):
        self._jobs, self._limits, self._asking, self._inputs, self._tokens = jobs, limits, asking, inputs, tokens
        with gr.Accordion(TITLE, open=False, elem_id=f"sd-{NAME}-fold", elem_classes="sd-after") as self._fold:
            gr.HTML(html.note(NOTE), apply_default_css=False)
            with gr.Row(elem_classes="sd-form"):
                self._set = PromptSet(NAME, scripts["files"], jobs, limits)
                self._first = self._set.first_field()
                self._runs = number_field(
                    min(RUNS, limits.runs), LABELS["runs"], info=f"up to {limits.runs}", elem_id=f"sd-{NAME}-runs"
                )
            self._buttons = Buttons("Run benchmark", NAME)
            self._findings = ResultPanel(NAME)
            hint = f"{RESULTS} contains every call. The tab Benchmark opens it."
            self._files = file_buttons(scripts["files"], "Save results", hint, f"sd-{NAME}-files", NAME)
            self._link = link_field("bench", scripts["results"], NAME)

    def wire(self, named: Callable[[], Values]) -> None:
        sized = [self._set.categories, self._tokens, self._first, self._runs]
        opened = self._fold.expand
        self._buttons.estimate(self._jobs, opened, sized, _size, by_race=False, after=self._set.wire())
        cleared = self._findings.cleared | {self._files: None, self._link: None}
        asked = [self._set.file, self._first, self._runs, *self._inputs]
        self._buttons.wire(self._jobs, self._job, asked, cleared, named)

    def _job(self, prompts: Any, first: str | None, runs: float | None, *asked: Any) -> Job:
        ask = self._asking(*asked)
        choice, items = self._set.read(prompts, first, ask.chat)
        plan = Plan(items, CONFIGS, ask.params, integer(LABELS["runs"], runs), choice)
        self._limits.take(ask.params.max_new_tokens, plan.runs, len(plan.prompts))
        for item in items:
            require_prompt(item.prompt, self._limits)
        counted = {"prompts": len(plan.prompts), "runs": plan.runs, "first": choice.first, "chat": choice.chat}
        tokens = plan.tokens + len(CONFIGS) * ask.params.max_new_tokens  # each server is warmed up
        return Job(NAME, tokens, partial(self._measure, calls=ServersCalls(ask, plan)), counted)

    def _measure(self, context: JobContext, calls: ServersCalls) -> Iterator[Values]:
        measured = Measurement(context, calls.run(context, self._limits), len(calls.asked), self._limits)
        try:
            for text, results in measured.steps():
                yield {self._buttons.status: text} | (self._shown(results, calls) if results else {})
        except SpecdecError:
            if results := measured.results:  # what was measured before a server failed
                yield self._shown(results, calls) | self._ending(results, measured.text)
            raise
        if results := measured.results:
            yield self._ending(results, measured.text)

    def _shown(self, results: Results, calls: ServersCalls) -> Values:
        plain, other = calls.engines
        note = sentences.TWO_ENGINES.format(plain=plain, speculative=other)
        return shown_benchmark(self._findings, results, ON_SERVERS, [note] if plain != other else [])

    def _ending(self, results: Results, text: str) -> Values:
        shown = {self._files: offered(benchmark_files(results, text)), self._link: link_value(text_for_link(results))}
        return shown | self._findings.explain(results)


def _size(
    categories: Sequence[str], tokens: float | None, first: str | None, runs: float | None
) -> tuple[str, int, int]:
    """The work of a benchmark with these values, for ``Buttons.estimate``."""
    count = prompts_in(categories, first) * len(CONFIGS) * integer(LABELS["runs"], runs)
    length = integer(LABELS["max_new_tokens"], tokens)
    return sentences.calls(count, length), count, length
