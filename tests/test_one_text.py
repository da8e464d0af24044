"""A run has one text: ``Result.text``, the terminal and the page agree on it, also on special tokens."""

from __future__ import annotations

import io

import pytest
import torch
from fakes import byte_tokenizer, table_model

import specdec
from specdec.cli.output import console_of
from specdec.cli.run import _shown
from specdec.lanes.race import race
from specdec.lanes.table import DEFAULT_KEYS
from specdec.report import recording

PIECES = {
    "letters": ["a", "b", " ", "c"],
    "a special token in the middle": ["a", "<s>", "b"],
    "the end of text": ["a", "b", "</s>"],
    "a space first": [" ", "a", "b"],
    "half a character at the end": ["a", "\u00f0", "\u0141"],  # two of the four bytes of an emoji
}


def events_of(pieces: list[str], tokenizer) -> list:
    """A race whose lanes write these tokens after the prompt "x"."""
    path = tokenizer.convert_tokens_to_ids(["x", *(piece.replace(" ", "\u0120") for piece in pieces)])
    table = torch.zeros(336, 336)
    for now, following in zip(path, path[1:], strict=False):
        table[now, following] = 9.0
    eos = tokenizer.eos_token_id
    pair = specdec.Pair(target=table_model(table, eos=eos), draft=table_model(table), tokenizer=tokenizer)
    params = specdec.SamplingParams(max_new_tokens=len(pieces))
    return [event for batch in race(pair, torch.tensor(path[:1]), gamma=2, params=params) for event in batch]


@pytest.mark.parametrize("name", PIECES)
def test_every_face_shows_the_same_text(name: str) -> None:
    tokenizer = byte_tokenizer()
    events = events_of(PIECES[name], tokenizer)
    recorder = recording.Recorder(tokenizer)
    lines = [recorder.line(event) for event in events]
    speculative = recording.lanes(lines)[1]
    result = specdec.collect(speculative, tokenizer)
    table = recording.token_bytes(lines)
    assert result.text == b"".join(table[i] for i in result.token_ids).decode(errors="replace")
    console = console_of(file=io.StringIO(), soft_wrap=True)
    assert list(_shown(console, iter(events), tokenizer, DEFAULT_KEYS)) == events
    assert f"x{result.text}\n" in console.file.getvalue()
    whole = "".join(PIECES[name][:-2]) + "\ufffd" if "half" in name else "".join(PIECES[name])
    assert result.text == whole
