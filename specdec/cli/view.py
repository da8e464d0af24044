"""Recorded races as a page without a server: ``specdec view FILE``, and ``specdec page --static PATH``."""

from __future__ import annotations

import tempfile
import webbrowser
from argparse import Namespace
from pathlib import Path

from specdec.cli.terminal import refused
from specdec.errors import InvalidInput, SpecdecError
from specdec.ui.static_page import Recording, recording_in, shipped_recordings, single_page, write_page


def main(arguments: Namespace) -> None:
    """Write the page to ``arguments.static``; if the command has no such option, to a temporary file, and open it."""
    place = getattr(arguments, "static", None)
    try:
        recordings = _named([recording_in(path) for path in arguments.files] or shipped_recordings())
        page = _written(place or Path(tempfile.mkdtemp(prefix="specdec-")) / "recordings.html", recordings)
    except SpecdecError as error:
        raise refused(error) from error
    address = page.resolve().as_uri()
    if place is None and webbrowser.open(address):
        print(f"Opened {address}")
    else:
        print(f"Wrote {page}. Open it in a browser, or put it on any host.")


def _written(place: Path, recordings: list[Recording]) -> Path:
    """The HTML file: ``place`` itself if its name ends in .html, else the one in the folder ``place``."""
    try:
        if place.suffix != ".html":
            return write_page(place, recordings)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(single_page(recordings), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{error.filename or place} cannot be written ({error.strerror}).") from error
    return place


def _named(recordings: list[Recording]) -> list[Recording]:
    """The same with names that differ, because addresses contain them."""
    found: dict[str, Recording] = {}
    for recording in recordings:
        name, count = recording.name, 1
        while name in found:
            count += 1
            name = f"{recording.name}-{count}"
        found[name] = Recording(name, recording.text)
    return list(found.values())
