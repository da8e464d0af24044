"""The layout and the wiring of the page. ``assets/live.js`` draws a race from ``stream``'s lines."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.task import Run
from specdec.models.slot import Slot
from specdec.report import words
from specdec.ui.api import add_endpoints
from specdec.ui.ask import AskPanel
from specdec.ui.bench_tab import BenchTab
from specdec.ui.code import code_answer
from specdec.ui.fields import given
from specdec.ui.gamma_tab import GammaTab
from specdec.ui.how_tab import how_tab
from specdec.ui.journal import Journal
from specdec.ui.limits import LOCAL, Limits
from specdec.ui.lossless_tab import LosslessTab
from specdec.ui.machine import Machine
from specdec.ui.pairs import PairPanel, facing, your_own
from specdec.ui.race_tab import RaceTab
from specdec.ui.recorded import recorded_race
from specdec.ui.serving import ROUTE
from specdec.ui.startup import StartupRace
from specdec.ui.stream import check
from specdec.ui.work import INTERNAL, UNLIMITED

# Everything that the scripts need arrives as arguments. No text of a model or a person is part of them.
_ASSET = f'new URL("{ROUTE}/%s", document.baseURI).href'
_MENU = f"""
import({_ASSET % "server.js"}).then((server) => server.connect(element, props, watch, trigger, %s));
// Gradio lets listeners hear the events that it finds named here: "answer", "restore", "tab".
"""
_SCRIPTS = {name: _ASSET % f"{name}.js" for name in ("files", "results", "takehome")}  # of the tabs
_ADDRESS = f"""
import({_SCRIPTS["results"]}).then((results) => results.followAddress(props, trigger));
// Gradio lets listeners hear the events that it finds named here: "sweep", "bench".
"""
_LIVE = _ASSET % "live.js"
_LOADED = f"(pair) => import({_LIVE}).then(() => {{ window.specdec.loaded(pair); }})"
_READ_LINK = f"""async () => {{
  await (await import({_LIVE})).ready;
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
                race_tab = RaceTab(machine, limits, ask, examples, _LIVE)
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
        faces = [header, race_tab.prompt, ask.chat, bench_tab.chat]

        def restore(link: str) -> tuple[Any, ...]:
            return race_tab.restore(link, slot.chat)

        def texts() -> tuple[str, str]:
            return facing(slot, limits)[0], words.pair_line(slot.facts)

        def renew(event: Any) -> None:
            """Write the header again after ``event``: another visitor may have loaded another pair meanwhile."""
            written = event(texts, outputs=[header, loaded], queue=False, **INTERNAL)
            written.then(None, loaded, js=_LOADED, **INTERNAL)

        race_tab.wire(link, lambda ran: renew(ran.then))
        menu.answer(answer, ask.inputs, menu, queue=False, trigger_mode="multiple", **INTERNAL)
        linked: dict[str, Any] = {"inputs": link, "outputs": [*ask.inputs, race_tab.problems]}
        linked |= {"fn": restore, "js": _READ_LINK, "queue": False} | INTERNAL
        race_tab.tell(menu.restore(trigger_mode="always_last", **linked))
        menu.tab(None, None, tabs, js=_TAB, **INTERNAL)
        if panel is not None:
            _, changed = panel.wire(machine, race_tab.start, faces)
            renew(changed.then)
        ask.wire()
        renew(demo.load)
        opened = demo.load(lambda: facing(slot, limits), outputs=faces, queue=False, **INTERNAL).then(**linked)
        race_tab.tell(opened.then(None, ask.inputs, ask.inputs, js=_KEPT, **INTERNAL))
        gr.on([field.change for field in ask.inputs], None, ask.inputs, js=_KEEP, **INTERNAL)
        demo.load(startup.lines if startup else recorded_race, outputs=race_tab.live, **UNLIMITED, **INTERNAL)
        gamma_tab.wire(gamma, tabs, address)
        bench_tab.wire(bench, tabs, address)
        lossless_tab.wire(lossless)
        into_race = [tabs, race_tab.problems, *ask.lengths]
        race_it = gamma_tab.race_it.click
        race_tab.tell(race_it(race_tab.with_length, gamma_tab.best, into_race, queue=False, **INTERNAL))
        add_endpoints(machine, limits)
    demo.queue(api_open=False)  # a job's listener can only be called through the queue
    return Page(demo, machine)


def _tab(name: str) -> gr.Tab:
    """A tab with an address: "Best gamma" has #tab=best-gamma."""
    address = "-".join(re.findall("[a-z]+", name.lower()))
    tab = gr.Tab(name, id=address)
    tab.select(None, js=_TAB_CHOSEN % json.dumps(address), **INTERNAL)
    return tab
