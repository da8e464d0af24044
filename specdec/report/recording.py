"""Events to JSON lines and back: the one wire format, for the live page, for ``--json`` and for files.

A line is one event: ``{"event": "started" | "round" | "finished", ...fields}``. Beside the event's own fields a
line carries ``tokens``, the bytes of every token id it is the first to mention, as a string of one character a byte
(code points 0-255). The ids and these bytes are all a reader needs to show the run without a model.

The recording of a race holds its lanes one after another and, between them, lines about the whole: ``begin`` (settings,
pair, when), ``lane_end``, ``verdict`` and ``error``. ``read`` passes over those, and ``lanes`` parts the lanes.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import Event, Finished, Round, Started
from specdec.report.schema import VERSION, event_of, parse
from specdec.text import TokenBytes

_NAMES = {Started: "started", Round: "round", Finished: "finished"}


class Recorder:
    """Turns events into JSON lines; one recorder a run, as it remembers which tokens it has described."""

    def __init__(self, tokenizer: Any) -> None:
        self._bytes_of = TokenBytes(tokenizer)
        self._described: set[int] = set()

    def line(self, event: Event) -> str:
        """One event as one line."""
        record = {"event": _NAMES[type(event)], **asdict(event)}
        if isinstance(event, Started):
            record["version"] = VERSION
        new = sorted(_ids(event) - self._described)
        self._described.update(new)
        if new:
            record["tokens"] = {str(i): self._bytes_of(i).decode("latin-1") for i in new}
        return line(record)

    def text_of(self, token_id: int) -> str:
        """A token on its own, as far as it is text."""
        return self._bytes_of(token_id).decode(errors="replace")


def line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON, newline included; ``<`` is escaped so that the line may stand in a page."""
    try:
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity are no JSON: a browser refuses the whole line
        text = json.dumps(_finite(record), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c") + "\n"


def _finite(value: Any) -> Any:
    """``value`` with None for every number that is NaN or infinite."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(lines: Iterable[str]) -> Iterator[Event]:
    """The events of a recording, equal to those that were recorded.

    Raises ``InvalidInput`` where a line is no JSON, of an unknown kind or of another version.
    """
    for number, text in _written(lines):
        if (found := _version(text)) != VERSION:
            raise InvalidInput(f"The recording is of version {found}; this program reads version {VERSION}.")
        if (event := event_of(parse(text, number))) is not None:
            yield event


def _written(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that hold something, numbered as an editor numbers them."""
    return ((number, text) for number, text in enumerate(lines, start=1) if text.strip())


def _version(text: str) -> Any:
    """The version that a line names; that of this program where it names none, or is no JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(text)
        return record.get("version", VERSION) if isinstance(record, dict) else VERSION
    return VERSION


def lanes(lines: Iterable[str]) -> list[list[Event]]:
    """The events of a recording, each lane's by themselves, as ``collect`` wants them."""
    found: list[list[Event]] = []
    for event in read(lines):
        if isinstance(event, Started):
            found.append([])
        if not found:
            raise InvalidInput("The recording begins in the middle of a lane.")
        found[-1].append(event)
    return found


def token_bytes(lines: Iterable[str]) -> dict[int, bytes]:
    """The bytes of every token a recording mentions. Raises as ``read`` does."""
    tables = (getattr(parse(text, number), "tokens", None) or {} for number, text in _written(lines))
    return {int(i): text.encode("latin-1") for table in tables for i, text in table.items()}


def _ids(event: Event) -> set[int]:
    """Every token id an event mentions."""
    if isinstance(event, Started):
        return set(event.prompt_ids)
    if not isinstance(event, Round):
        return set()
    ids: set[int | None] = {event.token_id, *event.committed_ids, *(token_id for token_id, _ in event.missed)}
    for token in event.draft or ():
        ids |= {token.token_id, token.target_token_id}
    for rows in asdict(event.decision).values() if event.decision else ():
        ids |= {token_id for token_id, _ in rows or ()}
    return {token_id for token_id in ids if token_id is not None}
