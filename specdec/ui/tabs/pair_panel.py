"""Choosing another pair: the choices, the check of a choice, and the exchange."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import aclosing
from functools import partial
from typing import Any

import gradio as gr

from specdec.drafters import registry
from specdec.drafters.base import DraftMethod
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.mtp import Mtp
from specdec.drafters.trained_head import TrainedHead
from specdec.errors import InvalidInput, LoadFailed, SpecdecError, quoted
from specdec.models.loading import EMBEDDED_NAME, PairPlan, plan_pair
from specdec.models.memory import gigabytes
from specdec.models.pair_check import check_pair
from specdec.models.pair_slot import Slot
from specdec.models.presets import PRESETS, Preset
from specdec.models.published import published_for
from specdec.models.settings import LoadOptions
from specdec.report import numbers, provenance, sentences
from specdec.ui import html
from specdec.ui.fields import message_place
from specdec.ui.jobs.context import Job, JobContext, QueuePosition
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.startup import StartupRace
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, followed

OWN = "Another pair"
OWN_MODELS = f"Your own models: choose {OWN}, or type a hub id or a folder into the field below."
# Between target and draft in a pair that is typed into the list's field
ARROW = re.compile(r"\s*(?:<-|\u2190|\bwith draft\b)\s*")
# The kinds of drafts that most engines offer, shown first. The others, and what the target has no draft of, are shown
# when somebody asks for all.
FIRST = ("model", "prompt-lookup", "eagle3", "mtp")
CHECK = "Check says what to expect, and loads nothing."
SETS = "Send every prompt as a chat message. If off, only conversations are."
STEP = 0.25  # seconds between two messages about a load

# Messages of libraries name a file's path, which strangers must not see. Web addresses stay.
_PATH = re.compile(r"(?<![\w:/])/[^\s'\"]+")


class PairPanel:
    """The fields under the header, and the check and the loading of a choice.

    The race at ``startup`` runs again with each new pair.
    """

    def __init__(self, slot: Slot, limits: Limits, startup: StartupRace):
        self._slot, self._limits, self._startup = slot, limits, startup
        offered = registry.methods(others=not limits.public)
        self._methods = sorted(offered, key=lambda row: (*FIRST, row.kind).index(row.kind))
        self.preset = gr.Dropdown(
            [*((_in_words(preset), preset.name) for preset in PRESETS), *([OWN] if limits.pairs == "any" else [])],
            value=PRESETS[0].name,
            label="Pair: a target with its draft",
            info=OWN_MODELS if limits.pairs == "any" else None,
            elem_id="sd-preset",
            # Otherwise Gradio would drop a text that is not in the list.
            allow_custom_value=limits.pairs == "any",
            filterable=limits.pairs == "any",
        )
        self._about = gr.HTML(_preset_line(PRESETS[0].name), elem_id="sd-preset-about", apply_default_css=False)
        with gr.Column(elem_id="sd-methods"):
            gr.HTML(html.all_methods(len(self._methods)), elem_id="sd-methods-all", apply_default_css=False)
            self.method = gr.Radio(
                self._choices(PRESETS[0].name),
                value=self._methods[0].label,
                label="Draft method",
                elem_id="sd-method",
            )
        with gr.Row():
            self.target = gr.Textbox(
                label="Target: hub id, folder or GGUF file", max_lines=1, elem_id="sd-target", visible=False
            )
            self.draft = gr.Textbox(label="Draft", max_lines=1, elem_id="sd-draft", visible=False)
        with gr.Row(elem_id="sd-change-acts"):
            self.load = gr.Button("Load", elem_id="sd-load")
            self.look = gr.Button("Check", elem_id="sd-check")
            gr.HTML(html.note(CHECK), elem_id="sd-check-about", apply_default_css=False)
            gr.Button("Close", elem_id="sd-change-close")
        self.report = message_place("sd-report")
        self.preset.change(
            lambda preset: (
                gr.update(visible=preset == OWN),
                gr.update(choices=self._choices(preset)),
                _preset_line(preset),
                "",
            ),
            self.preset,
            [self.target, self.method, self._about, self.report],
            queue=False,
            **INTERNAL,
        )
        gr.on(
            [self.method.change, self.preset.change],
            lambda preset, method: gr.update(
                visible=self._is_written(preset, method),
                label=f"Draft: {self._row(method).form}",
                placeholder=_example(preset, self._row(method)),  # and no value, which would replace what was typed
            ),
            [self.preset, self.method],
            self.draft,
            queue=False,
            **INTERNAL,
        )

    @property
    def choice(self) -> list[Any]:
        """The fields that name a pair."""
        return [self.preset, self.target, self.draft, self.method]

    def wire(self, jobs: JobQueue, start: gr.Button, facing: Sequence[Any]) -> tuple[Any, Any]:
        """Wire both buttons. Returns the events of a check and of a load.

        ``start`` is Run, which is locked during a load and shows why. ``facing`` are the components that the function
        of that name fills.
        """
        choice, locked = self.choice, [self.report, start, *facing]

        async def look(request: gr.Request, *values: Any) -> AsyncIterator[Any]:
            job = Job("check", 0, partial(self.check, choice=values))
            async for shown in _told(jobs, request, job):
                yield shown if isinstance(shown, str) else shown[0]

        async def load(request: gr.Request, *values: Any) -> AsyncIterator[Any]:
            job = Job("load", 0, partial(self.change, choice=values))
            skipped = [gr.skip()] * len(facing)
            async for shown in _told(jobs, request, job):
                ended = not isinstance(shown, str)
                ready = ("Run race", True) if ended else ("A pair is loading", False)
                button = gr.update(value=ready[0], interactive=ready[1])
                yield (shown[0], button, *(shown[1] or skipped)) if ended else (shown, button, *skipped)

        settings = UNLIMITED | INTERNAL
        entered = [self.look.click, self.target.submit, self.draft.submit]  # the key Enter, which loads nothing
        return gr.on(entered, look, choice, self.report, **settings), self.load.click(load, choice, locked, **settings)

    def check(self, context: JobContext, choice: Sequence[Any]) -> Iterator[tuple[str, None]]:
        """The check of a choice, as HTML."""
        yield html.findings(check_pair(self._plan(*choice))), None

    def change(self, context: JobContext, choice: Sequence[Any]) -> Iterator[str | tuple[str, tuple[Any, ...]]]:
        """Load a choice. Yield progress as HTML, and at the end the page's texts about the new pair too."""
        said = ["Loading."]

        def progress(name: str, done: int, total: int) -> None:
            if context.stop.is_set():
                raise LoadFailed("The visitor who asked for this pair has left.")
            said[0] = f"Fetching {name}: {gigabytes(done)} of {gigabytes(total)}."

        self._startup.forget()
        try:
            with ThreadPoolExecutor(1) as pool:
                work = pool.submit(lambda: self._slot.change(self._plan(*choice), progress))
                while not wait([work], STEP).done:
                    yield html.note(said[0])
            work.result()  # raises an error of the load
            yield html.note(f"Loaded: {provenance.pair_line(self._slot.facts)}."), facing(self._slot, self._limits)
        except SpecdecError as error:
            still = f" Still loaded: {provenance.pair_line(self._slot.facts)}." if self._slot.loaded else ""
            raise LoadFailed(f"{error}{still}") from error
        finally:
            if self._slot.loaded:
                self._startup.begin()

    def _plan(self, preset: str | None, target: str | None, draft: str | None, method: str) -> PairPlan:
        model: str | None
        row, written = self._row(method), self._is_written(preset, method)
        target, draft = (target or "").strip(), (draft or "").strip()  # a hidden field is None
        text, listed = (draft or _example(preset, row)) if written else "", None
        if preset in _PRESETS:
            model, listed = _PRESETS[preset].target, _PRESETS[preset].draft
        elif self._limits.pairs == "any":
            if preset != OWN:
                target, listed = _typed(preset)
            if not target:
                raise InvalidInput("No target was given; write a hub id, or the path of a folder or a GGUF file.")
            model = target
        else:
            raise InvalidInput(f"There is no pair {quoted(preset)} in the list.")
        drafting = row.parse(text) if text else registry.method_of(listed or "", others=not self._limits.public)
        if text and drafting is None:
            raise InvalidInput(f"{quoted(text)} is not a valid draft; write {row.form}.")
        if self._limits.public and written and drafting is not None and {*drafting.parts()} - {EMBEDDED_NAME}:
            raise InvalidInput("This public page loads only the pairs of its list; choose one of them.")
        # Visitors must not reach private models, which the owner's token opens.
        return plan_pair(model, drafting, LoadOptions(token=not self._limits.public))

    def _choices(self, preset: str | None) -> list[tuple[str, str]]:
        """The ways to draft: what the page says of each, and its label. The first may be what the pair itself names.

        Those that the pair's target has no draft of come last.
        """
        rows = [(row, _missing(preset, row)) for row in self._methods]
        rows.sort(key=lambda found: bool(found[1]))
        first, *others = [(f"{row.label}\n{missing or row.about}".strip(), row.label) for row, missing in rows]
        if _names_draft(preset):
            _, draft = _typed(preset)
            said = f"as the pair's name says: {quoted(draft)}" if draft else DraftModel.about
            first = (f"The pair's own draft\n{said}", first[1])
        return [first, *others]

    def _row(self, method: str) -> type[DraftMethod]:
        """The way to draft with this label."""
        found = next((row for row in self._methods if row.label == method), None)
        if found is None:
            raise InvalidInput(f"There is no draft method {quoted(method)} in the list.")
        return found

    def _is_written(self, preset: str | None, method: str) -> bool:
        """Whether the visitor types the way to draft; a pair of the list names its draft model itself."""
        return not _names_draft(preset) or self._row(method) is not DraftModel


