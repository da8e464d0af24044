"""Makes the recording of a race from a trace: the events of its lanes alone.

``--json`` prints a trace, and another program's loop can write one. It needs the lanes ``generate`` and
``speculative``, one after another. Whoever writes one measures only when each round ended and which guesses it kept.
The sentences and figures are added here, by the same judge as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import Event, Finished, Round, Started
from specdec.lanes.table import BASELINE, LANES, row_of
from specdec.measure.result import LaneEvents, in_runs, started_of
from specdec.report.link_settings import link_settings
from specdec.report.race_verdict import SPECULATIVE, race_verdict
from specdec.report.recording import begin_line, line, token_bytes, verdict_line, version_of
from specdec.report.schema import VERSION, event_of, parse
from specdec.report.tables import lane_end

NEEDED = (BASELINE.key, SPECULATIVE)


def race_of(text: str, at: float | None = None) -> str:
    """The recording of a race from the lines of a recording or of a trace.

    A recording comes back as it is. ``at`` is when a trace was made, in seconds since 1970; None for now. Raises
    ``InvalidInput`` with the line and field that are wrong, or with the lane that is missing.
    """
    lines = [part for part in text.splitlines() if part.strip()]
    if not lines:
        raise InvalidInput("It is empty. Give a recording: JSON lines, one for each event.")
    parsed = [_parsed(part, number) for number, part in enumerate(lines, start=1)]
    if isinstance(parsed[0], dict) and parsed[0]["event"] == "begin":
        if getattr(parsed[-1], "event", None) != "verdict":
            raise InvalidInput("It ends before the verdict. Save a recording after its race has ended.")
        return "".join(part + "\n" for part in lines)
    return _completed(lines, [event for one in parsed if (event := event_of(one))], at)


def _parsed(text: str, number: int) -> Any:
    if (version := version_of(text)) != VERSION:
        raise InvalidInput(f"It has version {version}; this program reads version {VERSION}.")
    return parse(text, number)


def _completed(lines: list[str], events: list[Event], at: float | None) -> str:
    """The lines of a trace with those about the whole race."""
    if not isinstance(events[0], Started):
        raise InvalidInput("It begins in the middle of a lane: the first event of a lane is started.")
    runs = in_runs(events, [row.key for row in LANES])
    _require_whole(runs)
    text_of = dict(zip(map(id, events), lines, strict=True))
    written: list[str] = []
    for key, found in ((key, found) for lanes in runs for key, found in lanes.items()):
        written += [text_of[id(event)] + "\n" for event in found]
        if end := lane_end(key, found):
            written.append(line(end))
    texts, keys, started = token_bytes(lines), list(runs[0]), started_of(runs[0][SPECULATIVE])
    prompt = b"".join(texts.get(token, b"") for token in started.prompt_ids).decode(errors="replace")
    settings = link_settings(
        prompt, False, started.gamma, started.params, started.acceptance, started.accept_top_k, keys
    )
    verdict = race_verdict(runs, text_of=lambda token: texts.get(token, b"").decode(errors="replace"))
    begin = begin_line(0, "file", started.pair, settings, keys, len(runs), at)
    return "".join([begin, *written, verdict_line(verdict)])


def _require_whole(runs: Sequence[LaneEvents]) -> None:
    """Raise ``InvalidInput`` unless every run has the same lanes, those that are needed, each from start to end."""
    for number, lanes in enumerate(runs, start=1):
        for key in [*NEEDED, *runs[0]]:
            if key not in lanes:
                raise InvalidInput(
                    f"The lane {key} is missing in run {number}. Every run needs {' and '.join(NEEDED)}."
                )
        for key, events in lanes.items():
            row_of(key)
            if key not in runs[0]:
                raise InvalidInput(f"The lane {key} is missing in run 1. Every run has the same lanes.")
            if not isinstance(events[-1], Finished) or not any(isinstance(event, Round) for event in events):
                raise InvalidInput(f"The lane {key} of run {number} has no round, or does not end with finished.")
