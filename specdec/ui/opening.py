"""How a finished measurement comes into a tab without being measured: the recorded one, a file, and a link."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import gradio as gr

from specdec.errors import InvalidInput
from specdec.measure.results import Results, read_results
from specdec.measure.short import link_text, read_link, read_short
from specdec.report.origin import LINK, RECORDING, Origin
from specdec.ui import fragments
from specdec.ui.files import chosen
from specdec.ui.limits import Limits
from specdec.ui.measuring import Values
from specdec.ui.work import INTERNAL

LONGEST = 4096  # characters of a link; above it the file is offered
RECORDED = Path(__file__).parents[1] / "data"
_LOOK: dict[str, Any] = {"html_template": "", "apply_default_css": False, "elem_classes": "sd-files"}
_OPEN = "import(%s).then((results) => results.open(element, props, trigger, %s));"
_LINK = "import(%s).then((results) => results.link(element, props, watch, %s));"
_IN_ADDRESS = "async () => (await import(%s)).inAddress(%s)"


class Opening:
    """Built inside a ``gr.Tab``: the button that opens a file, and the field for a link to what the tab shows.

    ``key`` names the results in an address and in ``specdec/data``. ``script`` is the address of ``results.js``.
    """

    def __init__(self, key: str, script: str, limits: Limits):
        self._key, self._script, self._limits = key, script, limits
        self._filled = gr.State(False)  # whether the tab shows a result

    def button(self) -> None:
        """The button that opens a file."""
        settings = {"id": f"sd-{self._key}-open", "label": "Open results", "most": self._limits.file_bytes}
        script = _OPEN % (self._script, json.dumps(settings))
        self._file = gr.HTML(js_on_load=script, elem_id=f"sd-{self._key}-open", **_LOOK)

    def link_field(self) -> gr.HTML:
        """The field whose value ``packed`` makes; empty while that is None."""
        settings = json.dumps({"key": self._key, "longest": LONGEST})
        self.link = gr.HTML(js_on_load=_LINK % (self._script, settings), elem_id=f"sd-{self._key}-link", **_LOOK)
        return self.link

    def wire(
        self, tab: gr.Tab, tabs: gr.Tabs, status: Any, cleared: Values, show: Callable[[Results, Origin], Values]
    ) -> None:
        """``show`` gives the values that show results; ``cleared`` has all of its keys, with those for none."""
        self._show, self._cleared, self._status = show, cleared, status
        outputs = [status, self._filled, *cleared]
        tab.select(self._greet, self._filled, outputs, queue=False, **INTERNAL)
        self._file.upload(self._open_file, self._file, outputs, **INTERNAL)
        # A tab is not on the page before it is opened: what a link opens it with stands outside.
        text, press = gr.Textbox(visible=False), gr.Button("", visible="hidden", elem_id=f"sd-{self._key}-address")
        read = _IN_ADDRESS % (self._script, json.dumps(self._key))
        press.click(self._open_link, text, [tabs, *outputs], js=read, **INTERNAL)
        self._selected = {tabs: gr.update(selected=tab.id)}

    @cached_property
    def _recorded(self) -> Values:
        text = (RECORDED / f"recorded_{self._key}.json").read_text(encoding="utf-8")
        return self._show(read_short(text), RECORDING)

    def _greet(self, filled: bool) -> Values:
        """The recorded result, in a tab that shows none."""
        if filled:
            return {self._filled: gr.skip()}
        return {self._filled: True} | _copied(self._recorded)

    def _open_file(self, value: Any) -> Values:
        try:
            file = chosen(value, self._limits)
            if file is None:
                raise InvalidInput("No file was sent. Choose one.")
            results = read_results(file.text, file.name)
            return self._opened(results, Origin("file", file.name)) | {self.link: packed(results)}
        except InvalidInput as error:
            return {self._status: fragments.error(str(error))}

    def _open_link(self, text: Any) -> Values:
        try:
            return self._selected | self._opened(read_link(str(text)), LINK)
        except InvalidInput as error:
            problem = fragments.error(f"The results in this link cannot be shown. {error}")
            return self._selected | {self._status: problem}

    def _opened(self, results: Results, origin: Origin) -> Values:
        return self._cleared | self._show(results, origin) | {self._status: "", self._filled: True}


def packed(results: Results) -> str:
    """The value of the field for a link: the results, or nothing where they are too long for one."""
    text = link_text(results)
    return text if len(text) <= LONGEST else ""


def _copied(values: Values) -> Values:
    """Gradio takes the parts out of an update that it sends."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
