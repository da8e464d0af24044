"""The tab that races lanes: the form, its buttons, and the live view, which ``assets/live.js`` draws."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import gradio as gr

from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput, SpecdecError
from specdec.measure.prompts import PET_PROMPT, PET_SCHEMA, PromptItem
from specdec.report import sentences
from specdec.report.link_settings import GAMMA
from specdec.ui import html
from specdec.ui.assets import ROUTE
from specdec.ui.fields import message_place, sent
from specdec.ui.jobs.context import Cancelled, Job, QueuePosition
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_settings import REPEATS, RaceSettings, from_recording
from specdec.ui.jobs.race_stream import refusal, stream
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, followed
from specdec.ui.script_tables import definitions, lane_list
from specdec.ui.static_page import RECORDED
from specdec.ui.tabs.measurement import REFUSED, Values
from specdec.ui.tabs.race_form import RaceForm, cause_of

_MOUNT = """
import(%s).then((live) =>
  live.mount(element, props, watch, %s, %s, () => trigger("again"), %s));
"""
_READY = "await (await import(%s)).ready;"  # waits until the scripts have their tables
_BEGIN = f"async (...values) => {{ {_READY} window.specdec.begin(); return values; }}"
_AGAIN = f"async () => {{ {_READY} window.specdec.begin(); return JSON.stringify(window.specdec.shown()); }}"
# An example runs at a click. During a race it waits in the form.
_EXAMPLE = (
    f"async () => {{ {_READY} setTimeout(() => {{ window.specdec.asked(); "
    "if (!window.specdec.running) document.querySelector('#sd-run').click(); }, 50); }"
)
_CHIPS = 'import(%s).then((examples) => examples.mount(element, () => trigger("example"), %s));'
_ASKED = f"async () => {{ {_READY} setTimeout(() => window.specdec.asked(), 50); }}"  # the fields have new values


class RaceTab:
    """Built inside a ``gr.Tab``. ``ask`` makes the form's fields.

    ``script`` is the address of ``live.js``, and ``chips`` that of ``examples.js``.
    """

    def __init__(
        self, jobs: JobQueue, limits: Limits, ask: RaceForm, examples: Sequence[PromptItem], script: str, chips: str
    ):
        self._jobs, self._limits, self._ask = jobs, limits, ask
        codes = (_BEGIN, _AGAIN, _ASKED, _EXAMPLE)
        self._begin, self._again, self._asked, self._example = (code % script for code in codes)
        with gr.Row(elem_id="sd-line"):
            # The form in one line. The live view puts its own there, which can be used.
            line = html.form_line(examples[0].prompt, GAMMA, ask.first_tokens)
            gr.HTML(f'<div class="sd-linePlace">{line}</div>', elem_id="sd-summary", apply_default_css=False)
            self.start = gr.Button("Run race", variant="primary", elem_id="sd-run")
            self._halt = gr.Button("Stop", variant="secondary", elem_id="sd-stop")
        # Messages about the form, above it. The live view fills the first.
        gr.HTML('<div class="sd-saidPlace"></div>', elem_id="sd-said", apply_default_css=False)
        self.problems = message_place("sd-problems")
        self._waiting = gr.HTML("", elem_id="sd-waiting", apply_default_css=False)
        # An example has no grammar but the last, so each sets the field; a grammar that was typed stays in its own.
        filled = [[example.prompt, "", gr.skip()] for example in examples]
        filled.append([PET_PROMPT, "json-schema", PET_SCHEMA.read_text(encoding="utf-8")])
        row = html.chips([*(example.name for example in examples), "JSON"], RECORDED)
        mount = _CHIPS % (chips, json.dumps(filled))
        self._chips = gr.HTML(row, js_on_load=mount, elem_id="sd-chips", apply_default_css=False)
        with gr.Row(elem_id="sd-ask"):
            with gr.Column(scale=7, min_width=320):
                self.prompt = ask.prompt_field(examples[0].prompt)
                ask.chat_field()
                ask.grammar_fields()
            with gr.Column(scale=5, min_width=300, elem_id="sd-settings"):
                ask.setting_fields()
        fields = [self.prompt, ask.grammar, ask.grammar_text]
        chosen = self._chips.example(None, None, fields, js="() => window.specdec.example", **INTERNAL)
        chosen.then(None, js=self._example, **INTERNAL)
        self.live = gr.HTML(
            "",
            html_template="",
            js_on_load=_MOUNT
            % (
                script,
                lane_list(),
                definitions(),
                json.dumps({name: f"{ROUTE}/recordings/{name}.jsonl" for name in RECORDED}),
            ),
            apply_default_css=False,
            elem_id="sd-live",
            elem_classes="sd-live",
        )

    def wire(self, link: gr.Textbox, named: Callable[[], Values]) -> None:
        """Wire the buttons. ``link`` takes the race to run again; ``named`` gives the page's header for an answer."""

        def run_on(event: Any, read: Callable[..., RaceSettings], values: Any, begin: str) -> None:
            outputs = [self._waiting, self.live, *named()]
            ran = event(self._racing(read, named), values, outputs, js=begin, **UNLIMITED, **INTERNAL)
            ran.then(None, self._waiting, js="(said) => { window.specdec.end(said); }", **INTERNAL)
            ended = f"() => {{ window.specdec.end('', {json.dumps(REFUSED)}); }}"
            ran.failure(None, js=ended, **INTERNAL)

        run_on(self.start.click, self._ask.read, self._ask.inputs, self._begin)
        run_on(self.live.again, self._shown_again, link, self._again)  # Gradio finds "again" in _MOUNT
        self._halt.click(self._stop, js="() => { window.specdec.halt(); }", queue=False, **INTERNAL)

    def tell(self, event: Any) -> Any:
        """Let the scripts read the fields again after ``event``, which has set them."""
        return event.then(None, js=self._asked, **INTERNAL)

    def restore(self, link: str, chat: bool) -> tuple[Any, ...]:
        """The fields' values from the settings in a link, and what could not be used. ``chat``: as in ``RaceForm``."""
        try:
            values, problems = self._ask.restore(sent(link), chat)
        except InvalidInput as error:
            values, problems = [gr.skip() for _ in self._ask.inputs], {"": str(error)}
        return *values, "".join(html.error(said, cause_of(name)) for name, said in problems.items())

    def with_length(self, best: str) -> list[Any]:
        """The values that put the best draft length of What if into the form, and open this tab."""
        said = html.note(f"Set from What if: {sentences.policy(best)}. Press Run race to measure it.")
        return [gr.update(selected="race"), said, *self._ask.length_values(gamma_of(best))]

    def _racing(
        self, read: Callable[..., RaceSettings], named: Callable[[], Values]
    ) -> Callable[..., AsyncIterator[dict[Any, Any]]]:
        """A listener that runs the race that ``read`` makes of its inputs."""

        async def run(request: gr.Request, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            try:
                yield {self._waiting: ""}
                asked = read(*values)
                self._limits.take(asked.params.max_new_tokens, asked.runs, grammar=asked.params.grammar)
                job = Job("race", asked.tokens, partial(stream, ask=asked, limits=self._limits), asked.settings())
                waited, first = False, True
                async with aclosing(followed(self._jobs, request, job)) as steps:
                    async for step in steps:
                        if isinstance(step, QueuePosition):
                            waited = True
                            yield {self._waiting: sentences.ahead(*step)}
                            continue
                        yield (
                            {self.live: step.text}
                            | ({self._waiting: ""} if waited else {})
                            | (named() if first else {})
                        )
                        waited = first = False
            except Cancelled as error:
                yield {self._waiting: str(error)}
            except (SpecdecError, ValueError) as error:
                yield {self._waiting: "", self.live: refusal(error)} | named()

        return run

    def _shown_again(self, shown: str) -> RaceSettings:
        """The race that the page shows, whatever its fields contain now."""
        match sent(shown):
            case {"settings": dict(settings), "repeat": repeat}:
                return from_recording(settings, self._limits, runs=REPEATS if repeat else None)
        raise InvalidInput("The request does not name the run to repeat. Nothing ran.")

    def _stop(self, request: gr.Request) -> None:
        self._jobs.stop(request.session_hash or "", "race", "servers")
