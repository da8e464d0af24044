"""The wire format: a recording is read back unchanged and shows the run without a model."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from types import SimpleNamespace

import pytest
import torch
from fakes import byte_tokenizer, ids_of, noisy_copy, rounds_of, shared_tiny

import specdec
from specdec.report import recording
from specdec.report.judge import Kind
from specdec.report.recording import Recorder, begin_line, event_lines, verdict_line
from specdec.report.verdict import Note, Verdict
from specdec.text import TokenBytes

MODEL = {"name": "a/b", "layers": None, "parameters": 5, "dtype": "float32", "rows": 2, "local": False}
MODEL |= {"revision": None, "bits": None, "own_forward": None, "torch_passes": None}
ECHO = {"kind": "echo", "text": "echo:1", "python": "Echo(1)", "depends_on_start": True, "more": {"back": 1}}
PAIR: specdec.PairFacts = {"name": None, "context": None, "device": "cpu", "compiled": False, "target": MODEL}
PAIR |= {"draft": ECHO, "engine": {"name": "eager", "reason": None}}
MACHINE: specdec.MachineFacts = {"cpu": "A CPU", "cores": 2, "threads": 1, "device": "cpu"}
PROMPT = "Once upon a time 🙂 <b>naïve</b>"
LANES = {
    "speculative": {"gamma": 4},
    "speculative, gamma 0": {"gamma": 0},
    "speculative, block": {"gamma": 4, "acceptance": "block"},
    "speculative, lossy": {"gamma": 4, "acceptance": "top-k", "accept_top_k": 3},
    "assisted": {"gamma": 4},
    "generate": {},
}
SETTINGS = {"greedy": {}, "sampling": {"temperature": 1.0, "top_k": 30, "seed": 3, "stop": ("never",)}}


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("gpt2", 2, vocab_size=336)
    return specdec.Pair(target=target, draft=noisy_copy(target, 2, scale=0.004), tokenizer=byte_tokenizer())


def record(pair: specdec.Pair, lane: str, settings: dict) -> tuple[list, list[str]]:
    params = specdec.SamplingParams(max_new_tokens=40, **settings)
    events = list(getattr(specdec, lane.split(",")[0])(pair, PROMPT, params=params, **LANES[lane]))
    recorder = recording.Recorder(pair.tokenizer)
    return events, [recorder.line(event) for event in events]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("lane", LANES)
def test_what_is_read_equals_what_was_recorded(lane: str, settings: str, pair) -> None:
    """All events and values are read back with their types, so a replay equals the run."""
    events, lines = record(pair, lane, SETTINGS[settings])
    again = list(recording.read_recording(lines))
    assert again == events
    assert repr(again) == repr(events)


@pytest.mark.parametrize("lane", LANES)
def test_a_recording_holds_the_bytes_of_all_its_tokens(lane: str, pair) -> None:
    """Prompt, text and rejected guesses can be shown from the lines alone."""
    events, lines = record(pair, lane, {"temperature": 1.0, "seed": 1})
    table = recording.token_bytes(lines)
    text = b"".join(table[i] for i in events[0].prompt_ids)
    assert text == PROMPT.encode()
    bytes_of = TokenBytes(pair.tokenizer)
    for r in rounds_of(events):
        mentioned = {*r.committed_ids, *(t.token_id for t in r.draft or ()), *(i for i, _ in r.missed)}
        mentioned |= {t.target_token_id for t in r.draft or ()} | {r.token_id}
        for rows in (r.decision.p, r.decision.q, r.decision.residual) if r.decision else ():
            mentioned |= {i for i, _ in rows or ()}
        for token_id in mentioned - {None}:
            assert table[token_id] == bytes_of(token_id)
    assert all(isinstance(part, bytes) for part in table.values())
    assert set(ids_of(events)) <= set(table)


def test_nan_is_written_as_null() -> None:
    """NaN is written as null, because only Python's JSON knows NaN."""
    text = recording.line({"event": "begin", "a": [math.nan, 1.5, {"b": math.inf}], "c": (-math.inf, "NaN")})
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "event": "begin", "a": [None, 1.5, {"b": None}], "c": [None, "NaN"],
    }  # fmt: skip