async def _told(jobs: JobQueue, request: gr.Request, job: Job) -> AsyncGenerator[Any, None]:
    """The values of a job's step: HTML, or at its end HTML and further values."""
    try:
        async with aclosing(followed(jobs, request, job)) as steps:
            async for shown in steps:
                yield html.note(sentences.ahead(*shown)) if isinstance(shown, QueuePosition) else shown
    except SpecdecError as error:
        said = _PATH.sub("a file", str(error)) if jobs.limits.public else str(error)
        yield html.error(said), None


def facing(slot: Slot, limits: Limits) -> tuple[str, Any, Any, Any]:
    """The page's texts about the loaded pair: header, prompt hint, and the chat switches of race and benchmark."""
    able = slot.chat
    hint = "Continues stories and Python; cannot answer questions." if slot.facts["name"] == "embedded" else ""
    info = "Send the prompt as a chat message." if able else "The target is a base model: it has no chat template."
    chat = gr.update(value=able, interactive=able, info=info)
    sets = gr.update(interactive=True, info=SETS) if able else chat
    return pair_header(slot, limits), gr.update(info=hint), chat, sets


def pair_header(slot: Slot, limits: Limits) -> str:
    """The top of the page, which names the loaded pair."""
    return html.header(provenance.pair_line(slot.facts), "your own pair" if limits.pairs == "none" else "change")


