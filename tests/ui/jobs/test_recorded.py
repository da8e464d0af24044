"""The race in the package is an ordinary recording of the embedded pair."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import specdec
from specdec.lanes.table import DEFAULT_KEYS, key_of
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.loading import load_pair
from specdec.report import provenance, recording, schema, sentences
from specdec.report.definitions import DEFINITIONS
from specdec.report.judge import Kind
from specdec.ui.jobs.recorded import recorded_race
from specdec.ui.jobs.startup import RUNS, TOKENS
from specdec.ui.static_page import SHIPPED

ROOT = Path(__file__).parents[3]


def test_the_recorded_race_is_whole() -> None:
    lines = recorded_race().splitlines()
    parsed = [schema.parse(text, number) for number, text in enumerate(lines, start=1)]
    begin, verdict = json.loads(lines[0]), json.loads(lines[-1])
    assert begin["origin"] == "recording" and begin["number"] == 0 and begin["lanes"] == list(DEFAULT_KEYS)
    assert begin["settings"]["prompt"] == read_prompts(EXAMPLES)[0].prompt
    assert verdict["event"] == "verdict" and verdict["figures"] and not verdict["stopped"] and not verdict["doubts"]
    assert begin["runs"] == verdict["runs"] == RUNS and verdict["shown"] == 0, "of three runs the one that is shown"
    assert len(verdict["figures"]) == 4 and verdict["rates"].keys() == set(DEFAULT_KEYS) and verdict["whatif"]["exact"]
    assert sum(schema.event_of(each) is not None for each in parsed) == len(list(recording.read_recording(lines)))
    for events in recording.lanes(lines):
        first, *_, last = events
        assert key_of(first.lane, first.gamma, DEFAULT_KEYS) in DEFAULT_KEYS and first.params.max_new_tokens == TOKENS
        assert first.machine["cpu"] and isinstance(last, specdec.Finished)


def test_recorded_races_have_the_sentences_of_today() -> None:
    for path in (ROOT / "specdec/ui/assets/recorded.jsonl", *SHIPPED.glob("*.jsonl")):
        verdict = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        (compared,) = (note["text"] for note in verdict["notes"] if note["kind"] == "texts")
        for row, said in (
            (sentences.HEADLINES[Kind(verdict["kind"])], verdict["sentence"]),
            (sentences.TEXTS_SAME, compared),
        ):
            words = ".*?".join(map(re.escape, re.split(r"\{\w+\}", row)))
            assert re.fullmatch(words, said), f"{said!r}: record {path.name} again, as docs/architecture.md says"


@pytest.mark.parametrize("name", ["h200-embedded", "h200-synthetic-7b"])
def test_the_recorded_races_of_a_gpu_can_be_opened(name: str) -> None:
    lines = (SHIPPED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, start=1):
        schema.parse(text, number)
    lanes = recording.lanes(lines)
    assert [type(events[-1]) for events in lanes] == [specdec.Finished] * 3
    assert all(events[0].machine["gpu"] == "NVIDIA H200" for events in lanes)


def test_the_recorded_race_is_of_the_embedded_pair_as_it_is() -> None:
    """The recorded greedy text is that of today's pair. If not, run ``python -m scripts.record_race``."""
    lines = recorded_race().splitlines()
    pair, lanes = load_pair(), recording.lanes(lines)
    params = specdec.SamplingParams(max_new_tokens=TOKENS)
    prompt = read_prompts(EXAMPLES)[0].prompt
    text = specdec.collect(specdec.speculative(pair, prompt, params=params)).token_ids
    assert all(specdec.collect(events).token_ids == text for events in lanes)
    begin = json.loads(lines[0])
    assert all(begin["pair"] == provenance.pair_line(events[0].pair) for events in lanes)
    assert begin["pair"].replace(", int8", "") == provenance.pair_line(pair.facts())  # the machine may have no compiler


def test_the_recorded_verdict_names_the_definitions_of_today() -> None:
    """A visitor's first figures are explained. If not, run ``python -m scripts.record_race``."""
    verdict = json.loads(recorded_race().splitlines()[-1])
    figures = [*verdict["figures"], *verdict["details"], *verdict["why"]["figures"]]
    shown = {figure["name"] for figure in figures if "name" in figure}
    assert len(shown) > 10 and shown <= set(DEFINITIONS)
