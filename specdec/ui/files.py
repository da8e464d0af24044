"""Files that the visitor's browser reads and saves itself. The server receives and sends text, and stores nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import gradio as gr

from specdec.errors import InvalidInput
from specdec.measure.prompts import LONGEST_FILE_NAME
from specdec.ui.jobs.limits import Limits

MOST_FILES = 20
_LOOK: dict[str, Any] = {"html_template": "", "apply_default_css": False, "elem_classes": "sd-files"}
_CHOOSE = "import(%s).then((files) => files.choose(element, props, %s));"
_CHOOSE_SEVERAL = "import(%s).then((files) => files.chooseSeveral(element, props, trigger, %s));"
_OFFER = "import(%s).then((files) => files.saveButtons(element, props, watch, %s));"


class TextFile(NamedTuple):
    """A file that a visitor chose."""

    name: str
    text: str


def file_field(script: str, label: str, hint: str, elem_id: str, limits: Limits) -> gr.HTML:
    """A field for one file. ``chosen`` reads its value. ``script`` is the address of ``files.js``."""
    settings = {"id": elem_id, "label": label, "hint": hint, "most": limits.file_bytes}
    return gr.HTML(js_on_load=_CHOOSE % (script, json.dumps(settings)), elem_id=elem_id, **_LOOK)


def files_field(script: str, label: str, hint: str, elem_id: str, limits: Limits) -> gr.HTML:
    """A field for several files. ``chosen_files`` reads its value. Its event ``upload`` comes when all are read."""
    settings = {"id": elem_id, "label": label, "hint": hint, "most": limits.file_bytes}
    return gr.HTML(js_on_load=_CHOOSE_SEVERAL % (script, json.dumps(settings)), elem_id=elem_id, **_LOOK)


def file_buttons(script: str, label: str, hint: str, elem_id: str, key: str) -> gr.HTML:
    """A button for each file of its value, which ``offered`` makes.

    The browser saves the file. No buttons if it is None. The Share menu offers the files of the results ``key`` too.
    """
    settings = {"label": label, "hint": hint, "key": key}
    return gr.HTML(js_on_load=_OFFER % (script, json.dumps(settings)), elem_id=elem_id, **_LOOK)


def offered(files: Mapping[str, str]) -> str:
    """The value of ``file_buttons``; ``files`` maps names to texts."""
    return json.dumps(files)


def chosen(value: Any, limits: Limits) -> TextFile | None:
    """The file of a field, or None. Raises ``InvalidInput``, because a request may be forged."""
    match value:
        case None | "":  # Gradio's frontend may send either for no file
            return None
        case {"name": str(name), "text": str(text)} if len(name) <= LONGEST_FILE_NAME:
            # A forged request may contain half of a surrogate pair, which no page can show.
            name, content = name.encode(errors="replace").decode(), text.encode(errors="replace")
            if len(content) > limits.file_bytes:
                most = f"{limits.file_bytes / 1e6:g} MB"
                raise InvalidInput(
                    f"{name} is larger than {most}, the limit of this page. Choose a smaller file. Nothing ran."
                )
            return TextFile(name, content.decode())
        case _:
            raise InvalidInput("A chosen file could not be read. Choose another one, or remove it. Nothing ran.")


def chosen_files(value: Any, limits: Limits) -> list[TextFile]:
    """The files of a field for several files. Together they may be as large as one file."""
    given = [] if value in (None, "") else value
    if not isinstance(given, list) or len(given) > MOST_FILES:
        raise InvalidInput(f"The chosen files cannot be read. Choose up to {MOST_FILES} results files.")
    files = [file for each in given if (file := chosen(each, limits))]
    if sum(len(file.text.encode()) for file in files) > limits.file_bytes:
        raise InvalidInput(f"The files together are larger than {limits.file_bytes / 1e6:g} MB. Remove one.")
    return files
