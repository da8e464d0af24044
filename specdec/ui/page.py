"""The layout and the wiring of the page. ``assets/live.js`` draws a race from ``stream``'s lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput, SpecdecError
from specdec.lanes.table import LANES
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.task import Run
from specdec.models.slot import Slot
from specdec.report import words
from specdec.report.definitions import DEFINITIONS
from specdec.ui import fragments
from specdec.ui.api import add_endpoints
from specdec.ui.ask import REPEATS, Ask, AskPanel
from specdec.ui.bench_tab import BenchTab
from specdec.ui.code import code_answer
from specdec.ui.fields import given, sent
from specdec.ui.gamma_tab import GammaTab
from specdec.ui.how_tab import how_tab
from specdec.ui.journal import Journal
from specdec.ui.limits import LOCAL, Limits
from specdec.ui.lossless_tab import LosslessTab
from specdec.ui.machine import Ahead, Cancelled, Job, Machine
from specdec.ui.measuring import REFUSED
from specdec.ui.pairs import PairPanel, facing, your_own
from specdec.ui.recorded import recorded_race
from specdec.ui.serving import ROUTE, plotly_address
from specdec.ui.startup import StartupRace
from specdec.ui.stream import check, refusal, stream
from specdec.ui.work import INTERNAL, UNLIMITED, followed

# Everything that the scripts need arrives as arguments. No text of a model or a person is part of them.
_ASSET = f'new URL("{ROUTE}/%s", document.baseURI).href'
_MOUNT = """
import(%s).then((live) =>
  live.mount(element, props, watch, new URL("%s", document.baseURI).href, %s, %s, () => trigger("again")));
