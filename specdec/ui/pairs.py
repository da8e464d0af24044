"""Choosing another pair: what can be chosen, what the check says about it, and the exchange."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import gradio as gr

from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.errors import InvalidInput, SpecdecError
from specdec.models.check import Finding, check
from specdec.models.loading import PairPlan, plan_pair
from specdec.models.memory import gigabytes
from specdec.models.presets import PRESETS, Preset
from specdec.models.slot import Slot
from specdec.report import words
from specdec.ui.limits import Limits
from specdec.ui.startup import StartupRace

OWN = "Another pair"
STEP = 0.25  # seconds between two looks at a load
METHODS = ("Draft model", "Prompt lookup", "Early exit")
_PRESETS = {preset.name: preset for preset in PRESETS}


class PairPanel:
    """The fold under the header. ``header`` makes the header's HTML from a pair's facts; the race at ``startup`` gives
    way to a new pair and is then run with it."""

    def __init__(self, slot: Slot, limits: Limits, header: Callable[[dict[str, Any]], str], startup: StartupRace):
        self._slot, self._limits, self._header, self._startup = slot, limits, header, startup
        with gr.Accordion("Change the pair", open=False, elem_id="sd-change"):
            with gr.Row():
                self.preset = gr.Dropdown(
                    [*_PRESETS, *([] if limits.public else [OWN])],
                    value=PRESETS[0].name,
                    label="Pair, target \u2190 draft",
                    elem_id="sd-preset",
                )
                self.method = gr.Radio(METHODS, value=METHODS[0], label="Who drafts", elem_id="sd-method")
                self.layers = gr.Number(3, label="Layers of the early exit", precision=0, visible=False)
            with gr.Row(visible=False) as own:
                self.target = gr.Textbox(label="Target: hub id or folder", max_lines=1, elem_id="sd-target")
                self.draft = gr.Textbox(label="Draft: hub id or folder", max_lines=1, elem_id="sd-draft")
            with gr.Row():
                self.look = gr.Button("Check", elem_id="sd-check")
                self.load = gr.Button("Load", elem_id="sd-load")
            self.report = gr.HTML(_preset_line(PRESETS[0]), elem_id="sd-report", apply_default_css=False)
            if limits.public:
                gr.HTML(_your_own(os.environ.get("SPACE_ID")), elem_id="sd-own", apply_default_css=False)
        self.preset.change(
            lambda name: (gr.update(visible=name == OWN), _preset_line(_PRESETS.get(name))),
            self.preset,
            [own, self.report],
            show_progress="hidden",
            api_visibility="private",
        )
        self.method.change(
            lambda method: gr.update(visible=method == METHODS[2]),
            self.method,
            self.layers,
            show_progress="hidden",
            api_visibility="private",
        )

    @property
    def inputs(self) -> list[Any]:
        return [self.preset, self.target, self.draft, self.method, self.layers]

    def say(self, *choice: Any) -> str:
        """The check of a choice, as HTML."""
        try:
            return _findings(check(self._plan(*choice)))
        except SpecdecError as error:
            return _error(str(error))

    def change(self, *choice: Any) -> Iterator[tuple[Any, ...]]:
        """Load a choice; yield (report, Run button, *facing) as it goes on. Run waits for it and says why."""
        said = ["Loading."]

        def progress(name: str, done: int, total: int) -> None:
            said[0] = f"Fetching {name}: {gigabytes(done)} of {gigabytes(total)}."

        self._startup.forget()
        try:
            with ThreadPoolExecutor(1) as pool:
                work = pool.submit(lambda: self._slot.change(self._plan(*choice), progress))
                while not wait([work], STEP).done:
                    yield _note(said[0]), gr.update(value="A pair is loading", interactive=False), *[gr.skip()] * 3
        finally:  # also where the visitor left meanwhile
            if self._slot.loaded:
                self._startup.begin(self._slot.pair)
        ready = gr.update(value="Run race", interactive=True)
        try:
            yield _note(work.result()), ready, *self.facing()
        except SpecdecError as error:
            still = f" Still loaded: {words.pair_line(self._slot.facts)}." if self._slot.loaded else ""
            yield _error(f"{error}{still}"), ready, *[gr.skip()] * 3

    def facing(self) -> tuple[str, Any, Any]:
        """What the page says of the pair that is loaded: its header, the prompt's hint, the chat switch."""
        facts, able = self._slot.facts, self._slot.chat
        hint = "Continues stories and Python; cannot answer questions." if facts["name"] == "embedded" else ""
        info = "The prompt is a message of a chat." if able else "A base model: it has no chat template."
        return self._header(facts), gr.update(info=hint), gr.update(value=able, interactive=able, info=info)

    def _plan(self, preset: str, target: str, draft: str, method: str, layers: float) -> PairPlan:
        if preset == OWN and not self._limits.public:
            if not target.strip():
                raise InvalidInput("No target was given; write a hub id or the path of a folder.")
            names = target.strip(), draft.strip() or None
        elif preset in _PRESETS:
            names = _PRESETS[preset].target, _PRESETS[preset].draft
        else:
            raise InvalidInput(f"There is no pair {preset!r} in the list.")
        drafting = {METHODS[0]: names[1], METHODS[1]: PromptLookup()}
        return plan_pair(names[0], EarlyExit(layers) if method == METHODS[2] else drafting.get(method, names[1]))


def _preset_line(preset: Preset | None) -> str:
    if preset is None:
        return ""
    where = "It needs no network." if preset.target is None else "It is fetched from the hub."
    terms = " Its terms must be accepted there first (HF_TOKEN)." if preset.licensed else ""
    size = f"{gigabytes(preset.needs_bytes(2))} in 16 bits, {gigabytes(preset.needs_bytes(4))} in 32"
    return _note(f"Good for {preset.good_for}. Weights: {size}. {where}{terms}")


def _your_own(space: str | None) -> str:
    """Where the pairs are a fixed list: how to measure another one."""
    local = "pip install -r requirements.txt && python app.py --target TARGET --draft DRAFT"
    copy = f"https://huggingface.co/spaces/{html.escape(space or '')}?duplicate=true"
    duplicate = f' Or <a href="{copy}" target="_top">duplicate this Space</a>.' if space else ""
    return f'<p class="sd-note">Measure your own pair, on your machine: <code>{local}</code>{duplicate}</p>'


def _findings(findings: list[Finding]) -> str:
    rows = "".join(
        f'<li class="sd-{f.level}"><b>{html.escape(f.topic)}</b> {html.escape(f.sentence)}</li>' for f in findings
    )
    return f'<ul class="sd-findings">{rows}</ul>'


def _note(text: str) -> str:
    return f'<p class="sd-note">{html.escape(text)}</p>'


def _error(text: str) -> str:
    return f'<p class="sd-error" role="alert">{html.escape(text)}</p>'