def test_half_of_a_surrogate_pair_is_written_so_that_every_reader_takes_it() -> None:
    """Half a surrogate pair, as folder names and vocabularies may hold, is written so that every reader accepts it."""
    text = recording.line({"event": "error", "message": "a\ud83d\U0001f600", "\udc00": ["\udfff", math.nan]})
    assert json.loads(text) == {"event": "error", "message": "a?\U0001f600", "?": ["?", None]}
    assert list(recording.read_recording([recording.line({"event": "error", "message": "\ud83d"})])) == []
    odd = SimpleNamespace(
        vocab_size=1, convert_ids_to_tokens=lambda i: "\ud83d", decode=lambda ids, **how: "b\ud83d" * len(ids)
    )
    assert TokenBytes(odd)(0) == b"b?"


@pytest.mark.parametrize(
    "line",
    ["[" * 99999, "5", '{"event": "error", "message": "", "tokens": 5', '{"event": "round", "tokens": {"a": 5}}'],
)
def test_tokens_of_other_json_are_refused(line: str) -> None:
    with pytest.raises(specdec.InvalidInput, match="Line 1 is not a line of a recording"):
        recording.token_bytes([line])


@pytest.mark.parametrize("tokens", [{"a": "x"}, {"1": "日"}])
def test_tokens_that_are_no_bytes_are_refused(tokens: dict, pair) -> None:
    _, (first, *_) = record(pair, "generate", {})
    with pytest.raises(specdec.InvalidInput, match="its tokens"):
        recording.token_bytes([json.dumps(json.loads(first) | {"tokens": tokens})])


def test_a_token_is_described_before_it_is_needed_and_once(pair) -> None:
    """Each token's bytes come once, with the first line that mentions it, as the live page reads line by line."""
    events, lines = record(pair, "speculative", {})
    known: set[str] = set()
    for event, line in zip(events, lines, strict=True):
        new = set(json.loads(line).get("tokens", {}))
        assert not new & known
        known |= new
        ids = event.prompt_ids if isinstance(event, specdec.Started) else getattr(event, "committed_ids", ())
        assert {str(i) for i in ids} <= known


def test_a_line_is_one_event(pair) -> None:
    """Each event is one line of ASCII JSON without anything that could open an HTML tag."""
    events, lines = record(pair, "speculative", {})
    names = {specdec.Started: "started", specdec.Round: "round", specdec.Finished: "finished"}
    for event, line in zip(events, lines, strict=True):
        assert line.endswith("\n") and line.count("\n") == 1 and line.isascii()
        assert "<" not in line
        assert json.loads(line)["event"] == names[type(event)]
    assert json.loads(lines[0])["version"] == recording.VERSION


def test_lines_may_be_read_from_a_file(pair, tmp_path) -> None:
    """Exported lines are read from a file again, even with a blank last line."""
    events, lines = record(pair, "speculative", {})
    path = tmp_path / "run.jsonl"
    path.write_text("".join(lines))
    with path.open() as file:
        assert list(recording.read_recording(file)) == events
    assert specdec.collect(recording.read_recording(path.read_text().splitlines())).token_ids == list(ids_of(events))


def test_a_cut_recording_is_a_cancelled_run(pair) -> None:
    """A cut recording is read as cancelled: a closed generator cannot yield, so Finished is missing."""
    events, lines = record(pair, "speculative", {})
    result = specdec.collect(recording.read_recording(lines[:4]))
    assert result.cancelled and result.finish_reason is None
    assert tuple(result.token_ids) == ids_of(events[:4])


