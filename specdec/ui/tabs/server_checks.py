"""Below the race of the tab Your server: both servers under load, and whether their texts are the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gradio as gr

from specdec.errors import BadSetting, InvalidInput, SpecdecError
from specdec.lanes.table import require_runs
from specdec.measure.detectable import LEVEL
from specdec.report import sentences
from specdec.report.court import NEAR_TIE, court_counts, court_headline, finding_sentence, sampled_sentences
from specdec.report.load import load_rows, load_table, load_verdict
from specdec.servers.court import DRAWN_TOKENS
from specdec.servers.load import levels_to
from specdec.ui import html
from specdec.ui.charts.drawn import drawn, figure_place
from specdec.ui.charts.load import load_figure
from specdec.ui.fields import LABELS, integer, number_field
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.server_checks import LoadSoFar, TextsSoFar, load_steps, load_tokens, text_steps
from specdec.ui.jobs.server_race import ServerRace, require_prompt
from specdec.ui.tabs.measurement import CHART_EVERY, Buttons, Values

AT_ONCE, RUNS, DRAWS = 8, 3, 200
MOST_AT_ONCE, MOST_AT_ONCE_PUBLIC = 64, 8
LOAD = (
    "How fast is each server with 1, 2, 4 \u2026 calls at once, and up to how many does speculation pay? Each worker "
    "sends its next prompt when its last answer has ended. The prompts are examples; length, temperature and chat are "
    "those above."
)
TEXT = (
    "Does the server with speculation write what the other one writes? At temperature 0 both continue example prompts, "
    "token by token; above 0, two samples of short continuations of the prompt above are compared."
)
LOAD_TITLE, TEXT_TITLE = "Under load: many calls at once", "Same text? Compare both servers"
STOPPED = "Stopped: this is what was known by then."


class ServerChecks:
    """Built inside the tab. ``asking`` reads the tab's fields, whose values are ``inputs``. Raises ``InvalidInput``."""

    def __init__(self, limits: Limits, asking: Callable[..., ServerRace], inputs: list[Any]):
        self._limits, self._asking, self._inputs = limits, asking, inputs
        look = {"elem_classes": "sd-fragment", "apply_default_css": False}
        with gr.Accordion(LOAD_TITLE, open=False, elem_id="sd-server-load-fold", elem_classes="sd-after"):
            gr.HTML(html.note(LOAD), apply_default_css=False)
            with gr.Row(elem_classes="sd-form"):
                most = MOST_AT_ONCE_PUBLIC if limits.public else MOST_AT_ONCE
                self._most = most
                self._at_once = number_field(
                    AT_ONCE,
                    "Calls at once",
                    info=f"1, 2, 4 \u2026 up to this; at most {most}",
                    elem_id="sd-server-load-at",
                )
                self._runs = number_field(
                    RUNS, LABELS["runs"], info=f"up to {limits.runs}", elem_id="sd-server-load-runs"
                )
            self._load = Buttons("Measure load", "server-load")
            self._load_verdict = gr.HTML("", elem_id="sd-server-load-verdict", **look)
            self._load_plot = figure_place("sd-server-load-plot")
            self._load_table = gr.HTML("", elem_id="sd-server-load-table", **look)
        with gr.Accordion(TEXT_TITLE, open=False, elem_id="sd-server-text-fold", elem_classes="sd-after"):
            gr.HTML(html.note(TEXT), apply_default_css=False)
            with gr.Row(elem_classes="sd-form"):
                self._draws = number_field(
                    min(DRAWS, limits.draws), "Draws", info="of each server, above temperature 0",
                    elem_id="sd-server-text-draws",
                )  # fmt: skip
            self._text = Buttons("Compare texts", "server-text")
            self._text_verdict = gr.HTML("", elem_id="sd-server-text-verdict", **look)

    def wire(self, jobs: JobQueue, named: Callable[[], Values]) -> None:
        cleared: Values = {self._load_verdict: "", self._load_plot: gr.update(visible=False), self._load_table: ""}
        self._load.wire(jobs, self._load_job, [*self._inputs, self._at_once, self._runs], cleared, named)
        self._text.wire(jobs, self._text_job, [*self._inputs, self._draws], {self._text_verdict: ""}, named)

    def _load_job(self, *values: Any) -> Job:
        *asked, at_once, runs = values
        ask, most, count = self._asking(*asked), integer("Calls at once", at_once), integer(LABELS["runs"], runs)
        if most > self._most:
            raise BadSetting(f"{most} calls at once are asked for; this page makes at most {self._most}. Nothing ran.")
        levels = levels_to(most)
        require_runs(count)
        self._limits.take(ask.params.max_new_tokens, count)
        work = partial(self._measure, ask=ask, levels=levels, runs=count)
        return Job(self._load.name, load_tokens(ask, levels, count), work)

    def _measure(self, context: JobContext, ask: ServerRace, levels: list[int], runs: int) -> Iterator[Values]:
        status, names = self._load.status, [server.name for server in ask.servers]
        found, shown_at = None, float("-inf")
        yield {status: html.status("Asking both servers once \u2026")}
        try:
            for found in load_steps(context, ask, levels, runs, self._limits):
                last, done = found.runs[-1], len(found.runs) / found.planned
                said = html.status(f"{last.at_once} at once, {last.server}: {last.rate:.0f}\u00a0tokens/s", done)
                values: Values = {}
                if time.monotonic() - shown_at > CHART_EVERY and (values := self._load_values(found, names)):
                    shown_at = time.monotonic()
                yield {status: said} | values
        except SpecdecError:
            if found is not None:
                yield self._load_values(found, names)  # what was measured before it
            raise
        if found is not None:
            ended = len(found.runs) == found.planned
            yield {status: "" if ended else html.status(STOPPED)} | self._load_values(found, names)

    def _load_values(self, found: LoadSoFar, names: Sequence[str]) -> Values:
        """Verdict, chart and table of the same runs; empty before both servers have one."""
        rows = load_rows(found.runs, names)
        if not rows:
            return {}
        first, *more = [*load_verdict(rows, found.guesses), sentences.AT_THE_CLIENT_TOO]
        return {
            self._load_verdict: html.verdict_html(first, None, more),
            self._load_plot: gr.update(value=drawn(load_figure(rows)), visible=True),
            self._load_table: html.table_html(load_table(rows, names)),
        }

    def _text_job(self, *values: Any) -> Job:
        *asked, draws = values
        ask, count = self._asking(*asked), integer("Draws", draws)
        if not ask.params.greedy:
            if count < DRAWS // 4:
                raise InvalidInput(f"Draws must be {DRAWS // 4} or more, for a difference to be found at all.")
            require_prompt(ask.prompt, self._limits)
            self._limits.take(DRAWN_TOKENS, draws=count)
        work = partial(self._compare, ask=ask, count=count)
        return Job(self._text.name, ask.params.max_new_tokens * len(ask.servers), work)

    def _compare(self, context: JobContext, ask: ServerRace, count: int) -> Iterator[Values]:
        status, names = self._text.status, (ask.servers[0].name, ask.servers[1].name)
        found = None
        yield {status: html.status("Asking both servers \u2026")}
        for found in text_steps(context, ask, count, self._limits):
            done = max(len(found.findings), found.drawn)
            of = f"{done} of {found.planned} {'prompts' if ask.params.greedy else 'continuations of each'}"
            yield {status: html.status(of, done / found.planned)} | self._text_values(found, names, count)
        ended = found is not None and (found.compared is not None or len(found.findings) == found.planned)
        yield {status: "" if ended else html.status(STOPPED)}

    def _text_values(self, found: TextsSoFar, names: tuple[str, str], count: int) -> Values:
        if found.compared is not None:
            first, *more = sampled_sentences(found.compared, LEVEL, count, DRAWN_TOKENS, names)
            return {self._text_verdict: html.verdict_html(first, None, more)}
        if not found.findings:
            return {}
        headline, counts = court_headline(found.findings, *names), court_counts(found.findings)
        margin = [NEAR_TIE] if any(each.margin is not None for each in found.findings) else []
        each = "".join(html.paragraph(finding_sentence(one, *names)) for one in found.findings)
        shown = html.verdict_html(headline, None, [" ".join([counts, *margin])])
        return {self._text_verdict: shown + html.folded("Prompt by prompt", each)}
