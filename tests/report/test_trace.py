"""A trace becomes the recording of a race, and what is wrong with one is said by line, lane and run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from fakes import random_table, table_pair

import specdec
from specdec.errors import InvalidInput
from specdec.lanes.race import race
from specdec.measure.result import by_lane
from specdec.report import schema
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder, lanes, line
from specdec.report.trace import race_of

PARAMS = specdec.SamplingParams(max_new_tokens=12)


@pytest.fixture(scope="module")
def events() -> list[specdec.Event]:
    """Two runs of a race."""
    target = random_table(12, 3, seed=0, scale=2.0)
    pair = table_pair(target, target + random_table(12, 3, seed=1, scale=1.0))
    return [event for _ in range(2) for lane in race(pair, torch.tensor([1, 2, 3]), params=PARAMS) for event in [*lane]]


def written(events: list[specdec.Event]) -> str:
    recorder = Recorder(None)
    return "".join(recorder.line(event) for event in events)


def test_a_trace_gets_the_verdict_of_its_events(events: list[specdec.Event]) -> None:
    half = len(events) // 2
    trace = written(events[:half])
    made = race_of(trace, at=1.0)
    records = [json.loads(text) for text in made.splitlines()]
    begin, verdict = records[0], records[-1]
    assert begin["at"] == 1.0 and begin["runs"] == 1 and begin["lanes"] == ["generate", "speculative", "speculative:0"]
    assert verdict["sentence"] == race_verdict([by_lane(events[:half], begin["lanes"])]).sentence
    assert [event for lane in lanes(made.splitlines()) for event in lane] == events[:half]
    for number, text in enumerate(made.splitlines(), start=1):
        schema.parse(text, number)
    assert race_of(made) == made, "a recording comes back as it is"


def test_a_trace_of_several_runs(events: list[specdec.Event]) -> None:
    records = [json.loads(text) for text in race_of(written(events)).splitlines()]
    assert records[0]["runs"] == records[-1]["runs"] == 2
    assert sum(record["event"] == "lane_end" for record in records) == 6


def dropped(lane: str) -> Callable[[list[str]], list[str]]:
    """Without the lines of a lane."""

    def drop(lines: list[str]) -> list[str]:
        kept, inside = [], False
        for text in lines:
            record = json.loads(text)
            inside = record["lane"] == lane if record["event"] == "started" else inside
            kept += [] if inside else [text]
        return kept

    return drop


def changed(**fields: object) -> Callable[[list[str]], list[str]]:
    """With other fields in the first line."""
    return lambda lines: [line(json.loads(lines[0]) | fields), *lines[1:]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [], "It is empty"),
        (lambda lines: ["print('x')"], "Line 1 is not a line of a recording: its kind"),
        (lambda lines: ["[" * 100_000], "Line 1 is not a line"),
        (lambda lines: lines[1:], "begins in the middle of a lane"),
        (lambda lines: lines[:-1], "does not end with finished"),
        (dropped("generate"), "The lane generate is missing in run 1"),
        (dropped("speculative"), "The lane speculative is missing in run 1"),
        (changed(version=4), "It has version 4"),
        (changed(lane="mine"), "There is no lane"),
        (changed(gamma=1.5), "Line 1 is not a line of a recording: its gamma is wrong"),
        (lambda lines: race_of("".join(lines)).splitlines()[:-1], "It ends before the verdict"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(change, words: str, events: list[specdec.Event]) -> None:
    lines = [text + "\n" for text in written(events[: len(events) // 2]).splitlines()]
    with pytest.raises(InvalidInput, match=words):
        race_of("\n".join(change(lines)))
