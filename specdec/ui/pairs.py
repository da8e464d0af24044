"""Choosing another pair: what can be chosen, what the check says about it, and the exchange."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import gradio as gr

from specdec.drafters import methods
from specdec.drafters.base import DraftMethod
from specdec.drafters.model import DraftModel
from specdec.errors import InvalidInput, SpecdecError
from specdec.models.check import check
from specdec.models.loading import PairPlan, plan_pair
from specdec.models.memory import gigabytes
from specdec.models.presets import PRESETS, Preset
from specdec.models.slot import Slot
from specdec.report import words
from specdec.ui import fragments
from specdec.ui.limits import Limits
from specdec.ui.startup import StartupRace
from specdec.ui.work import INTERNAL

LOG = logging.getLogger(__name__)

OWN = "Another pair"
STEP = 0.25  # seconds between two looks at a load
_PRESETS = {preset.name: preset for preset in PRESETS}


class PairPanel:
    """The fold under the header. ``header`` makes the header's HTML from a pair's facts; the race at ``startup`` gives
    way to a new pair and is then run with it."""

    def __init__(self, slot: Slot, limits: Limits, header: Callable[[dict[str, Any]], str], startup: StartupRace):
        self._slot, self._limits, self._header, self._startup = slot, limits, header, startup
        labels = [row.label for row in methods.METHODS]
        with gr.Accordion("Change the pair", open=False, elem_id="sd-change"):
            with gr.Row():
                self.preset = gr.Dropdown(
                    [*_PRESETS, *([] if limits.public else [OWN])],
                    value=PRESETS[0].name,
                    label="Pair, target \u2190 draft",
                    elem_id="sd-preset",
                )
                self.method = gr.Radio(labels, value=labels[0], label="What drafts", elem_id="sd-method")
            with gr.Row():
                self.target = gr.Textbox(
                    label="Target: hub id or folder", max_lines=1, elem_id="sd-target", visible=False
                )
                self.draft = gr.Textbox(label="Draft", max_lines=1, elem_id="sd-draft", visible=False)
            with gr.Row():
                self.look = gr.Button("Check", elem_id="sd-check")
                self.load = gr.Button("Load", elem_id="sd-load")
            self.report = gr.HTML(_preset_line(PRESETS[0]), elem_id="sd-report", apply_default_css=False)
            if limits.public:
                gr.HTML(_your_own(os.environ.get("SPACE_ID")), elem_id="sd-own", apply_default_css=False)
        self.preset.change(
            lambda preset, method: (
                gr.update(visible=preset == OWN),
                gr.update(visible=_is_written(preset, method)),
                _preset_line(_PRESETS.get(preset)),
            ),
            [self.preset, self.method],
            [self.target, self.draft, self.report],
            **INTERNAL,
        )
        self.method.change(
            lambda preset, method: gr.update(
                visible=_is_written(preset, method),
                label=f"Draft: {_row(method).form}",
                value=_row(method).example,
            ),
            [self.preset, self.method],
            self.draft,
            **INTERNAL,
        )

    @property
    def inputs(self) -> list[Any]:
        return [self.preset, self.target, self.draft, self.method]

    def say(self, *choice: Any) -> str:
        """The check of a choice, as HTML."""
        try:
            return fragments.findings(check(self._plan(*choice)))
        except SpecdecError as error:
            return fragments.error(str(error))

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
                    yield (
                        fragments.note(said[0]),
                        gr.update(value="A pair is loading", interactive=False),
                        *[gr.skip()] * 3,
                    )
        finally:  # also where the visitor left meanwhile
            if self._slot.loaded:
                self._startup.begin(self._slot.pair)
        ready = gr.update(value="Run race", interactive=True)
        try:
            yield fragments.note(work.result()), ready, *self.facing()
            return
        except SpecdecError as error:
            problem = str(error)
        except Exception:  # without an answer Run would stay locked
            LOG.exception("A pair could not be loaded.")
            problem = "The pair could not be loaded; the log of the program says why."
        still = f" Still loaded: {words.pair_line(self._slot.facts)}." if self._slot.loaded else ""
        yield fragments.error(f"{problem}{still}"), ready, *[gr.skip()] * 3

    def facing(self) -> tuple[str, Any, Any]:
        """What the page says of the pair that is loaded: its header, the prompt's hint, the chat switch."""
        facts, able = self._slot.facts, self._slot.chat
        hint = "Continues stories and Python; cannot answer questions." if facts["name"] == "embedded" else ""
        info = "The prompt is a message of a chat." if able else "A base model: it has no chat template."
        return self._header(facts), gr.update(info=hint), gr.update(value=able, interactive=able, info=info)

    def _plan(self, preset: str, target: str | None, draft: str | None, method: str) -> PairPlan:
        model: str | None
        row, written = _row(method), _is_written(preset, method)
        target, draft = (target or "").strip(), (draft or "").strip()  # a field that is not shown holds None
        if preset == OWN and not self._limits.public:
            if not target:
                raise InvalidInput("No target was given; write a hub id or the path of a folder.")
            model, text = target, draft or row.example
        elif preset in _PRESETS:
            model, listed = _PRESETS[preset].target, _PRESETS[preset].draft
            text = (draft or row.example) if written else listed or ""
        else:
            raise InvalidInput(f"There is no pair {preset!r} in the list.")
        drafting = row.parse(text) if text else None
        if text and drafting is None:
            raise InvalidInput(f"{text!r} does not say how to draft; write {row.form}.")
        if self._limits.public and written and drafting is not None and drafting.parts():
            raise InvalidInput("This public page loads the models of its list only; choose one of its pairs.")
        return plan_pair(model, drafting)


def _row(method: str) -> type[DraftMethod]:
    """The row of the table with this label."""
    found = next((row for row in methods.METHODS if row.label == method), None)
    if found is None:
        raise InvalidInput(f"There is no way to draft {method!r} in the list.")
    return found


def _is_written(preset: str, method: str) -> bool:
    """Whether a person writes down what drafts: a pair of the list names its draft model itself."""
    return preset == OWN or _row(method) is not DraftModel


def _preset_line(preset: Preset | None) -> str:
    if preset is None:
        return ""
    where = "It needs no network." if preset.target is None else "It is fetched from the hub."
    terms = " Its terms must be accepted there first (HF_TOKEN)." if preset.licensed else ""
    size = f"{gigabytes(preset.needs_bytes(2))} in 16 bits, {gigabytes(preset.needs_bytes(4))} in 32"
    return fragments.note(f"Good for {preset.good_for}. Weights: {size}. {where}{terms}")


def _your_own(space: str | None) -> str:
    return fragments.your_own("pip install -r requirements.txt && python app.py --target TARGET --draft DRAFT", space)