"""
_MENU = f"""
import({_ASSET % "server.js"}).then((server) => server.connect(element, props, watch, trigger, %s));
// Gradio lets listeners hear the events that it finds named here: "answer", "restore", "tab".
"""
_SCRIPTS = {name: _ASSET % f"{name}.js" for name in ("files", "results", "takehome")}  # of the tabs
_ADDRESS = f"""
import({_SCRIPTS["results"]}).then((results) => results.followAddress(props, trigger));
// Gradio lets listeners hear the events that it finds named here: "sweep", "bench".
"""
_LOADED = f"(pair) => import({_ASSET % 'live.js'}).then(() => {{ window.specdec.loaded(pair); }})"
_READY = f"await (await import({_ASSET % 'live.js'})).ready;"  # waits until the scripts have their tables
_BEGIN = f"async (...values) => {{ {_READY} window.specdec.begin(); return values; }}"
_AGAIN = f"async () => {{ {_READY} window.specdec.begin(); return JSON.stringify(window.specdec.shown()); }}"
_ASKED = f"async () => {{ {_READY} setTimeout(() => window.specdec.asked(), 50); }}"  # the fields have new values
_READ_LINK = f"""async () => {{
  {_READY}
  return JSON.stringify(await (await import({_ASSET % "link.js"})).settingsInAddress());
}}"""
_KEPT = f"async (...values) => (await import({_ASSET % 'kept.js'})).fieldsAsKept(values)"
_KEEP = f"(...values) => {{ import({_ASSET % 'kept.js'}).then((kept) => kept.keepFields(values)); }}"
_TAB = f"async () => ({{ __type__: 'update', selected: (await import({_ASSET % 'address.js'})).tabInAddress() }})"
_TAB_CHOSEN = f"() => {{ import({_ASSET % 'address.js'}).then((address) => address.tabChosen(%s)); }}"


@dataclass(frozen=True)
class Page:
    """The page as a Gradio app, and the machine behind it; ``serve`` launches it."""

    demo: gr.Blocks
    machine: Machine

    def health(self) -> dict[str, Any]:
        """For monitors: whether jobs are taken and run."""
        found = self.machine.health()
        return found | {"ok": found["ok"] and not self.demo._queue.stopped}

    def close(self) -> None:
        """End what runs, and the server."""
        self.machine.close("The page is closed.", 5)
        self.demo.close()


def build(
    slot: Slot,
    limits: Limits = LOCAL,
    run: Run | None = None,
    journal: Journal | None = None,
    trusted_proxy: bool = False,
) -> Page:
    """Build the page around a loaded pair.

    ``run``, if given, runs tasks in another process that has the device. Then the page shows a recorded race first,
    because it has no device until a job asks for one. ``trusted_proxy``: visitors come through a proxy, which names
    their addresses.
    """
    examples = read_prompts(EXAMPLES)
    machine = Machine(
        slot,
        run or (lambda task: task.run(slot.pair)),
        limits,
        journal or Journal(),
        lent=run is not None,
        trusted_proxy=trusted_proxy,
    )
    startup, ask = StartupRace(machine, examples[0].prompt) if run is None else None, AskPanel(limits)

    def racing(read: Callable[..., Ask]) -> Callable[..., AsyncIterator[dict[Any, Any]]]:
        """A listener that runs the race that ``read`` makes of its inputs."""

        async def run(request: gr.Request, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            try:
                yield {waiting: ""}
                asked = read(*values)
                limits.take(asked.params.max_new_tokens, asked.runs)
                job = Job("race", asked.tokens, partial(stream, ask=asked, limits=limits), asked.settings())
                waited = False
                async with aclosing(followed(machine, request, job)) as steps:
                    async for step in steps:
                        if isinstance(step, Ahead):
                            waited = True
                            yield {waiting: words.ahead(*step)}
                            continue
                        yield {live: step} | ({waiting: ""} if waited else {})
                        waited = False
            except Cancelled as error:
                yield {waiting: str(error)}
            except (SpecdecError, ValueError) as error:
                yield {waiting: "", live: refusal(error)}

        return run

    def shown_again(shown: str) -> Ask:
        """The race that the page shows, whatever its fields contain now."""
        match sent(shown):
            case {"settings": dict(settings), "repeat": repeat}:
                return ask.ask_of(settings, runs=REPEATS if repeat else 1)
        raise InvalidInput("The request does not name the run to repeat. Nothing ran.")

    def stop(request: gr.Request) -> None:
        machine.stop(request.session_hash or "", "race")

    def answer(event: gr.EventData, *values: Any) -> str:
        """The content of the Share menu: the settings of the form, and the code of the shown run if there is one."""
        number, shown = given(event, "number"), given(event, "run")
        found = {"number": number, "code": code_answer(shown) if isinstance(shown, str) else None}
        try:
            asked = ask.read(*values)
            check(slot.pair, asked.message, asked.params, limits)
            return json.dumps(found | {"settings": asked.settings()})
        except SpecdecError as error:
            return json.dumps(found | {"problem": str(error)})

    def restore(link: str) -> tuple[Any, ...]:
        try:
            values, problems = ask.restore(sent(link), slot.chat)
        except InvalidInput as error:
            values, problems = [gr.skip() for _ in ask.inputs], [str(error)]
        return *values, "".join(map(fragments.error, problems))

    def race_it(best: str) -> list[Any]:
        """Put the best draft length of What if into the form of the race."""
        said = fragments.note(f"Set from What if: {words.policy(best)}. Press Run race to measure it.")
        return [gr.update(selected="race"), said, *ask.length_values(gamma_of(best))]

    with gr.Blocks(title="specdec", analytics_enabled=False) as demo:
        with gr.Row(elem_id="sd-top"):
            header = gr.HTML(facing(slot, limits)[0], elem_id="sd-header")
            # A Space is shown in a frame, so links must name the page around it.
            space = os.environ.get("SPACE_ID")
            around = json.dumps(f"https://huggingface.co/spaces/{space}" if space else "")
            menu = gr.HTML("", html_template="", js_on_load=_MENU % around, elem_id="sd-share", apply_default_css=False)
        with gr.Column(elem_id="sd-change"):  # opened by a button of the header
            panel = None if startup is None or limits.pairs == "none" else PairPanel(slot, limits, startup)
            if limits.public:
                gr.HTML(your_own(space), elem_id="sd-own", apply_default_css=False)
        with gr.Tabs(elem_id="sd-tabs", overflow_behavior="wrap") as tabs:
            with _tab("Race"):
                with gr.Row(elem_id="sd-line"):
                    # The form in one line, which the live view fills.
                    gr.HTML('<div class="sd-linePlace"></div>', elem_id="sd-summary", apply_default_css=False)
                    start = gr.Button("Run race", variant="primary", elem_id="sd-run")
                    halt = gr.Button("Stop", variant="secondary", elem_id="sd-stop")
                # Messages about the form, above it. The live view fills the first.
                gr.HTML('<div class="sd-saidPlace"></div>', elem_id="sd-said", apply_default_css=False)
                problems = gr.HTML("", elem_id="sd-problems", apply_default_css=False)
                waiting = gr.HTML("", elem_id="sd-waiting", apply_default_css=False)
                with gr.Row(elem_id="sd-chips"):
                    gr.HTML('<span class="sd-try">Try</span>', apply_default_css=False, elem_id="sd-try")
                    chips = [gr.Button(e.name, size="sm", min_width=0, elem_classes="sd-chip") for e in examples]
                with gr.Row(elem_id="sd-ask"):
                    with gr.Column(scale=7, min_width=320):
                        prompt = ask.prompt_field(examples[0].prompt)
                        ask.chat_field()
                    with gr.Column(scale=5, min_width=300, elem_id="sd-settings"):
                        ask.setting_fields()
                for example, chip in zip(examples, chips, strict=True):
                    fill = f"() => {json.dumps(example.prompt)}"
                    chip.click(None, js=fill, outputs=prompt, api_visibility="private").then(
                        None, js=_ASKED, **INTERNAL
                    )
                live = gr.HTML(
                    "",
                    html_template="",
                    js_on_load=_MOUNT
                    % (
                        _ASSET % "live.js",
                        plotly_address(),
                        _lane_rows(),
                        _hints(),
                    ),
                    apply_default_css=False,
                    elem_id="sd-live",
                    elem_classes="sd-live",
                )
            with _tab("Best gamma") as gamma:
                gamma_tab = GammaTab(machine, examples, limits, ask, _SCRIPTS)
            with _tab("Benchmark") as bench:
                bench_tab = BenchTab(machine, limits, _SCRIPTS)
            with _tab("Lossless?") as lossless:
                lossless_tab = LosslessTab(machine, limits)
            with _tab("How it works"):
                how_tab(_ASSET % "how.js")
        address = gr.HTML("", html_template="", js_on_load=_ADDRESS, apply_default_css=False)
        link, loaded = gr.Textbox(visible=False), gr.Textbox(visible=False)

        faces = [header, prompt, ask.chat, bench_tab.chat]
        # Another visitor may have loaded another pair after the header was written.
        renew: dict[str, Any] = {"outputs": [header, loaded], "queue": False} | INTERNAL
        renew["fn"] = lambda: (facing(slot, limits)[0], words.pair_line(slot.facts))
        announce = {"fn": None, "inputs": loaded, "js": _LOADED} | INTERNAL
        form, shown = (start.click, ask.read, ask.inputs, _BEGIN), (live.again, shown_again, link, _AGAIN)
        for asked, read, values, begin in (form, shown):
            ran = asked(racing(read), values, [waiting, live], js=begin, **UNLIMITED, **INTERNAL)
            ran.then(None, waiting, js="(said) => { window.specdec.end(said); }", **INTERNAL)
            ran.then(**renew).then(**announce)
            ended = f"() => {{ window.specdec.end('', {json.dumps(REFUSED)}); }}"
            ran.failure(None, js=ended, **INTERNAL)
        menu.answer(answer, ask.inputs, menu, queue=False, trigger_mode="multiple", **INTERNAL)
        linked: dict[str, Any] = {"fn": restore, "inputs": link, "outputs": [*ask.inputs, problems]}
        linked |= {"js": _READ_LINK, "queue": False} | INTERNAL
        menu.restore(trigger_mode="always_last", **linked).then(None, js=_ASKED, **INTERNAL)
        menu.tab(None, None, tabs, js=_TAB, **INTERNAL)
        halt.click(stop, js="() => { window.specdec.halt(); }", queue=False, **INTERNAL)
        if panel is not None:
            _, changed = panel.wire(machine, start, faces)
            changed.then(**renew).then(**announce)
        ask.wire()
        demo.load(**renew).then(**announce)
        demo.load(lambda: facing(slot, limits), outputs=faces, queue=False, **INTERNAL).then(**linked).then(
            None, ask.inputs, ask.inputs, js=_KEPT, **INTERNAL
        ).then(None, js=_ASKED, **INTERNAL)
        gr.on([field.change for field in ask.inputs], None, ask.inputs, js=_KEEP, **INTERNAL)
        demo.load(startup.lines if startup else recorded_race, outputs=live, **UNLIMITED, **INTERNAL)
        gamma_tab.wire(gamma, tabs, address)
        bench_tab.wire(bench, tabs, address)
        lossless_tab.wire(lossless)
        into_race = [tabs, problems, *ask.lengths]
        gamma_tab.race_it.click(race_it, gamma_tab.best, into_race, queue=False, **INTERNAL).then(
            None, js=_ASKED, **INTERNAL
        )
        add_endpoints(machine, limits)
    demo.queue(api_open=False)  # a job's listener can only be called through the queue
    return Page(demo, machine)


def _tab(name: str) -> gr.Tab:
    """A tab with an address: "Best gamma" has #tab=best-gamma."""
    address = "-".join(re.findall("[a-z]+", name.lower()))
    tab = gr.Tab(name, id=address)
    tab.select(None, js=_TAB_CHOSEN % json.dumps(address), **INTERNAL)
    return tab


def _hints() -> str:
    """The meaning of each figure, by the names that the scripts use."""
    return json.dumps({name: figure.meaning for name, figure in DEFINITIONS.items()})


def _lane_rows() -> str:
    """The table of lanes for the scripts."""
    names = ("key", "name", "gamma", "label", "dash", "sign")
    return json.dumps([{name: getattr(lane, name) for name in names} for lane in LANES])
