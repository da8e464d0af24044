"""Reads what a user gives as the name of a model: a folder, a GGUF file, a hub id, or the address of its page."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from specdec.errors import LoadFailed, quoted

# What comes along when a name is copied: space, line ends, invisible marks, quotes.
_AROUND = " \t\r\n\f\v\xa0\u200b\u200e\u2060\ufeff\"'`\u2018\u2019\u201c\u201d"
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<path>.*)|hf://(?P<short>.*)", re.I)
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_WRITTEN_AS_PATH = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|.*\\|[^/]*/$")
_VIEWS = ("tree", "blob", "resolve", "raw")  # in the address of a folder or a file of a repository
_NO_MODELS = ("datasets", "spaces", "collections", "papers", "docs", "blog", "api")


@dataclass(frozen=True)
class Name:
    """A path or a hub id, with the revision and the GGUF file in its repository where they were named too."""

    place: str
    revision: str | None = None
    gguf: str | None = None


def read_name(given: str) -> Name:
    """Read a name. What exists here under exactly this name is a path. Raises ``LoadFailed``."""
    if os.path.exists(_expanded(given)):
        return Name(_expanded(given))
    text = given.strip(_AROUND)
    if match := _ADDRESS.fullmatch(text):
        return _of_address(text, match["path"] or match["short"] or "")
    if "://" in text:
        raise LoadFailed(
            f"{quoted(text)} is not the address of a model on huggingface.co. Give a hub id such as Qwen/Qwen3-0.6B, "
            "or a folder."
        )
    if not _WRITTEN_AS_PATH.match(text):
        text = text.removesuffix("/")
    place, _, file = text.rpartition(":")
    if len(place) > 1 and file.lower().endswith(".gguf"):  # one letter is a drive
        return Name(_expanded(place), gguf=file)
    return Name(_expanded(text))


def require_hub_id(place: str) -> None:
    """Refuse a place that is neither here nor a possible hub id. Raises ``LoadFailed``."""
    if not place:
        raise LoadFailed("The name of the model is empty. Give a hub id or a folder.")
    if place.lower().endswith(".gguf"):
        raise LoadFailed(
            f"There is no file {place!r}. Check the path; a file in a hub repository is written owner/name:FILE.gguf."
        )
    if _WRITTEN_AS_PATH.match(place):
        raise LoadFailed(f"There is no folder {place!r}. Check the path.")
    if not _is_hub_id(place):
        raise LoadFailed(f"There is no folder {place!r}, and {place!r} is not a valid Hub id. Check the path.")


def hides_hub_model(place: str) -> bool:
    """Whether a path here is written as a hub id, so that the model of that name on the hub cannot be reached."""
    return not _WRITTEN_AS_PATH.match(place) and _is_hub_id(place)


def _is_hub_id(place: str) -> bool:
    try:
        validate_repo_id(place)
    except HFValidationError:
        return False
    return _HUB_ID.fullmatch(place) is not None


def _expanded(text: str) -> str:
    return os.path.expanduser(text) if text.startswith("~/") else text


def _of_address(address: str, path: str) -> Name:
    """The model whose page, folder or file has this address."""
    parts = [unquote(part) for part in re.split("[?#]", path)[0].split("/") if part]
    if not parts or parts[0] in _NO_MODELS:
        raise LoadFailed(f"{quoted(address)} is not the page of a model. Give the model's hub id, such as owner/name.")
    length = 1 if len(parts) == 1 or parts[1] in _VIEWS else 2
    found = Name("/".join(parts[:length]).removesuffix(".git"))
    if len(parts) < length + 2 or parts[length] not in _VIEWS:
        return found
    view, revision, *inside = parts[length:]
    found = replace(found, revision=None if revision == "main" else revision)
    if inside and inside[-1].lower().endswith(".gguf"):
        return replace(found, gguf="/".join(inside))
    if inside and view == "tree":
        raise LoadFailed(
            f"{quoted(address)} is a folder of {found.place}, and only whole repositories are loaded. Download it, and "
            "give the folder here."
        )
    return found
