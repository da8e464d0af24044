"""Writes the recording of a race: its first line, the lines of its lanes, and its verdict."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from specdec.events import Event, Finished, Started
from specdec.facts import PairFacts
from specdec.lanes.table import key_of
from specdec.report import provenance
from specdec.report.race_verdict import lane_end
from specdec.report.recording import Recorder, line
from specdec.report.schema import VERSION
from specdec.report.verdict import Verdict


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
    ``settings`` those that a link holds, ``keys`` those of the lanes, ``runs`` says how often each lane runs, and
    ``at`` when the race began, in seconds since 1970; None for now.
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