def test_every_field_survives() -> None:
    """Every field survives, also rare values: None, empty, and a tuple inside a tuple."""
    params = specdec.SamplingParams(seed=2**63 - 1, stop=("<", "🙂"), temperature=0.5)
    events = [
        specdec.Started("speculative", (1,), params, 3, "top-k", 2, PAIR, MACHINE, {}, {"top_k": 50}),
        specdec.Round(0, (), 5, "target", (5,), 0.0, 0.25, 0.5, 0.1, 1.5, None, ()),
        specdec.Round(
            1,
            (
                specdec.DraftToken(7, "accepted", 1.0, 1.0, 1.0, None, 7, 0.5),
                specdec.DraftToken(8, "rejected", 0.25, 0.0, 0.0, 0.75, 9, 0.25),
                specdec.DraftToken(8, "discarded", 0.25, None, None, None, None, 0.25),
            ),
            9,
            "correction",
            (7, 9),
            0.1,
            0.2,
            0.9,
            0.2,
            0.0,
            specdec.Decision(((9, 1.0),), ((8, 0.25), (9, 0.125)), ()),
            ((5, 0.5), (6, 0.25)),
        ),
        specdec.Round(2, None, None, None, (), None, None, 1.0),
        specdec.Finished("eos", 0.5, 1.0),
    ]
    recorder = recording.Recorder(byte_tokenizer())
    again = list(recording.read_recording([recorder.line(event) for event in events]))
    assert again == events and repr(again) == repr(events)
    assert {f.name for f in dataclasses.fields(specdec.Round)} >= {"missed", "decision", "target_margin"}
    assert not any(isinstance(value, torch.Tensor) for event in again for value in dataclasses.astuple(event))


def test_lanes_of_a_recording_are_separated(pair) -> None:
    """A file of two lanes gives each lane by itself. Collecting both as one is refused, also in batches."""
    events, parts = zip(*(record(pair, lane, {}) for lane in ("generate", "speculative")), strict=True)
    lines = [*parts[0], *parts[1]]
    assert recording.lanes(lines) == list(events)
    assert [specdec.collect(lane).finish_reason for lane in recording.lanes(lines)] == ["length", "length"]
    with pytest.raises(specdec.InvalidInput, match="2 lanes"):
        specdec.collect(recording.read_recording(lines))
    with pytest.raises(specdec.InvalidInput, match="2 lanes"):
        specdec.collect(events)
    assert specdec.collect([events[0][:1], events[0][1:]]) == specdec.collect(events[0])
    with pytest.raises(specdec.InvalidInput, match="middle of a lane"):
        recording.lanes(lines[1:])


def test_ids_mentioned_in_one_place_only_are_described() -> None:
    """Tokens are described from every field that can mention one, even if a run uses it rarely."""
    params = specdec.SamplingParams(seed=1)
    draft = specdec.DraftToken(12, "rejected", 0.5, 0.0, 0.0, 0.5, 13, 0.5)
    decision = specdec.Decision(((14, 1.0),), ((15, 1.0),), ((16, 1.0),))
    events = [
        specdec.Started("speculative", (10,), params, 3, "lossless", None, PAIR, MACHINE, {}, {}),
        specdec.Round(1, (draft,), 17, "correction", (11,), 0.1, 0.2, 0.9, 0.2, 0.0, decision, ((18, 0.5),)),
    ]
    tokenizer = byte_tokenizer()
    recorder = recording.Recorder(tokenizer)
    table = recording.token_bytes([recorder.line(event) for event in events])
    bytes_of = TokenBytes(tokenizer)
    assert table == {token_id: bytes_of(token_id) for token_id in range(10, 19)}