def _names_draft(pair: str | None) -> bool:
    """Whether a pair of the list, or one that was typed as "target <- draft", names its draft itself."""
    return pair in _PRESETS or (pair != OWN and bool(_typed(pair)[1]))


def _head_for(preset: Preset, row: type[DraftMethod]) -> str:
    """A head of this kind for the preset's target, as ``parse`` reads it; empty where none is known."""
    if issubclass(row, TrainedHead) and preset.target is None:
        return f"{row.kind}:{row.shipped}" if row.shipped else ""
    return next((draft.text for draft in published_for(preset.target or "") if draft.kind == row.kind), "")


def _example(pair: str | None, row: type[DraftMethod]) -> str:
    """What is drafted with where nobody typed anything: a head for the pair's target, if one is known."""
    return (_head_for(_PRESETS[pair], row) if pair in _PRESETS else "") or row.example


def _missing(pair: str | None, row: type[DraftMethod]) -> str:
    """Why the target of a pair of the list has no draft of this kind; empty if it has one, or if nothing is known."""
    if pair not in _PRESETS:
        return ""
    preset = _PRESETS[pair]
    if issubclass(row, TrainedHead) and not _head_for(preset, row):
        return "no such head is known for this target"
    shared = {one.target for one in PRESETS if one.draft == Mtp.kind}
    return "no such layers are known of this target" if row is Mtp and preset.target not in shared else ""


def _in_words(preset: Preset) -> str:
    """A pair of the list as somebody reads it who knows neither its name nor the arrow."""
    target, draft = _typed(preset.name)
    target = target if preset.target else f"Built-in story model ({target})"
    return f"{target} with {f'draft {draft}' if draft else 'a smaller draft'}"


def _typed(pair: str | None) -> tuple[str, str]:
    """The target, and the draft or "", of a pair that was typed into the field of the list, as "target <- draft"."""
    target, draft, *_ = [*ARROW.split((pair or "").strip(), maxsplit=1), ""]
    return target, draft


# By the name, and by what the list shows, which somebody may type.
_PRESETS = {name: preset for preset in PRESETS for name in (preset.name, _in_words(preset))}


def _preset_line(name: str | None) -> str:
    """What the chosen pair is good for, or how a typed one is understood."""
    if name == OWN:
        return ""
    if name not in _PRESETS:
        target, draft = _typed(name)
        said = f"Not a pair of the list. It is read as target {quoted(target)}" if target else "No pair is chosen."
        return html.note(said + (f" and draft {quoted(draft)}." if draft else "." * bool(target)))
    preset = _PRESETS[name]
    where = " It is fetched from the hub." if preset.target else ""
    terms = " Its terms must be accepted there first (HF_TOKEN)." if preset.licensed else ""
    about = "about " if preset.unchecked else ""
    in_16, in_32 = (gigabytes(preset.needs_bytes(size)).replace(" ", "\u00a0") for size in (2, 4))
    size = f"{about}{in_16} in 16 bits, {in_32} in 32 bits"
    doubt = " This pair is taken from model cards and was not tried. Check it first." if preset.unchecked else ""
    return html.note(f"{_models(preset)} Good for {preset.good_for}. Weights: {size}.{where}{terms}{doubt}")


def _models(preset: Preset) -> str:
    """What target and draft are, and their sizes."""
    sizes = [numbers.parameters(count) for count in (preset.target_parameters, preset.draft_parameters)]
    if preset.layers:
        target, draft = (f"{n} layer{'s' * (n != 1)}, {size}" for n, size in zip(preset.layers, sizes, strict=True))
        small = f"a head ({draft})" if preset.draft else f"a smaller one ({draft})"
        return f"Target: a built-in story model ({target} parameters). Draft: {small}."
    return f"Target: {preset.target} ({sizes[0]} parameters). Draft: {preset.draft} ({sizes[1]})."


def own_pair_command(space: str | None) -> str:
    """How to measure a pair that this page does not offer. ``space`` is the name of the Space on which it runs."""
    return html.your_own("pip install -r requirements.txt && python app.py --target TARGET --draft DRAFT", space)
