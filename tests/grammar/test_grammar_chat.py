"""Greedy text of a real chat model under each grammar, whoever drafts, against transformers' own ``generate``.

    SPECDEC_CHAT_MODEL=FOLDER python -m pytest tests/grammar/test_grammar_chat.py

Each grammar is tried with each way to draft. The length, and whether the draft obeys, change from case to case, so that
each way meets each of them several times.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest
from fakes import generated, ids_of, noisy_copy

import specdec
from tests.grammar.grammars import GRAMMARS, Afresh, require_obeyed

MODEL = os.environ.get("SPECDEC_CHAT_MODEL")
pytestmark = pytest.mark.skipif(MODEL is None, reason="needs a chat model: SPECDEC_CHAT_MODEL=FOLDER")

TOKENS = 120
GAMMAS = (0, 1, 2, 3, 5, 8, 16, "auto")
TIME = "Write a time of day, such as 14:30:00Z."  # unless it is asked for one, the model writes decimals without an end


@functools.cache
def pairs() -> dict[str, specdec.Pair]:
    """One target with each way to draft; the draft with another tokenizer is the embedded one."""
    other = specdec.load_pair(MODEL, "embedded", device="cpu", dtype="float32")
    target, tokenizer = other.target, other.tokenizer
    ways: dict[str, Any] = {
        "model": noisy_copy(target, scale=0.002),
        "early exit": specdec.EarlyExit(8),
        "prompt-lookup": specdec.PromptLookup(),
        "suffix": specdec.Suffix(),
        "recycling": specdec.Recycling(),
        "lookup, else recycling": specdec.Combined(specdec.PromptLookup(5, 3), specdec.Recycling()),
    }
    return {"other tokenizer": other} | {name: specdec.Pair(target, way, tokenizer) for name, way in ways.items()}


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_text_is_that_of_generate_and_obeys(name: str) -> None:
    tokenizer = pairs()["suffix"].tokenizer
    words = TIME if name == "time" else f"Write something for the field '{name.strip('/')}'."
    asked = [{"role": "user", "content": words}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    target, eos = pairs()["suffix"].target, tokenizer.eos_token_id
    rule = Afresh(GRAMMARS[name], tokenizer, target.config.vocab_size, [eos], prompt.shape[-1])
    expected = generated(target, prompt[0], TOKENS, eos_token_id=eos, pad_token_id=eos, logits_processor=[rule])
    assert expected[-1] == eos, "the text comes to its end"
    require_obeyed(name, tokenizer.decode(expected[:-1], clean_up_tokenization_spaces=False))
    for at, (way, pair) in enumerate(pairs().items(), start=list(GRAMMARS).index(name)):
        for further, mask in ((0, True), (4, False)):
            gamma: Any = GAMMAS[(at + further) % len(GAMMAS)]
            params = specdec.SamplingParams(TOKENS, grammar=GRAMMARS[name], draft_mask=mask)
            assert ids_of(list(specdec.speculative(pair, asked, gamma=gamma, params=params))) == expected, (way, gamma)
