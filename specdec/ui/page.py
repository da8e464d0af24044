"""The page: layout and wiring. What a race shows is drawn by ``assets/live.js`` from ``stream``'s lines."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from specdec import words
from specdec.errors import SpecdecError
from specdec.events import MAX_GAMMA, SamplingParams
from specdec.slot import Slot
from specdec.ui.limits import LOCAL, Limits
from specdec.ui.pairs import PairPanel
from specdec.ui.serving import ROUTE, plotly_address
from specdec.ui.startup import StartupRace
from specdec.ui.stream import refusal, stream

GAMMA = 5
PROMPTS = Path(__file__).parents[2] / "examples" / "prompts.jsonl"

# Everything the script needs arrives as arguments; no text of a model or a person is ever part of it.
_MOUNT = f"""
import(new URL("{ROUTE}/live.js", document.baseURI).href).then((live) =>
  live.mount(element, props, watch, new URL("{plotly_address()}", document.baseURI).href));
"""


def build(slot: Slot, limits: Limits = LOCAL) -> gr.Blocks:
    """The page around a loaded pair, as a Gradio app; ``serve`` launches it."""
    examples = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines() if line.strip()]
    startup = StartupRace(slot.pair, examples[0]["prompt"], GAMMA)
    stops = _Stops()

    def run(
        prompt: str,
        gamma: float,
        new_tokens: float,
        temperature: float,
        seed: str,
        top_k: float,
        top_p: float,
        auto: bool,
        chat: bool,
        request: gr.Request,
    ) -> Iterator[str]:
        stop = stops.current(request)
        startup.give_way()
        try:
            params = SamplingParams(
                max_new_tokens=_whole(new_tokens),
                temperature=temperature,
                top_k=_whole(top_k),
                top_p=top_p,
                seed=_seed(seed),
            )
            pair = slot.pair
        except SpecdecError as error:
            yield refusal(error)
            return
        message = [{"role": "user", "content": prompt}] if chat and prompt else prompt or ""
        length = "auto" if auto else _whole(gamma)
        yield from stream(pair, message, length, params, limits=limits, stop=stop)

    with gr.Blocks(title="specdec", analytics_enabled=False, delete_cache=(3600, 3600)) as demo:
        header = gr.HTML(_header(slot.facts), elem_id="sd-header")
        panel = PairPanel(slot, limits, _header, startup.give_way)
        with gr.Row(elem_id="sd-ask"):
            with gr.Column(scale=7, min_width=320):
                prompt = gr.Textbox(
                    examples[0]["prompt"],
                    label="Prompt",
                    lines=4,
                    max_lines=12,
                    elem_id="sd-prompt",
                )
                with gr.Row(elem_id="sd-chips"):
                    for example in examples:
                        chip = gr.Button(example["name"], size="sm", min_width=0, elem_classes="sd-chip")
                        fill = f"() => {json.dumps(example['prompt'])}"
                        chip.click(None, js=fill, outputs=prompt, api_visibility="private")
            with gr.Column(scale=5, min_width=300, elem_id="sd-settings"):
                gamma = gr.Slider(
                    0, MAX_GAMMA, GAMMA, step=1, label="Draft length \u03b3", buttons=[], elem_id="sd-gamma"
                )
                auto = gr.Checkbox(False, label="Choose \u03b3 round by round (auto)", elem_id="sd-auto")
                new_tokens = gr.Slider(
                    1,
                    limits.new_tokens,
                    min(128, limits.new_tokens),
                    step=1,
                    label="New tokens",
                    buttons=[],
                    elem_id="sd-tokens",
                )
                temperature = gr.Slider(
                    0, 2, 0, step=0.05, label="Temperature (0 is greedy)", buttons=[], elem_id="sd-temperature"
                )
                with gr.Accordion("Settings", open=False, elem_id="sd-more"), gr.Row():
                    seed = gr.Textbox("", label="Seed", placeholder="drawn", max_lines=1, min_width=90)
                    top_k = gr.Number(0, label="Top-k (0: all)", precision=0, minimum=0, min_width=90)
                    top_p = gr.Number(1, label="Top-p", minimum=0, maximum=1, step=0.05, min_width=90)
                chat = gr.Checkbox(label="Chat", elem_id="sd-chat")
                start = gr.Button("Run race", variant="primary", elem_id="sd-run")
                halt = gr.Button("Stop", variant="secondary", elem_id="sd-stop")
        live = gr.HTML(
            "", html_template="", js_on_load=_MOUNT, apply_default_css=False, elem_id="sd-live", elem_classes="sd-live"
        )

        facing = [header, prompt, chat]
        inputs = [prompt, gamma, new_tokens, temperature, seed, top_k, top_p, auto, chat]
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        machine = {"concurrency_limit": 1, "concurrency_id": "machine"}  # a race and a load wait for each other
        # The first step makes this visitor's stop flag before the race may have to queue.
        start.click(stops.arm, js="() => { window.specdec.begin(); }", queue=False, **quiet).then(
            run, inputs, live, **machine, **quiet
        ).then(None, js="() => { window.specdec.end(); }", **quiet)
        halt.click(stops.set, js="() => { window.specdec.halt(); }", queue=False, **quiet)
        panel.look.click(panel.say, panel.inputs, panel.report, **quiet)
        panel.load.click(panel.change, panel.inputs, [panel.report, *facing], **machine, **quiet)
        auto.change(lambda on: gr.update(interactive=not on), auto, gamma, queue=False, **quiet)
        demo.load(panel.facing, outputs=facing, queue=False, **quiet)
        demo.load(startup.lines, outputs=live, queue=False, **quiet)
        demo.unload(stops.forget)
    demo.queue(max_size=limits.waiting)
    return demo


class _Stops:
    """A stop flag for each visitor's race: the Stop button sets it, the race looks at it."""

    def __init__(self) -> None:
        self._flags: dict[str, threading.Event] = {}

    def arm(self, request: gr.Request) -> None:
        self._flags[request.session_hash] = threading.Event()

    def current(self, request: gr.Request) -> threading.Event:
        return self._flags.setdefault(request.session_hash, threading.Event())

    def set(self, request: gr.Request) -> None:
        self.current(request).set()

    def forget(self, request: gr.Request) -> None:
        # A race that is still running ends too: nobody is there to see it.
        if flag := self._flags.pop(request.session_hash, None):
            flag.set()


def _whole(value: float) -> Any:
    """Browsers send 5.0 for 5; anything else is passed on for the engine to name."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _seed(text: str) -> Any:
    """A text field, as a number field cannot be empty; what is no number is passed on for the engine to name."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() else text or None


def _header(facts: dict[str, Any]) -> str:
    return (
        '<header class="sd-head"><div><h1>specdec</h1>'
        f'<p class="sd-pair"><span>Pair</span> {html.escape(words.pair_line(facts))}</p></div>'
        '<p class="sd-lede">A small model guesses, a large one checks all guesses at once. '
        "Same result, fewer waits.</p></header>"
    )