def test_a_race_is_read_without_the_lines_between_its_lanes(pair) -> None:
    """The page's file has lines about the whole race, and the events are read all the same."""
    events, lines = record(pair, "speculative", {})
    begin = {
        "event": "begin",
        "version": recording.VERSION,
        "at": 5.0,
        "pair": "a",
        "settings": {},
        "lanes": ["speculative"],
        "runs": 1,
    }
    verdict = Verdict(kind=Kind.FASTER, sentence="x", notes=(Note("texts", "y"),), stopped=False)
    assert list(recording.read_recording([recording.line(begin), *lines, verdict_line(verdict)])) == events


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Line 1 is not a line of a recording"),
        ('{"event": "tune"}', "Line 1 is not a line of a recording"),
        ('{"event": "finished", "mood": 3}', "Line 1 is not a line of a recording"),
        (
            '{"event": "finished", "finish_reason": "eos", "prefill_seconds": "1", "elapsed_seconds": 1.0}',
            "its prefill",
        ),
        (
            '{"event": "finished", "finish_reason": "eos", "prefill_seconds": NaN, "elapsed_seconds": 1.0}',
            "its prefill",
        ),
        ('{"event": "error", "message": 5}', "its message"),
        ("[" * 99999, "Line 1 is not a line of a recording"),
        ('{"event": "begin", "version": 99}', "has version 99"),
    ],
)
def test_lines_of_other_json_are_refused_with_their_number(line: str, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        list(recording.read_recording([line]))


def test_lines_are_numbered_as_an_editor_numbers_them(pair) -> None:
    """Empty lines hold nothing and count."""
    events, lines = record(pair, "generate", {})
    assert list(recording.read_recording(["\n", lines[0], "", *lines[1:], "\n"])) == events
    assert recording.token_bytes(["", *lines]) == recording.token_bytes(lines)
    with pytest.raises(specdec.InvalidInput, match="Line 4 is not a line"):
        list(recording.read_recording([lines[0], "", " \n", "nonsense"]))


def test_a_race_is_written_line_by_line_and_its_runs_are_kept_apart(pair) -> None:
    """Each lane ends with its label. A run begins where every lane of the one before it has begun."""
    begin = json.loads(begin_line(3, "here", PAIR, {"gamma": 4}, ["generate", "speculative"], 2, at=7.5))
    assert begin == {
        "event": "begin", "version": recording.VERSION, "number": 3, "origin": "here", "at": 7.5,
        "pair": begin["pair"], "settings": {"gamma": 4}, "lanes": ["generate", "speculative"], "runs": 2,
    }  # fmt: skip
    assert abs(json.loads(begin_line(3, "here", PAIR, {}, [], 1))["at"] - time.time()) < 60, "a race begins now"
    batches = [record(pair, lane, {})[0] for lane in ("generate", "speculative")] * 2
    runs: list[dict] = []
    written = [list(event_lines(batch, runs, ["generate", "speculative"], Recorder(None))) for batch in batches]
    assert runs == [{"generate": batches[0], "speculative": batches[1]}] * 2
    for lane, events, lines in zip(["generate", "speculative"] * 2, batches, written, strict=True):
        kinds = [json.loads(line)["event"] for line in lines]
        assert kinds == ["started", *["round"] * (len(events) - 2), "finished", "lane_end"]
        assert json.loads(lines[-1])["lane"] == lane


def test_the_shown_run_of_a_race_can_stand_alone(pair) -> None:
    """It has the texts of its tokens, also of those that an earlier run described. Its verdict is that of all runs."""
    lanes, recorder, runs = ["generate", "speculative"], recording.Recorder(pair.tokenizer), []
    batches = [record(pair, lane, {"seed": seed, "temperature": 1.0})[0] for seed in (1, 2) for lane in lanes]
    written = [json.loads(line) for batch in batches for line in event_lines(batch, runs, lanes, recorder)]
    begin, end = {"event": "begin", "lanes": lanes}, {"event": "verdict", "kind": "faster", "shown": 1}
    whole = "".join(json.dumps(one) + "\n" for one in (begin, *written, end))
    first, *rest, last = map(json.loads, recording.shown_alone(whole).splitlines())
    described = {name: token for one in written for name, token in one.get("tokens", {}).items()}
    assert (first, last) == (begin, end | {"shown": 0}) and rest[0].pop("tokens") == described
    second = [place for place, one in enumerate(written) if one["event"] == "started"][2]
    assert rest == [{name: one[name] for name in one if name != "tokens"} for one in written[second:]]
