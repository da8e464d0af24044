"""Writes events as JSON lines and reads them. The live page, ``--json`` and files all use this format.

A line is one event: ``{"event": "started" | "round" | "finished", ...fields}``. Besides the event's own fields a line
has ``tokens``: the bytes of every token id that it is the first to mention, as a string with one character for each
byte (code points 0-255). They are what the token adds in the middle of a text. Many tokenizers leave out a space at its
beginning, so the line of ``started`` has ``head``: the texts of the prompt's first tokens, as far as they are not their
bytes. The ids, these bytes and the head are enough to show the run without a model.

The recording of a race holds its lanes one after another and, between them, lines about the whole: ``begin`` (settings,
pair, time), ``lane_end``, ``verdict`` and ``error``. ``read_recording`` skips those, and ``lanes`` separates the lanes.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import Event, Finished, Round, Started
from specdec.facts import PairFacts
from specdec.lanes.table import key_of
from specdec.report import provenance
from specdec.report.schema import VERSION, event_of, parse
from specdec.report.tables import lane_end
from specdec.report.verdict import Verdict
from specdec.text import TokenBytes, whole_text

_NAMES = {Started: "started", Round: "round", Finished: "finished"}


class Recorder:
    """Turns events into JSON lines.

    Each run needs its own recorder, because it remembers the tokens it has described. ``tokenizer`` may be the bytes of
    tokens themselves (``TokenBytes``), where a server has the tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._bytes_of = tokenizer if isinstance(tokenizer, TokenBytes) else TokenBytes(tokenizer)
        self._described: set[int] = set()

    def line(self, event: Event) -> str:
        """An event as a line."""
        record = {"event": _NAMES[type(event)], **asdict(event)}
        if isinstance(event, Started):
            record["version"] = VERSION
            if head := self._bytes_of.head(event.prompt_ids):
                record["head"] = head
        new = sorted(_ids(event) - self._described)
        self._described.update(new)
        if new:
            record["tokens"] = {str(i): self._bytes_of(i).decode("latin-1") for i in new}
        return line(record)

    def text_of(self, token_id: int) -> str:
        """The text of a single token, as far as it is text."""
        return self._bytes_of(token_id).decode(errors="replace")


def line(record: Mapping[str, Any]) -> str:
    """A record as a line of JSON, newline included. ``<`` is escaped, so that the line can be put into a page.

    It is printable ASCII: DEL too is escaped, the only control character that ``json`` leaves as it is.
    """
    return plain_json(record, separators=(",", ":")).replace("<", "\\u003c").replace("\x7f", "\\u007f") + "\n"


def plain_json(record: Any, **style: Any) -> str:
    """``record`` as JSON that every reader accepts. A browser refuses JSON with a NaN or half of a surrogate pair.

    NaN and infinity become null, and half of a pair a question mark. ``style`` is passed to ``json.dumps``.
    """
    try:
        text = json.dumps(record, allow_nan=False, **style)
    except ValueError:
        text = None
    if text is None or "\\ud" in text:  # a whole pair is written like this too
        text = json.dumps(_plain(record), allow_nan=False, **style)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return whole_text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown_alone(text: str) -> str:
    """The recording of a race with only the run that is shown. The verdict stays that of all runs, as in a link."""
    begin, *records, verdict = map(json.loads, text.splitlines())
    count, shown = len(begin["lanes"]), verdict["shown"]
    starts = [at for at, record in enumerate(records) if record["event"] == "started"][::count]
    kept = records[starts[shown] : [*starts, len(records)][shown + 1]]
    tokens = {name: token for record in records for name, token in record.pop("tokens", {}).items()}
    return "".join(map(line, [begin, kept[0] | {"tokens": tokens}, *kept[1:], verdict | {"shown": 0}]))


def read_recording(lines: Iterable[str]) -> Iterator[Event]:
    """Read the events of a recording. They are equal to the recorded ones.

    Raises ``InvalidInput`` for a line that is no JSON, of an unknown kind, or of another version.
    """
    for number, text in _written(lines):
        if (found := version_of(text)) != VERSION:
            raise InvalidInput(f"The recording has version {found}; this program reads version {VERSION}.")
        if (event := event_of(parse(text, number))) is not None:
            yield event


def _written(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers in the file."""
    return ((number, text) for number, text in enumerate(lines, start=1) if text.strip())


def version_of(text: str) -> Any:
    """The version that a line names; this program's version if it names none or is no JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(text)
        return record.get("version", VERSION) if isinstance(record, dict) else VERSION
    return VERSION


def lanes(lines: Iterable[str]) -> list[list[Event]]:
    """The events of a recording, as a list for each lane, for ``collect``."""
    found: list[list[Event]] = []
    for event in read_recording(lines):
        if isinstance(event, Started):
            found.append([])
        if not found:
            raise InvalidInput("The recording begins in the middle of a lane.")
        found[-1].append(event)
    return found


def token_bytes(lines: Iterable[str]) -> dict[int, bytes]:
    """The bytes of every token that a recording mentions. Raises ``InvalidInput`` for a line of something else."""
    found = {}
    for number, text in _written(lines):
        for token_id, characters in (getattr(parse(text, number), "tokens", None) or {}).items():
            try:
                found[int(token_id)] = characters.encode("latin-1")
            except ValueError as error:  # includes UnicodeEncodeError
                raise InvalidInput(f"Line {number} is not a line of a recording: its tokens are wrong.") from error
    return found


def _ids(event: Event) -> set[int]:
    """Every token id that an event mentions."""
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


def begin_line(
    number: int,
    origin: str,
    facts: PairFacts,
    settings: dict[str, Any],
    keys: Sequence[str],
    runs: int,
    at: float | None = None,
) -> str:
    """The first line.

    ``number`` differs from race to race, so that a page notices a new one. ``facts`` are those of ``Pair.facts``,
    ``settings`` those that a link holds, ``keys`` those of the lanes, ``runs`` says how often each lane runs at least,
    and ``at`` when the race began, in seconds since 1970; None for now.
    """
    record: dict[str, Any] = {"event": "begin", "version": VERSION, "number": number, "origin": origin}
    record |= {"at": time.time() if at is None else at, "pair": provenance.pair_line(facts)}
    return line(record | {"settings": settings, "lanes": keys, "runs": runs})


def event_lines(
    batch: Iterable[Event], runs: list[dict[str, list[Event]]], keys: Sequence[str], recorder: Recorder
) -> Iterator[str]:
    """The lines of a batch. Its events are added to ``runs``, in each run by the keys of the race's lanes."""
    for event in batch:
        if isinstance(event, Started):
            if not runs or len(runs[-1]) == len(keys):
                runs.append({})
            runs[-1][key_of(event.lane, event.gamma, keys)] = []
        lane = next(reversed(runs[-1]))
        runs[-1][lane].append(event)
        yield recorder.line(event)
        if isinstance(event, Finished) and (end := lane_end(lane, runs[-1][lane])):
            yield line(end)


def verdict_line(verdict: Verdict) -> str:
    """The last line of a race."""
    return line({"event": "verdict", **asdict(verdict)})
