"""What a lane wrote, as a person sees it in a terminal or a notebook."""

from __future__ import annotations

import dataclasses
import json
import pickle

import torch
from fakes import byte_tokenizer, noisy_copy, random_table, shared_tiny, table_pair

import specdec
from specdec.measure import result as module
from specdec.text import TextStream


def test_a_result_is_shown_in_one_line() -> None:
    """The rounds of a long text would fill pages. A lane that ended early says so."""
    table = random_table(3, 3, seed=0)
    lane = specdec.speculative(
        table_pair(table, table), torch.tensor([0, 1, 2]), gamma=2, params=specdec.SamplingParams(max_new_tokens=40)
    )
    shown = repr(specdec.collect(lane))
    assert shown.startswith("<Result: 40 tokens in 14 rounds, finish_reason='length', ") and "tokens/s" in shown
    assert len(shown) < 200 and "\n" not in shown
    assert repr(specdec.collect(iter([]))) == "<Result: 0 tokens in 0 rounds, ended early>"


def test_a_notebook_shows_the_text_in_colour() -> None:
    """The pieces are the text, each with the kind of its token. Markup of a model stays text."""
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 4, scale=0.006), byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=60, ignore_eos=True)
    result = specdec.collect(specdec.speculative(pair, "<b>Once", gamma=3, params=params), pair.tokenizer)
    assert "".join(text for text, _ in result.pieces) == result.text
    assert {"accepted", "correction", "bonus"} <= {kind for _, kind in result.pieces}
    shown = result._repr_html_()
    assert shown.count("<span") == len(result.pieces) + 3 and "60 tokens in" in shown
    vars(result)["pieces"] = [("<script>", "accepted")]
    harmless = result._repr_html_()
    assert "<script>" not in harmless and "&lt;script&gt;" in harmless
    assert specdec.collect(iter([]))._repr_html_() is None


def test_the_pieces_are_made_when_they_are_asked_for(monkeypatch) -> None:
    """Only a notebook shows them, so that collecting a result does not take the time. They are those of the stream."""
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 4, scale=0.006), byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    events = list(specdec.speculative(pair, "Once", gamma=3, params=params))
    asked = []
    pieces = module._pieces
    monkeypatch.setattr(module, "_pieces", lambda *given: asked.append(given) or pieces(*given))
    result = specdec.collect(events, pair.tokenizer)
    assert not asked
    stream = TextStream(pair.tokenizer)
    for token_id in events[0].prompt_ids:
        stream.push(token_id)
    expected = [
        (stream.push(token_id), kind)
        for each in result.rounds
        for token_id, kind in zip(each.committed_ids, each.committed_kinds, strict=True)
    ]
    expected.append((stream.finish(), expected[-1][1]))
    assert result.pieces == [piece for piece in expected if piece[0]] and result.pieces is result.pieces
    assert len(asked) == 1
    assert specdec.collect(events).pieces is None
    assert json.dumps(dataclasses.asdict(result)), "a result holds plain values, and no tokenizer"
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_lane_that_reports_no_draft_is_not_shown_as_accepted() -> None:
    """Of transformers' assisted generation it is known what was written, and not which guesses were kept."""
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 4, scale=0.006), byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=20, ignore_eos=True)
    result = specdec.collect(specdec.driven(specdec.assisted(pair, "Once", gamma=3, params=params)), pair.tokenizer)
    assert "".join(text for text, _ in result.pieces) == result.text
    assert {kind for _, kind in result.pieces} == {"unknown"}
