"""Shows finished measurements in a tab: the recorded one, one from a file, and one from a link."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import gradio as gr

from specdec.errors import InvalidInput, SpecdecError
from specdec.measure.results.format import CALLS_OF_LINK, Results, figures_only, read_results
from specdec.report import sentences
from specdec.report.provenance import LINK, RECORDING, Origin
from specdec.ui import html
from specdec.ui.files import chosen
from specdec.ui.jobs.context import QueuePosition
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, followed, short_job
from specdec.ui.tabs.measurement import Values

Found = TypeVar("Found")

MOST_OF_LINK = 150_000  # characters of the text of a link's results; ``packed_results.js`` has the same bound
RECORDED = Path(__file__).parents[2] / "data"
_LOOK: dict[str, Any] = {"html_template": "", "apply_default_css": False, "elem_classes": "sd-files"}
_OPEN = "import(%s).then((results) => results.open(element, props, trigger, %s));"
_LINK = "import(%s).then((results) => results.link(element, props, watch, %s));"
_WAIT = "async (...values) => { await (await import(%s)).whenOpened(); return values; }"
_OPENED = "() => { import(%s).then((results) => results.resultsOpened()); }"


class Greeting:
    """Shows a recorded result when the tab is opened, until there is another one. Built inside a ``gr.Tab``.

    ``record`` names its file in ``specdec/data``.
    """

    def __init__(self, record: str):
        self._record = record
        self.filled = gr.State(False)  # whether the tab shows a result

    def wire(self, tab: gr.Tab, outputs: list[Any], show: Callable[[str], Values], wait: str | None = None) -> None:
        """``show`` gives the values of ``outputs`` that show the text of the record. ``wait`` is a script before it."""
        self._show = show
        tab.select(self._greet, self.filled, [self.filled, *outputs], js=wait, queue=False, **INTERNAL)

    @cached_property
    def _values(self) -> Values:
        """The values, which are the same for all visitors."""
        return self._show((RECORDED / self._record).read_text(encoding="utf-8"))

    def _greet(self, filled: bool) -> Values:
        if filled:
            return {self.filled: gr.skip()}
        # Copies, because Gradio removes parts of an update when it sends it.
        return {self.filled: True} | {k: dict(v) if isinstance(v, dict) else v for k, v in self._values.items()}


@dataclass(frozen=True)
class Kept(Generic[Found]):
    """How results of a kind are kept.

    record   the name of the recorded ones, in ``specdec/data``
    read     makes them of a text; takes the text and the name of its file
    linked   the same for the text of a link
    text     their text for a link; empty if it would be too long
    """

    record: str
    read: Callable[[str, str], Found]
    linked: Callable[[str, str], Found]
    text: Callable[[Found], str]


def kept_results(key: str) -> Kept[Results]:
    """Results of a sweep or a benchmark."""
    return Kept(f"recorded_{key}.jsonl", read_results, _results_of_link, text_for_link)


def _results_of_link(text: str, name: str) -> Results:
    return read_results(text, name, CALLS_OF_LINK)


def text_for_link(results: Results) -> str:
    """The text of results for a link; empty if it would be too long."""
    return figures_only(results) if len(results.plan) <= CALLS_OF_LINK else ""


class Opening(Generic[Found]):
    """The recorded result, the button that opens a file, and the field for a link. Built inside a ``gr.Tab``.

    ``key`` names the results in an address. ``script`` is the address of ``results.js``.
    """

    def __init__(self, key: str, script: str, jobs: JobQueue, kept: Kept[Found]):
        self._key, self._script, self._jobs, self._limits, self._kept = key, script, jobs, jobs.limits, kept
        self._greeting = Greeting(kept.record)
        self._file: gr.HTML | None = None

    def button(self) -> None:
        """The button that opens a file."""
        settings = {"id": f"sd-{self._key}-open", "label": "Open results", "most": self._limits.file_bytes}
        script = _OPEN % (self._script, json.dumps(settings))
        self._file = gr.HTML(js_on_load=script, elem_id=f"sd-{self._key}-open", **_LOOK)

    def link_field(self) -> gr.HTML:
        """The field for a link. Its value is what ``value`` gives; it is empty without results."""
        self.link = link_field(self._key, self._script, self._key)
        return self.link

    def wire(
        self,
        tab: gr.Tab,
        address: gr.HTML,
        status: gr.HTML,
        cleared: Values,
        show: Callable[[Found, Origin], Values],
    ) -> None:
        """Wire the fields. ``show`` gives the values that show results, and ``cleared`` the values for none.

        ``address`` gives results in the page's address, under ``key``.
        """
        self._show, self._cleared, self._status = show, cleared, status
        outputs = [status, self._greeting.filled, *cleared]
        recorded = list(cleared), lambda text: show(self._kept.read(text, self._kept.record), RECORDING)
        self._greeting.wire(tab, *recorded, wait=_WAIT % self._script)
        linked = getattr(address, self._key)
        if self._file is not None:
            by_file = self._opening(self._open_file, self._file)
            opened_file: dict[str, Any] = {"trigger_mode": "multiple"} | UNLIMITED | INTERNAL  # none is dropped
            self._file.upload(by_file, self._file, [self._file, *outputs], **opened_file)
        by_link = self._opening(self._open_link, address)
        opened = linked(by_link, address, [address, *outputs], **UNLIMITED, **INTERNAL)
        opened.then(None, js=_OPENED % self._script, **INTERNAL)

    def _opening(self, shown: Callable[[Any], Values], field: gr.HTML) -> Callable[..., AsyncIterator[Values]]:
        """A listener that shows results in its turn: ``shown`` gives the values for its input, that of ``field``.

        The field is emptied, because Gradio keeps the values of a hundred sessions.
        """

        async def listen(request: gr.Request, value: Any) -> AsyncIterator[Values]:
            yield {field: None}
            try:
                job = short_job("open", partial(shown, value))
                async with aclosing(followed(self._jobs, request, job)) as steps:
                    async for step in steps:
                        waits = isinstance(step, QueuePosition)
                        yield {self._status: html.status(sentences.ahead(*step))} if waits else step
            except SpecdecError as error:
                yield {self._status: html.error(str(error))}

        return listen

    def _open_file(self, value: Any) -> Values:
        file = chosen(value, self._limits)
        if file is None:
            raise InvalidInput("No file was sent. Choose one.")
        results = self._kept.read(file.text, file.name)
        return self._opened(results, Origin("file", file.name))

    def _open_link(self, value: Any) -> Values:
        try:
            return self._opened(self._kept.linked(text_of_link(value), "It"), LINK)
        except InvalidInput as error:
            return {self._status: html.error(f"The results in this link cannot be shown. {error}", "address")}

    def value(self, results: Found, code: dict[str, Any] | None = None) -> str:
        """The value of the field for a link to these results.

        ``code`` is what ``code_answer`` gives for them, for the Share menu.
        """
        return link_value(self._kept.text(results), code)

    def _opened(self, results: Found, origin: Origin) -> Values:
        cleared = {k: dict(v) if isinstance(v, dict) else v for k, v in self._cleared.items()}
        shown = self._show(results, origin) | {self.link: self.value(results)}
        return cleared | shown | {self._status: "", self._greeting.filled: True}


def link_field(key: str, script: str, name: str) -> gr.HTML:
    """A field for a link to results, whose value ``link_value`` makes. ``key`` names them in the address.

    ``script`` is the address of ``results.js``. The Share menu knows them under ``name``.
    """
    settings = json.dumps({"key": key, "name": name})
    return gr.HTML(js_on_load=_LINK % (script, settings), elem_id=f"sd-{name}-link", **_LOOK)


def link_value(text: str, code: dict[str, Any] | None = None) -> str:
    """``text``: that of the results for a link. ``code`` is for the Share menu."""
    return json.dumps({"text": text, "code": code})


def text_of_link(value: Any) -> str:
    """What a browser has read in a link. Raises ``InvalidInput``, because a request may be forged."""
    match value:
        case {"text": str(text)} if len(text) <= MOST_OF_LINK:
            return text.encode(errors="replace").decode()
        case {"problem": str(problem)}:
            raise InvalidInput(problem[:200])
        case _:
            raise InvalidInput("It cannot be read.")
