"""The page: layout and wiring. What a race shows is drawn by ``assets/live.js`` from ``stream``'s lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError
from specdec.lanes.race import race
from specdec.lanes.table import LANES
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.slot import Slot
from specdec.report import words
from specdec.ui import fragments
from specdec.ui.api import add_endpoints
from specdec.ui.ask import REPEATS, Ask, AskPanel
from specdec.ui.bench_tab import BenchTab
from specdec.ui.code import code_answer
from specdec.ui.gamma_tab import GammaTab
from specdec.ui.limits import LOCAL, Limits
from specdec.ui.lossless_tab import LosslessTab
from specdec.ui.measuring import REFUSED
from specdec.ui.pairs import PairPanel
from specdec.ui.serving import ROUTE, plotly_address
from specdec.ui.startup import StartupRace
from specdec.ui.stream import check, refusal, stream
from specdec.ui.work import INTERNAL, Work

# Everything the scripts need arrives as arguments; no text of a model or a person is ever part of them.
_ASSET = f'new URL("{ROUTE}/%s", document.baseURI).href'
_MOUNT = """
import(%s).then((live) =>
  live.mount(element, props, watch, new URL("%s", document.baseURI).href, %s, %s));
"""
_TAKE_HOME = f"""
import({_ASSET % "takehome.js"}).then((home) => home.mount(element, props, watch));
"""
_LOADED = f"(pair) => import({_ASSET % 'live.js'}).then(() => {{ window.specdec.loaded(pair); }})"
_BEGIN = f"async () => {{ await (await import({_ASSET % 'live.js'})).ready; window.specdec.begin(); }}"
_READ_LINK = f"""async () => {{
  await (await import({_ASSET % "live.js"})).ready; // the scripts have their tables
  return JSON.stringify(await (await import({_ASSET % "link.js"})).settingsInAddress());
}}"""


def build(slot: Slot, limits: Limits = LOCAL) -> gr.Blocks:
    """The page around a loaded pair, as a Gradio app; ``serve`` launches it."""
    examples = read_prompts(EXAMPLES)
    startup = StartupRace(slot.pair, examples[0].prompt)
    work, ask = Work(slot, startup), AskPanel(limits)
    racing = work.job()

    def run(request: gr.Request, read: Callable[[], Ask]) -> Iterator[str]:
        try:
            with racing.turn(request) as (pair, stop):
                yield from stream(pair, read(), limits=limits, stop=stop)
        except (SpecdecError, ValueError) as error:
            yield refusal(error)

    def run_form(request: gr.Request, *values: Any) -> Iterator[str]:
        yield from run(request, lambda: ask.read(*values))

    def run_shown(request: gr.Request, shown: str) -> Iterator[str]:
        """Once more what the page shows, whatever the form says by now."""
        wanted = json.loads(shown)
        runs = REPEATS if wanted["repeat"] else 1
        yield from run(request, lambda: ask.ask_of(wanted["settings"], runs=runs))

    def settings(*values: Any) -> str:
        try:
            asked = ask.read(*values)
            check(slot.pair, asked.message, asked.params, limits)
            race(slot.pair, asked.message, **asked.race)  # checks it; nothing runs
            return json.dumps({"settings": asked.settings()})
        except SpecdecError as error:
            return json.dumps({"problem": str(error)})

    def restore(link: str) -> tuple[Any, ...]:
        values, problems = ask.restore(json.loads(link), slot.chat)
        return *values, "".join(map(fragments.error, problems))

    with gr.Blocks(title="specdec", analytics_enabled=False) as demo:
        with gr.Row(elem_id="sd-top"):
            header = gr.HTML(_header(slot.facts), elem_id="sd-header")
            # Filled by the live view. A Space stands in a frame: links must name the page around it.
            space = os.environ.get("SPACE_ID")
            place = fragments.share_place(f"https://huggingface.co/spaces/{space}" if space else "")
            gr.HTML(place, elem_id="sd-share", apply_default_css=False)
        panel = PairPanel(slot, limits, _header, startup)
        with gr.Tabs(elem_id="sd-tabs"):
            with gr.Tab("Race"):
                with gr.Row(elem_id="sd-ask"):
                    with gr.Column(scale=7, min_width=320):
                        prompt = ask.prompt_field(examples[0].prompt)
                        with gr.Row(elem_id="sd-chips"):
                            for example in examples:
                                chip = gr.Button(example.name, size="sm", min_width=0, elem_classes="sd-chip")
                                fill = f"() => {json.dumps(example.prompt)}"
                                chip.click(None, js=fill, outputs=prompt, api_visibility="private")
                        ask.chat_field()
                    with gr.Column(scale=5, min_width=300, elem_id="sd-settings"):
                        ask.setting_fields()
                        start = gr.Button("Run race", variant="primary", elem_id="sd-run")
                        halt = gr.Button("Stop", variant="secondary", elem_id="sd-stop")
                        again = gr.Button("Again", elem_id="sd-again")  # pressed by the live view's own buttons
                        withdraw = gr.Button("Withdraw", elem_id="sd-withdraw", elem_classes="sd-withdraw")
                problems = gr.HTML("", elem_id="sd-problems", apply_default_css=False)
                waiting = gr.HTML("", elem_id="sd-waiting", apply_default_css=False)
                live = gr.HTML(
                    "",
                    html_template="",
                    js_on_load=_MOUNT
                    % (_ASSET % "live.js", plotly_address(), _lane_rows(), json.dumps(words.DEFINITIONS)),
                    apply_default_css=False,
                    elem_id="sd-live",
                    elem_classes="sd-live",
                )
            with gr.Tab("Best gamma"):
                gamma_tab = GammaTab(work, examples, limits, ask, _TAKE_HOME)
            with gr.Tab("Benchmark"):
                bench_tab = BenchTab(work, limits, _ASSET % "files.js")
            with gr.Tab("Lossless?"):
                lossless_tab = LosslessTab(work, limits)
        link = gr.Textbox(visible=False)
        shared = gr.Textbox(visible=False)
        loaded, waits = gr.Textbox(visible=False), gr.Checkbox(visible=False)
        share = gr.Button("Link", elem_id="sd-link")  # pressed by the live view as the Share menu opens
        on_show, codes = gr.Textbox(visible=False), gr.Textbox(visible=False)
        code = gr.Button("Code", elem_id="sd-code")  # the same, where a run is on show

        facing = [header, prompt, ask.chat]
        machine = {"concurrency_limit": 1, "concurrency_id": "machine"}  # a race and a load wait for each other
        shown = {"inputs": link, "js": "() => JSON.stringify(window.specdec.shown())"}
        refused = f"() => {{ window.specdec.end({json.dumps(REFUSED)}); }}"
        # Another visitor may have loaded another pair since the header was written.
        renew: dict[str, Any] = {"outputs": [header, loaded], "queue": False} | INTERNAL
        renew["fn"] = lambda: (_header(slot.facts), words.pair_line(slot.facts))
        announce = {"fn": None, "inputs": loaded, "js": _LOADED} | INTERNAL
        asked = []
        for button, job, given in ((start, run_form, {"inputs": ask.inputs}), (again, run_shown, shown)):
            # The first step makes this visitor's stop flag before the race may have to queue.
            ran = button.click(racing.arm, outputs=waiting, js=_BEGIN, queue=False, **INTERNAL).then(
                job, outputs=live, **given, **machine, **INTERNAL
            )
            ran.then(js="() => { window.specdec.end(); }", **renew).then(**announce)
            asked.append(ran)
            ran.failure(racing.refused, js=refused, queue=False, **INTERNAL)
        share.click(settings, ask.inputs, shared, queue=False, **INTERNAL).then(
            None, shared, js="(answer) => { window.specdec.share(JSON.parse(answer)); }", **INTERNAL
        )
        of_run = "() => JSON.stringify(window.specdec.run())"
        code.click(code_answer, on_show, codes, js=of_run, queue=False, **INTERNAL).then(
            None, codes, js="(answer) => { window.specdec.codes(JSON.parse(answer)); }", **INTERNAL
        )
        halt.click(racing.stop, outputs=waits, js="() => { window.specdec.halt(); }", queue=False, **INTERNAL).then(
            None, waits, js="(waits) => { if (waits) window.specdec.withdraw(); }", **INTERNAL
        )
        withdraw.click(None, cancels=asked, api_visibility="private")
        panel.look.click(panel.say, panel.inputs, panel.report, **INTERNAL)
        panel.load.click(panel.change, panel.inputs, [panel.report, start, *facing], **machine, **INTERNAL).then(
            **renew
        ).then(**announce)
        ask.auto.change(lambda on: gr.update(interactive=not on), ask.auto, ask.gamma, queue=False, **INTERNAL)
        demo.load(**renew).then(**announce)
        demo.load(panel.facing, outputs=facing, queue=False, **INTERNAL).then(
            restore, link, [*ask.inputs, problems], js=_READ_LINK, queue=False, **INTERNAL
        )
        demo.load(startup.lines, outputs=live, queue=False, **INTERNAL)
        demo.unload(work.leave)
        for tab in (gamma_tab, bench_tab, lossless_tab):
            tab.wire(**machine)
        add_endpoints(work, limits, **machine)
    demo.queue(max_size=limits.waiting)
    return demo


def _lane_rows() -> str:
    """The table of lanes as the scripts need it."""
    names = ("key", "name", "gamma", "label", "dash", "sign")
    return json.dumps([{name: getattr(lane, name) for name in names} for lane in LANES])


def _header(facts: dict[str, Any]) -> str:
    return fragments.header(words.pair_line(facts))
