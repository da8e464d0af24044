"""The layout and the wiring of the page. ``assets/live.js`` draws a race from ``stream``'s lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError, with_names
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.measure.task import TaskRunner
from specdec.models.pair_slot import Slot
from specdec.report import provenance
from specdec.servers.address import Address, require_names
from specdec.ui.api import add_endpoints
from specdec.ui.assets import ROUTE
from specdec.ui.fields import LABELS, given
from specdec.ui.jobs.limits import LOCAL, Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_stream import enforce_limits
from specdec.ui.jobs.recorded import recorded_race
from specdec.ui.jobs.startup import StartupRace
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, done
from specdec.ui.tabs.benchmark import BenchTab
from specdec.ui.tabs.best_gamma import GammaTab
from specdec.ui.tabs.code import code_answer
from specdec.ui.tabs.how import how_tab
from specdec.ui.tabs.lossless import LosslessTab
from specdec.ui.tabs.measurement import Values
from specdec.ui.tabs.pair_panel import PairPanel, facing, own_pair_command, pair_header
from specdec.ui.tabs.race import RaceTab
from specdec.ui.tabs.race_form import RaceForm
from specdec.ui.tabs.your_server import TITLE, ServerTab
from specdec.ui.web_private import is_stopped, queue_of

# Everything that the scripts need arrives as arguments. No text of a model or a person is part of them.
_ASSET = f'new URL("{ROUTE}/%s", document.baseURI).href'
_MENU = f"""
import({_ASSET % "lib/server.js"}).then((server) => server.connect(element, props, watch, trigger, %s));
// Gradio lets listeners hear the events that it finds named here: "answer", "restore", "tab", "pair".
"""
_SCRIPTS = {  # of the tabs
    "files": _ASSET % "lib/files.js",
    "results": _ASSET % "share/results.js",
    "takehome": _ASSET % "share/takehome.js",
}
_ADDRESS = f"""
import({_SCRIPTS["results"]}).then((results) => results.followAddress(props, trigger));
// Gradio lets listeners hear the events that it finds named here: "sweep", "bench", "lossless".
"""
_LIVE = _ASSET % "live.js"
_READ_LINK = f"""async () => {{
  await (await import({_LIVE})).ready;
  return JSON.stringify(await (await import({_ASSET % "share/link.js"})).settingsInAddress());
}}"""
_KEPT = f"async (...values) => (await import({_ASSET % 'share/session_state.js'})).fieldsAsKept('specdec-%s', values)"
_KEEP = (
    f"(...values) => {{ import({_ASSET % 'share/session_state.js'})"
    ".then((kept) => kept.keepFields('specdec-%s', values)); }"
)
_TAB = f"async () => ({{ __type__: 'update', selected: (await import({_ASSET % 'lib/address.js'})).tabInAddress() }})"
_TAB_OPENED = f"() => {{ import({_ASSET % 'lib/tabs.js'}).then((tabs) => tabs.tabOpened(%s)); }}"


@dataclass(frozen=True)
class Page:
    """The page as a Gradio app, and the queue of its jobs; ``serve`` launches it."""

    demo: gr.Blocks
    jobs: JobQueue

    def health(self) -> dict[str, Any]:
        """For monitors: whether jobs are taken and run."""
        found = self.jobs.health()
        return found | {"ok": found["ok"] and not is_stopped(queue_of(self.demo))}

    def close(self) -> None:
        """End what runs, and the server."""
        self.jobs.close("The page is closed.", 5)
        self.demo.close()


def build(
    slot: Slot,
    limits: Limits = LOCAL,
    runner: TaskRunner | None = None,
    journal: JobLog | None = None,
    proxies: int | None = 0,
    servers: Sequence[Address] = (),
) -> Page:
    """Build the page around a loaded pair.

    ``runner``, if given, runs tasks in another process that has the device. Then the page shows a recorded race first,
    because it has no device until a job asks for one. ``proxies``: how many trusted ones are in front of the page and
    name its visitors' addresses; None if that is not known. ``servers``: those that visitors may race, the plain one
    first. Where none are named, only the owner of a page that strangers cannot reach may race servers.
    """
    if servers:
        require_names(servers)
    examples = read_prompts(EXAMPLES)
    jobs = JobQueue(
        slot,
        runner or (lambda task: task.run(slot.pair)),
        limits,
        journal or JobLog(),
        lent=runner is not None,
        proxies=proxies,
    )
    startup = StartupRace(jobs, examples[0].prompt) if runner is None else None
    with gr.Blocks(title="specdec", analytics_enabled=False) as demo:
        _Components(jobs, slot, limits, startup, examples, servers).wire(demo)
        add_endpoints(jobs, limits)
    demo.queue(api_open=False)  # a job's listener can only be called through the queue
    return Page(demo, jobs)


class _Components:
    """What the page consists of, from top to bottom. ``startup`` is None where the device is lent."""

    def __init__(
        self,
        jobs: JobQueue,
        slot: Slot,
        limits: Limits,
        startup: StartupRace | None,
        examples: Sequence[PromptItem],
        servers: Sequence[Address],
    ):
        self._jobs, self._slot, self._limits, self._startup = jobs, slot, limits, startup
        self._ask = RaceForm(limits)
        with gr.Row(elem_id="sd-top"):
            self._header = gr.HTML(pair_header(slot, limits), elem_id="sd-header")
            # A Space is shown in a frame, so links must name the page around it.
            space = os.environ.get("SPACE_ID")
            around = json.dumps(f"https://huggingface.co/spaces/{space}" if space else "")
            script = _MENU % around
            self._menu = gr.HTML("", html_template="", js_on_load=script, elem_id="sd-share", apply_default_css=False)
        with gr.Column(elem_id="sd-change"):  # opened by a button of the header
            self._panel = None if startup is None or limits.pairs == "none" else PairPanel(slot, limits, startup)
            if limits.public:
                gr.HTML(own_pair_command(space), elem_id="sd-own", apply_default_css=False)
        with gr.Tabs(elem_id="sd-tabs", overflow_behavior="wrap") as self._tabs:
            with _tab("Race"):
                self._race = RaceTab(jobs, limits, self._ask, examples, _LIVE, _ASSET % "examples.js")
            with _tab("Best gamma") as gamma:
                self._gamma = GammaTab(jobs, examples, limits, self._ask, _SCRIPTS)
            with _tab("Benchmark") as bench:
                self._bench = BenchTab(jobs, limits, _SCRIPTS)
            with _tab("Lossless?") as lossless:
                self._lossless = LosslessTab(jobs, limits, _SCRIPTS["results"])
            self._server = None
            if servers or not limits.public:
                with _tab(TITLE):
                    self._server = ServerTab(jobs, limits, servers, _LIVE, _SCRIPTS)
            with _tab("How it works"):
                how_tab(_ASSET % "explain/how.js")
        self._measuring = gamma, bench, lossless  # they show a result when they are opened
        self._address = gr.HTML("", html_template="", js_on_load=_ADDRESS, apply_default_css=False)
        self._link = gr.Textbox(visible=False)
        self._known = gr.Textbox(visible=False)  # the pair that the texts of an open page are about

    def wire(self, demo: gr.Blocks) -> None:
        """What happens on each event. ``demo`` is the Blocks that is being built."""
        race, ask, tabs = self._race, self._ask, self._tabs
        race.wire(self._link, self._named)
        if self._server is not None:
            self._server.wire(race.live, self._named)
        answered: dict[str, Any] = {"trigger_mode": "multiple"} | UNLIMITED | INTERNAL
        self._menu.answer(self._shared, ask.inputs, [self._menu, self._header], **answered)
        linked: dict[str, Any] = {"inputs": self._link, "outputs": [*ask.inputs, race.problems]}
        linked |= {"fn": self._restore, "js": _READ_LINK, "queue": False} | INTERNAL
        race.tell(self._menu.restore(trigger_mode="always_last", **linked))
        self._menu.tab(None, None, tabs, js=_TAB, **INTERNAL)
        faces = [self._header, race.prompt, ask.chat, self._bench.chat]
        renewed: dict[str, Any] = {"fn": self._renewed, "inputs": self._known, "outputs": [*faces, self._known]}
        renewed |= {"queue": False} | INTERNAL
        self._menu.pair(trigger_mode="always_last", **renewed)
        if self._panel is not None:
            for changed in self._panel.wire(self._jobs, race.start, faces):
                changed.then(**renewed)
        ask.wire()
        opened = demo.load(**renewed).then(**linked)
        race.tell(_kept(opened, "form", ask.inputs))
        if self._panel is not None:
            _kept(opened, "pair", self._panel.choice)
        first = self._startup.lines if self._startup else recorded_race
        demo.load(first, outputs=race.live, **UNLIMITED, **INTERNAL)
        gamma, bench, lossless = self._measuring
        self._gamma.wire(gamma, self._address, self._named)
        self._bench.wire(bench, self._address, self._named)
        self._lossless.wire(lossless, self._address, self._named)
        into_race = [tabs, race.problems, *ask.lengths]
        race_it = self._gamma.race_it.click
        race.tell(race_it(race.with_length, self._gamma.best, into_race, queue=False, **INTERNAL))

    def _named(self) -> Values:
        """The header, for the first answer of a job: another visitor may have loaded another pair meanwhile."""
        return {self._header: pair_header(self._slot, self._limits)}

    def _renewed(self, known: str) -> list[Any]:
        """The page's texts about the loaded pair and its name, if it is not the pair that an open page knows."""
        texts, name = facing(self._slot, self._limits), provenance.pair_line(self._slot.facts)
        return [gr.skip()] * (len(texts) + 1) if name == known else [*texts, name]

    def _restore(self, link: str) -> tuple[Any, ...]:
        return self._race.restore(link, self._slot.chat)

    async def _shared(self, event: gr.EventData, request: gr.Request, *values: Any) -> Values:
        """The content of the Share menu: the settings of the form, and the code of the shown run if there is one."""
        number, shown = given(event, "number"), given(event, "run")

        def answer() -> dict[str, Any]:
            found = {"code": code_answer(shown) if isinstance(shown, str) else None}
            try:
                asked = self._ask.read(*values)
                enforce_limits(self._slot.pair, asked.message, asked.params, self._limits)
                return found | {"settings": asked.settings()}
            except SpecdecError as error:
                return found | {"problem": with_names(error, LABELS)}

        try:
            found = await done(self._jobs, request, "share", answer)
        except SpecdecError as error:
            found = {"problem": str(error)}
        return {self._menu: json.dumps({"number": number} | found)} | self._named()


def _kept(opened: Any, group: str, fields: list[Any]) -> Any:
    """Let a reload of the page keep these fields. Returns the event after which they are restored."""
    gr.on([field.change for field in fields], None, fields, js=_KEEP % group, **INTERNAL)
    return opened.then(None, fields, fields, js=_KEPT % group, **INTERNAL)


def _tab(name: str) -> gr.Tab:
    """A tab with an address: "Best gamma" has #tab=best-gamma."""
    address = "-".join(re.findall("[a-z]+", name.lower()))
    tab = gr.Tab(name, id=address)
    tab.select(None, js=_TAB_OPENED % json.dumps(address), **INTERNAL)
    return tab
