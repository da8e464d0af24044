"""The tab that races servers which run already. Its result is drawn by the live view of the tab Race.

A page that strangers can reach asks only servers that were named when it was started. There this tab has no field for
an address, and no listener that takes one: a visitor sends the place of a server in a list.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import cache, partial
from typing import Any

import gradio as gr

from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.report import sentences
from specdec.report.provenance import RECORDING, day_of, server_rows
from specdec.servers.address import Address, require_address, require_names
from specdec.ui import html
from specdec.ui.assets import ROUTE
from specdec.ui.fields import LABELS, integer, message_place, number_field, read_number
from specdec.ui.jobs.context import Cancelled, Job, JobContext, QueuePosition
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_stream import refusal
from specdec.ui.jobs.server_race import ServerRace, look_at, require_prompt, server_stream
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, followed
from specdec.ui.static_page import SHIPPED, Recording, recording_in
from specdec.ui.tabs.measurement import REFUSED, settings_fold
from specdec.ui.tabs.server_bench import ServerBench
from specdec.ui.tabs.server_checks import ServerChecks

TITLE, KIND = "Your server", "servers"
NEW_TOKENS = 64
RECORDED = "vllm-cpu"  # the recorded race that shows what this tab shows
_READY = "await (await import(%s)).ready;"  # waits until the scripts have their tables
_BEGIN = f"async (...values) => {{ {_READY} window.specdec.begin('servers'); return values; }}"
_OPEN = (
    f"async () => {{ {_READY} const answer = await fetch(new URL(%s, document.baseURI)); "
    "window.specdec.open(await answer.text(), 'gallery'); }"
)
LEDE = (
    "Race two servers that run already, one without speculation and one with it. They answer the same prompt in turns."
)
KEYS = (
    "Any other server that speaks OpenAI's protocol can be raced too; it is shown with its text and its speed. For a "
    "server that needs a key, start this page with `specdec page --server plain=URL --server spec=URL`, and put the "
    "key of `plain` into the environment as `SPECDEC_KEY_PLAIN`."
)
SERVE = (
    "vllm serve MODEL --port 8000 --gpu-memory-utilization 0.4",
    "vllm serve MODEL --port 8001 --gpu-memory-utilization 0.4 --per-request-spec-decode-metrics detailed \\\n"
    '  --speculative-config \'{"method": "draft_model", "model": "DRAFT", "num_speculative_tokens": 5}\'',
)
NO_SERVER = (
    "Start two for the same model, because speculation is switched on or off when a server starts. With vLLM, on one "
    "GPU, in two terminals; then press Check."
)
HELP = "No server yet? How to start two"


class ServerTab:
    """Built inside a ``gr.Tab``. ``named``: the servers that were named at the start; without them visitors type two.

    ``script`` is the address of ``live.js``; ``scripts`` has those of the benchmark's scripts by name.
    """

    def __init__(self, jobs: JobQueue, limits: Limits, named: Sequence[Address], script: str, scripts: dict[str, str]):
        if limits.public and not named:
            raise ValueError("strangers may use this tab only with servers that were named at the start")
        self._jobs, self._limits, self._named = jobs, limits, tuple(named)
        self._begin, self._script = _BEGIN % script, script
        gr.HTML(f'<p class="sd-lede">{LEDE}</p>', apply_default_css=False)
        with gr.Row(elem_id="sd-server-addresses", elem_classes="sd-form"):
            self._chosen = self._named_fields() if self._named else self._typed_fields()
            for field in self._chosen:
                field.elem_classes = [*field.elem_classes, "sd-of-server"]  # what was found goes when it changes
            self._check = gr.Button("Check", variant="secondary", elem_id="sd-server-check")
        self._state = message_place("sd-server-state")
        with gr.Row(elem_id="sd-server-ask", elem_classes="sd-form"):
            self._prompt = gr.Textbox(
                _recording().begin["settings"]["prompt"], label="Prompt: both servers continue it", lines=2,
                max_lines=12, elem_id="sd-server-prompt",
            )  # fmt: skip
        with gr.Row(elem_classes="sd-startRow"):
            self._start = gr.Button("Run race", variant="primary", elem_id="sd-server-start", elem_classes="sd-go")
            self._halt = gr.Button("Stop", variant="secondary", elem_id="sd-server-stop", elem_classes="sd-halt")
            words = "Watch a recorded race of two vLLM servers"
            self._recorded = gr.Button(words, size="sm", elem_id="sd-server-recorded", elem_classes="sd-chip")
        with settings_fold("server"), gr.Row(elem_classes="sd-form"):
            most = limits.new_tokens
            tokens = {"info": f"up to {most}", "elem_id": "sd-server-tokens"}
            self._tokens = number_field(min(NEW_TOKENS, most), LABELS["max_new_tokens"], **tokens)
            temperature = {"info": "0 is greedy", "step": 0.05, "elem_id": "sd-server-temperature"}
            self._temperature = number_field(0, LABELS["temperature"], **temperature)
            if not self._named:
                self._chosen.append(self._model_field())
            message = {"info": "the prompt is a message", "elem_id": "sd-server-chat"}
            self._chat = gr.Checkbox(False, label="Chat", **message)
            whole = {"info": "both write all new tokens", "elem_id": "sd-server-ignore"}
            self._ignore = gr.Checkbox(False, label=LABELS["ignore_eos"], **whole)
        gr.HTML('<div class="sd-saidPlace"></div>', elem_id="sd-server-said", apply_default_css=False)
        self._waiting = gr.HTML("", elem_id="sd-server-waiting", apply_default_css=False)
        fields = [self._prompt, self._tokens, self._temperature, self._chat, self._ignore]
        self._inputs = [*fields, *self._chosen]
        # Takes the live view while this tab is open and servers ran the race that it shows.
        gr.HTML('<div class="sd-livePlace sd-live"></div>', elem_id="sd-server-live", apply_default_css=False)
        gr.HTML(_recorded(), elem_id="sd-server-sample", elem_classes="sd-fragment", apply_default_css=False)
        self._bench = ServerBench(jobs, limits, self._asked, self._inputs, self._tokens, scripts)
        self._checks = ServerChecks(limits, self._asked, self._inputs)
        if not self._named:
            with gr.Accordion(HELP, open=False, elem_id="sd-server-help", elem_classes="sd-after"):
                commands = [("Without speculation", SERVE[0]), ("With it", SERVE[1])]
                made = html.how_to_serve(NO_SERVER, commands, KEYS)
                gr.HTML(made, elem_classes="sd-fragment", apply_default_css=False)

    def _typed_fields(self) -> list[Any]:
        def field(value: str, label: str, name: str, **look: Any) -> gr.Textbox:
            return gr.Textbox(value, label=label, max_lines=1, elem_id=f"sd-server-{name}", **look)

        wide: dict[str, Any] = {"scale": 3, "min_width": 240}
        return [
            field("http://127.0.0.1:8000", "Server without speculation", "plain", **wide),
            field("http://127.0.0.1:8001", "Server with speculation", "spec", **wide),
        ]

    def _model_field(self) -> gr.Textbox:
        return gr.Textbox(
            "", label="Model", info="optional", max_lines=1, min_width=90, elem_id="sd-server-model",
            elem_classes="sd-of-server",
        )  # fmt: skip

    def _named_fields(self) -> list[Any]:
        names = [each.name for each in self._named]
        label = f"Server that is compared with {names[0]}"
        return [gr.Radio(names[1:], value=names[1], label=label, elem_id="sd-server-spec", scale=3)]

    def wire(self, live: Any, named: Callable[[], dict[Any, Any]]) -> None:
        """Wire the buttons. ``live`` is the live view; ``named`` gives the page's header for an answer."""
        self._bench.wire(named)
        self._checks.wire(self._jobs, named)
        outputs, work = [self._waiting, live, *named()], self._racing(live, named)
        ran = self._start.click(work, self._inputs, outputs, js=self._begin, **UNLIMITED, **INTERNAL)
        ran.then(None, self._waiting, js="(said) => { window.specdec.end(said); }", **INTERNAL)
        ran.failure(None, js=f"() => {{ window.specdec.end('', {json.dumps(REFUSED)}); }}", **INTERNAL)
        self._halt.click(self._stop, js="() => { window.specdec.halt(); }", queue=False, **INTERNAL)
        self._check.click(self._checking(), self._chosen, self._state, **UNLIMITED, **INTERNAL)
        script = _OPEN % (self._script, json.dumps(f"{ROUTE}/recordings/{RECORDED}.jsonl"))
        self._recorded.click(None, js=script, **INTERNAL)

    def _servers(self, *chosen: Any) -> tuple[tuple[Address, Address], str | None]:
        """The two servers of a request, and the model to ask for. Raises ``InvalidInput``."""
        if self._named:
            (name,) = chosen
            other = next((each for each in self._named[1:] if each.name == name), None)
            if other is None:
                raise InvalidInput("The request names no server of this page. Nothing ran.")
            return (self._named[0], other), None
        if not all(isinstance(value, str) for value in chosen):
            raise InvalidInput("The request does not name two servers. Nothing ran.")
        plain, spec, model = chosen
        # No key is sent to an address that was typed: the environment's keys are for servers named at the start.
        addresses = tuple(
            Address(name, require_address(name, url.strip())) for name, url in (("plain", plain), ("spec", spec))
        )
        require_names(addresses)
        return (addresses[0], addresses[1]), model.strip() or None

    def _asked(self, prompt: Any, tokens: Any, temperature: Any, chat: Any, ignore: Any, *chosen: Any) -> ServerRace:
        servers, model = self._servers(*chosen)
        if not isinstance(prompt, str):
            raise InvalidInput("The prompt is no text. Nothing ran.")
        params = SamplingParams(
            max_new_tokens=integer(LABELS["max_new_tokens"], tokens),
            temperature=read_number(LABELS["temperature"], temperature),
            ignore_eos=ignore is True,
        )
        self._limits.take(params.max_new_tokens)
        return ServerRace(servers, prompt, params, chat is True, model)

    def _racing(self, live: Any, named: Callable[[], dict[Any, Any]]) -> Callable[..., AsyncIterator[dict[Any, Any]]]:
        async def run(request: gr.Request, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            try:
                yield {self._waiting: ""}
                asked = self._asked(*values)
                require_prompt(asked.prompt, self._limits)
                work = partial(server_stream, ask=asked, limits=self._limits)
                job = Job(KIND, asked.tokens, work, asked.settings())
                async with aclosing(followed(self._jobs, request, job)) as steps:
                    async for step in steps:
                        if isinstance(step, QueuePosition):
                            yield {self._waiting: sentences.ahead(*step)}
                        else:
                            yield {self._waiting: "", live: step.text}
            except Cancelled as error:
                yield {self._waiting: str(error)}
            except (SpecdecError, ValueError) as error:
                yield {self._waiting: "", live: refusal(error)} | named()

        return run

    def _checking(self) -> Callable[..., AsyncIterator[str]]:
        async def check(request: gr.Request, *chosen: Any) -> AsyncIterator[str]:
            try:
                servers, model = self._servers(*chosen)
                job = Job("check of servers", 0, partial(self._look, servers=servers, model=model))
                yield html.status("Asking the servers for a few tokens \u2026")
                async with aclosing(followed(self._jobs, request, job)) as steps:
                    async for step in steps:
                        yield html.status(sentences.ahead(*step)) if isinstance(step, QueuePosition) else step
            except SpecdecError as error:
                yield html.error(str(error))

        return check

    def _look(self, context: JobContext, servers: Sequence[Address], model: str | None) -> Iterator[str]:
        """The state of each server, as cards whose number grows."""
        cards: list[html.ServerCard] = []
        for number, address in enumerate(servers):
            told = look_at(address, model, context.stop.is_set)
            if isinstance(told, str):
                cards.append(html.ServerCard("bad", address.name, "cannot be raced", [], told))
            else:
                level, words = _fitness(number, told["speculation"])
                cards.append(html.ServerCard(level, address.name, "answers", server_rows(told), words))
            yield html.server_states(cards)

    def _stop(self, request: gr.Request) -> None:
        self._jobs.stop(request.session_hash or "", KIND, "race")


@cache
def _recording() -> Recording:
    return recording_in(SHIPPED / f"{RECORDED}.jsonl")


def _recorded() -> str:
    """The verdict of the recorded race and its speeds. They stand where those of a race will be."""
    recording = _recording()
    begin, verdict = recording.begin, recording.verdict
    asked = f"\u201c{begin['settings']['prompt']}\u201d \u00b7 {verdict['caption']}"
    place = f"{begin['pair']} \u00b7 {recording.machine} \u00b7 {day_of(begin['at'])}"
    notes = (note["text"] for note in verdict["notes"])
    found_in = html.FoundIn(asked, RECORDING.sentence, place)
    found = html.verdict_html(verdict["sentence"], verdict["factor"], notes, verdict["about"], found_in=found_in)
    speeds = recording.speeds
    bars = [
        html.LaneBar(label, lane, round(100 * speeds[lane] / max(speeds.values())), verdict["rates"][lane])
        for lane, label in (("generate", "Plain server"), ("speculative", "Speculative server"))
    ]
    return found + html.lane_bars(bars)


def _fitness(number: int, speculates: bool | None) -> tuple[str, str]:
    """Whether a server fits its place in a race, the plain one's or that of the one with speculation, and why not."""
    if number == 0 and speculates:
        return "bad", "This is the plain server of the race, but it speculates. Start one without speculation."
    if number and speculates is False:
        return "note", "It does not speculate either, so the race compares two plain servers."
    return "good", ""
