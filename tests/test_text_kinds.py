"""Shown text is what the tokenizer decodes, for every kind of tokenizer and any ids, while it is being written too."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from fakes import table_model
from tokenizer_kinds import KINDS, kind, plain

import specdec
from specdec.report import recording
from specdec.text import TextStream, TokenBytes, text_of

TEXTS = ["the cat", " a cat, a  cat.\n\n\n\n    return a", "naïve 日本🙂 é日🙂🙂", "thecat the<|end|>cat two words", ""]
CODE = "the cat:\n\n    return a\n        a"


def known_ids(tokenizer) -> list[int]:
    return [*range(min(tokenizer.vocab_size, 600)), *tokenizer.added_tokens_decoder]


def sequences(tokenizer) -> Iterator[list[int]]:
    """Encoded texts, then ids at random: of the whole vocabulary, and a few of them again and again."""
    for text in TEXTS:
        yield tokenizer(text, add_special_tokens=False).input_ids
    ids, rng = known_ids(tokenizer), random.Random(0)
    for length in (1, 2, 3, 4, 6, 9, 20, 100):
        for few in (2, 5, len(ids)):
            yield rng.choices(rng.sample(ids, few), k=length)


@pytest.mark.parametrize("name", KINDS)
def test_joined_pieces_are_what_the_tokenizer_decodes(name: str) -> None:
    tokenizer = kind(name)
    for ids in sequences(tokenizer):
        stream = TextStream(tokenizer)
        assert "".join(map(stream.push, ids)) + stream.finish() == plain(tokenizer, ids)
        assert text_of(tokenizer, ids) == plain(tokenizer, ids)


@pytest.mark.parametrize("name", KINDS)
def test_the_text_after_a_prompt_continues_it(name: str) -> None:
    """So the first token keeps its space. Where a prompt ends inside a character, the new text begins with it."""
    tokenizer, whole = kind(name), 0
    for ids in sequences(tokenizer):
        for end in {len(ids) // 2, 1, len(ids)}:
            prompt, text = plain(tokenizer, ids[:end]), plain(tokenizer, ids)
            if text.startswith(prompt):
                assert prompt + text_of(tokenizer, ids[end:], ids[:end]) == text
                whole += 1
    assert whole > 20


@pytest.mark.parametrize("name", KINDS)
def test_a_recordings_bytes_show_the_same_text(name: str) -> None:
    """The page joins the head and the bytes. The end of a text may miss a space, or a mark that more comes."""
    if "CTC" in name:
        pytest.skip("What a token adds depends on the token before it.")
    tokenizer = kind(name)
    bytes_of = TokenBytes(tokenizer)
    words = [i for i in known_ids(tokenizer) if "\ufffd" not in plain(tokenizer, [i]) and len(bytes_of(i)) > 1]
    rng = random.Random(1)
    texts = [] if "CLIP" in name else [tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS]
    for ids in [*texts, *(rng.choices(words, k=length) for length in (1, 2, 3, 5, 8, 30))]:
        head = bytes_of.head(ids)
        shown = "".join(head) + b"".join(map(bytes_of, ids[len(head) :])).decode(errors="replace")
        assert shown.rstrip() == plain(tokenizer, ids).removesuffix("@@").rstrip()


@pytest.mark.parametrize("name", [name for name in KINDS if "byte" in name or "Gemma" in name])
def test_a_character_waits_until_it_is_complete(name: str) -> None:
    tokenizer = kind(name)
    ids = tokenizer("a\u0416\u0416 \u0416", add_special_tokens=False).input_ids
    stream = TextStream(tokenizer)
    pieces = [*map(stream.push, ids), stream.finish()]
    assert "\ufffd" not in "".join(pieces) and "".join(pieces).strip().lower() == "a\u0436\u0436 \u0436"
    assert len(ids) < 6 or "" in pieces


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("pieces in Python (SentencePiece)", "▁"),  # its decoder drops the whole text
        ("SentencePiece BPE with byte fallback (Llama 2)", "<0xF0>"),
        ("byte-level BPE (GPT-2)", "\u0142"),
        ("WordPiece (BERT)", "##ing"),
    ],
)
def test_the_work_grows_with_the_text(name: str, token: str, monkeypatch) -> None:
    tokenizer, work = kind(name), []
    decode = tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **how: work.append(len(ids)) or decode(ids, **how))
    stream = TextStream(tokenizer)
    for _ in range(1000):
        stream.push(tokenizer.convert_tokens_to_ids(token))
    stream.finish()
    assert sum(work) < 60_000


@pytest.mark.parametrize("name", ["runs of spaces (Gemma)", "WordPiece (BERT)", "BPE with the end of words (GPT-1)"])
def test_result_and_recording_of_a_race_show_it(name: str) -> None:
    """The prompt, what was written, and the whole from the lines alone."""
    tokenizer = kind(name)
    path = tokenizer(CODE, add_special_tokens=False).input_ids
    if "Gemma" not in name:
        words = ["play", "##ing", "the", "cat"] if "BERT" in name else ["the</w>", "cat</w>", "the", "cat</w>"]
        path = tokenizer.convert_tokens_to_ids(words)
    size = max(known_ids(tokenizer)) + 1
    table = torch.zeros(size, size, size)
    for before, now, following in zip([0, *path], path, path[1:], strict=False):
        table[before, now, following] = 9.0
    pair = specdec.Pair(target=table_model(table), draft=table_model(table), tokenizer=tokenizer)
    params = specdec.SamplingParams(max_new_tokens=len(path) - 1, ignore_eos=True)
    events = list(specdec.speculative(pair, torch.tensor(path[:1]), gamma=2, params=params))
    result = specdec.collect(events, tokenizer)
    assert result.token_ids == path[1:]
    assert plain(tokenizer, path[:1]) + result.text == plain(tokenizer, path)
    recorder = recording.Recorder(tokenizer)
    lines = [recorder.line(event) for event in events]
    head, data = recording.parse(lines[0], 1).head, recording.token_bytes(lines)
    shown = "".join(head) + b"".join(data[i] for i in path[len(head) :]).decode()
    assert shown.rstrip(" ") == plain(tokenizer, path)
    if "Gemma" in name:
        assert shown == CODE and "▁" not in result.text
