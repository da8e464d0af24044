"""The tab that tests by sampling whether a lane keeps the target's distribution."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import gradio as gr

from specdec.errors import InvalidInput
from specdec.lanes.table import row_of
from specdec.measure.losslessness import (
    LEAST,
    OURS,
    PARTS,
    PROMPT,
    SAMPLES,
    TOKENS,
    Common,
    LosslessnessResult,
    Progress,
    self_test,
    testable,
)
from specdec.measure.results.file import measured_on
from specdec.measure.results.losslessness import LosslessnessRecord, losslessness_text, read_losslessness
from specdec.measure.task import Task
from specdec.report.losslessness import (
    STOPPED,
    losslessness_headline,
    losslessness_notes,
    samples_table,
    steps_table,
)
from specdec.report.numbers import duration
from specdec.report.provenance import HERE, Origin, provenance_line
from specdec.ui import html
from specdec.ui.charts.drawn import drawn, figure_place
from specdec.ui.charts.samples import samples_figure
from specdec.ui.fields import integer, number_field
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.tabs.measurement import CHART_EVERY, Buttons, Values, settings_fold
from specdec.ui.tabs.results_io import Kept, Opening

LEDE = "Does speculation change how often each text is drawn? Draw many and compare."
METHOD = (
    "Every race compares greedy text token for token. With sampling, the distribution must stay the same. So this test "
    "draws many short continuations of one prompt with plain generate and with the lane to test, and compares the two "
    "samples. A third sample, with lossy top-k acceptance, shows that the test can detect a difference. A lane that "
    "records its probabilities also writes longer texts, and each step of them is tested: whether p is the target's "
    "distribution, and whether guesses, acceptance and corrections follow p and q. Prompt and settings are the test's "
    "own: what the form of the race holds has no effect, and the texts obey no grammar."
)
DRAWS, DRAWS_PUBLIC = 500, 200  # of each sample, unless somebody chooses another number
LOOK_AT = (
    "Common continuations of \u201c{prompt}\u201d: {shown} of {draws} plain draws. Without loss a blue bar ends in its "
    "grey band 19 times in 20."
)
ASKED = "{draws} draws of {tokens} tokens each, temperature {temperature:g}, \u03b3 {gamma}"
_KEPT = Kept("recorded_lossless.json", read_losslessness, read_losslessness, losslessness_text)


class LosslessTab:
    """Built inside a ``gr.Tab``. ``script`` is the address of ``results.js``."""

    def __init__(self, jobs: JobQueue, limits: Limits, script: str):
        self._jobs, self._limits = jobs, limits
        gr.HTML(f'<p class="sd-lede">{LEDE}</p>', apply_default_css=False)
        self._opening = Opening("lossless", script, jobs, _KEPT)
        self._buttons = Buttons("Run test", "lossless")
        with settings_fold("lossless"), gr.Row(elem_classes="sd-form"):
            self._lane = gr.Radio(
                [(row_of(key).choice, key) for key in testable()],
                value=OURS,
                label="Lane to test",
                min_width=320,  # on a phone the field comes below
                elem_id="sd-lossless-lane",
            )
            self._draws = number_field(
                DRAWS_PUBLIC if limits.public else DRAWS,
                "Draws",
                info=f"{LEAST['draws']} to {limits.draws:,}; four times as many find about half the bias",
                elem_id="sd-lossless-draws",
            )
        look = {"elem_classes": "sd-fragment", "apply_default_css": False}
        self._verdict = gr.HTML("", elem_id="sd-lossless-verdict", **look)
        self._plot = figure_place("sd-lossless-plot")
        self._table = gr.HTML("", elem_id="sd-lossless-table", **look)
        self._link = self._opening.link_field()

    def wire(self, tab: gr.Tab, address: gr.HTML, named: Callable[[], Values]) -> None:
        cleared: Values = {self._verdict: "", self._plot: gr.update(visible=False), self._table: "", self._link: None}
        self._opening.wire(tab, address, self._buttons.status, cleared, self._shown)
        self._buttons.estimate(self._jobs, tab.select, [self._draws], _size, by_race=False)
        self._buttons.wire(self._jobs, self._job, [self._lane, self._draws], cleared, named)

    def _job(self, lane: str, draws: float | None) -> Job:
        count, seconds = integer("Draws", draws), self._limits.seconds
        self._limits.take(TOKENS, draws=count)
        task = Task(partial(self_test, lane=lane, draws=count, seconds=seconds), PARTS * count * TOKENS)
        return Job(self._buttons.name, task.tokens, partial(self._test, task=task, lane=lane))

    def _test(
        self, context: JobContext, task: Task[Progress | LosslessnessResult], lane: str
    ) -> Iterator[dict[Any, Any]]:
        status, most = self._buttons.status, self._limits.seconds
        shown = charted = 0.0
        with closing(context.run_task(task)) as steps:
            for step in steps:
                if isinstance(step, LosslessnessResult):
                    record: LosslessnessRecord = {"about": measured_on(context.pair), "findings": step}
                    yield {status: "", self._link: self._opening.value(record)} | self._shown(record, HERE)
                elif context.stop.is_set():
                    yield {status: html.status(STOPPED)}
                    return
                elif most is not None and context.seconds > 2 * most:
                    drew = step.done // SAMPLES if step.unit == "continuations" else 0
                    raise InvalidInput(
                        f"This pair is too slow for the test: it drew {drew} continuations of each sample "
                        f"in {2 * most:.0f}\u00a0s, and {LEAST['draws']} are needed. Test it on your own machine."
                    )
                elif (now := time.monotonic()) - shown > 0.25 or step.common:
                    shown = now
                    context.counts["drawn"] = step.done if step.unit == "continuations" else 0
                    values: dict[Any, Any] = {status: _progress(step, context.seconds)}
                    if step.common and now - charted > CHART_EVERY:
                        charted = now
                        values[self._plot] = self._chart(step.common, step.draws, lane)
                        values[self._verdict] = _look_at(step.common, step.draws)
                    yield values

    def _shown(self, record: LosslessnessRecord, origin: Origin) -> Values:
        found = record["findings"]
        asked = ASKED.format(
            draws=f"{found.draws:,}", tokens=found.params.max_new_tokens, temperature=found.params.temperature,
            gamma=found.gamma,
        )  # fmt: skip
        found_in = html.FoundIn(asked, origin.sentence, provenance_line(record["about"]))
        notes = losslessness_notes(found)
        told = html.verdict_html(losslessness_headline(found), notes=notes, found_in=found_in)
        table = html.table_html(samples_table(found))
        if found.steps is not None:
            table += html.table_html(steps_table(found.steps))
        return {
            self._verdict: told + _look_at(found.common, found.draws),
            self._plot: self._chart(found.common, found.draws, found.lane),
            self._table: html.folded("How the test works, and its figures", html.paragraph(METHOD) + table),
        }

    def _chart(self, found: Sequence[Common], draws: int, lane: str) -> Any:
        return gr.update(value=drawn(samples_figure(found, draws, lane)), visible=True)


def _look_at(found: Sequence[Common], draws: int) -> str:
    """How to read the chart."""
    shown = sum(common.plain for common in found)
    return html.paragraph(LOOK_AT.format(prompt=PROMPT, shown=f"{shown:,}", draws=f"{draws:,}"))


def _size(draws: float | None) -> tuple[str, int, int]:
    """The work of a test, for the estimate beside Start."""
    count = integer("Draws", draws)
    work = f"{SAMPLES} \u00d7 {count:,} draws and a test of each step"
    return work, PARTS * count, TOKENS


# The part of the bar for the texts that are tested step by step, and that for the samples.
_SHARES = {"tokens": (0.0, 1 - SAMPLES / PARTS), "continuations": (1 - SAMPLES / PARTS, SAMPLES / PARTS)}


def _progress(step: Progress, seconds: float) -> str:
    """The progress of the whole test, whose first ``seconds`` are over."""
    before, share = _SHARES[step.unit]
    done = before + share * step.done / step.total
    left = f" About {duration(seconds / done - seconds)} left." if done > 0.05 else ""
    return html.status(f"{step.done:,} of {step.total:,} {step.unit} drawn.{left}", done)
