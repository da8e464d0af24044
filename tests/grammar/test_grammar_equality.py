"""Greedy text under a grammar is that of ``generate`` under the same grammar, whoever drafts, and it obeys."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from fakes import byte_tokenizer, generated, ids_of, noisy_copy, prompt_of, rounds_of, shared_tiny, shuffled_rows
from fakes import shuffled_tokenizer as shuffled
from pairwise import few, pairwise

import specdec
from specdec.events import FORCED
from tests.grammar.grammars import GRAMMARS, Afresh, require_obeyed

TOKENS = 110
EOS = 1
PROMPT = prompt_of(12)
DRAFTS = ("model", "prompt-lookup", "suffix", "recycling", "early exit", "lookup, else model", "other tokenizer")


@functools.cache
def target() -> Any:
    model = shared_tiny("llama", seed=3, layers=3, eos=EOS)
    return model


@functools.cache
def pair_of(draft: str) -> specdec.Pair:
    model, tokenizer = target(), byte_tokenizer()
    if draft == "other tokenizer":
        theirs, order = shuffled(tokenizer, 300)
        return specdec.Pair(model, shuffled_rows(noisy_copy(model), order), tokenizer, draft_tokenizer=theirs)
    ways: dict[str, Any] = {
        "model": noisy_copy(model),
        "prompt-lookup": specdec.PromptLookup(),
        "suffix": specdec.Suffix(),
        "recycling": specdec.Recycling(),
        "early exit": specdec.EarlyExit(2),
        "lookup, else model": specdec.Combined(specdec.PromptLookup(3, 2), noisy_copy(model)),
    }
    return specdec.Pair(model, ways[draft], tokenizer)


@functools.cache
def expected(name: str) -> tuple[int, ...]:
    """The text of ``generate`` itself, under the grammar as llguidance reads it anew at each place."""
    rule = Afresh(GRAMMARS[name], byte_tokenizer(), 320, [EOS], len(PROMPT))
    ids = generated(target(), PROMPT, TOKENS, eos_token_id=EOS, pad_token_id=0, logits_processor=[rule])
    assert ids[-1] == EOS, "the text comes to its end"
    return ids


def written(name: str, draft: str, gamma: Any, **settings: Any) -> list:
    params = specdec.SamplingParams(max_new_tokens=TOKENS, grammar=GRAMMARS[name], **settings)
    return list(specdec.speculative(pair_of(draft), PROMPT, gamma=gamma, params=params))


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_grammar_is_obeyed_and_the_text_is_that_of_generate(name: str) -> None:
    ids = expected(name)
    require_obeyed(name, byte_tokenizer().decode(ids[:-1], clean_up_tokenization_spaces=False))
    for gamma, mask in ((0, True), (4, True), (4, False)):
        assert ids_of(written(name, "model", gamma, draft_mask=mask)) == ids, (gamma, mask)


SOME = ("person", "one of objects", "escapes", "letters beyond ASCII", "/same beginnings/", "/beyond ASCII/", "/up to/")


@pairwise(name=SOME, draft=DRAFTS, gamma=(1, 2, 3, 5, 8, 16, "auto"), mask=(True, False))
def test_every_way_to_draft_and_every_length(name: str, draft: str, gamma: Any, mask: bool) -> None:
    assert ids_of(written(name, draft, gamma, draft_mask=mask)) == expected(name)


@pytest.mark.parametrize("draft", few(DRAFTS, 4))
def test_drafts_that_obey_propose_nothing_that_is_forbidden(draft: str) -> None:
    """So each token of each draft is allowed after those in front of it."""
    for name in SOME:
        rule = Afresh(GRAMMARS[name], byte_tokenizer(), 320, [EOS], 0)
        new: list[int] = []
        for event in rounds_of(written(name, draft, 5)):
            drafted: list[int] = []
            for token in event.draft:
                if EOS in drafted:
                    break
                assert token.token_id in rule.allowed([*new, *drafted]), (name, event.index)
                drafted.append(token.token_id)
            new += event.committed_ids


def test_forced_tokens_are_drafted_for_nothing_and_all_kept() -> None:
    rounds = rounds_of(written("long key", "model", 8))
    forced = [event for event in rounds if event.drafted_by == FORCED]
    assert forced and all(token.status != "rejected" for event in forced for token in event.draft)
    assert not any(EOS in [token.token_id for token in event.draft[:-1]] for event in forced), "nothing after the end"
    free = rounds_of(written("long key", "model", 8, draft_mask=False))
    assert not any(event.drafted_by for event in free)
    assert len(rounds) < len(free)


def test_the_lanes_of_transformers_obey_too() -> None:
    for name in SOME:
        params = specdec.SamplingParams(max_new_tokens=TOKENS, grammar=GRAMMARS[name])
        assert ids_of(list(specdec.generate(pair_of("model"), PROMPT, params=params))) == expected(name)
        for draft in ("model", "prompt-lookup", "early exit"):
            events = list(specdec.assisted(pair_of(draft), PROMPT, gamma=4, params=params))
            assert ids_of(events) == expected(name), (name, draft)


def test_a_function_may_be_the_grammar() -> None:
    """Ascending ids, and the end after the fourth token."""

    def ascending(ids: tuple[int, ...]) -> Any:
        return [EOS] if len(ids) == 4 else range(max(ids, default=1) + 1, 300)

    class Ascending:
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            allowed = list(ascending(tuple(input_ids[0, len(PROMPT) :].tolist())))
            masked = torch.full_like(scores, float("-inf"))
            masked[:, allowed] = scores[:, allowed]
            return masked

    theirs = generated(target(), PROMPT, 9, eos_token_id=EOS, pad_token_id=0, logits_processor=[Ascending()])
    assert len(theirs) == 5 and theirs[-1] == EOS
    params = specdec.SamplingParams(max_new_tokens=9, grammar=ascending)
    for draft in DRAFTS:
        assert ids_of(list(specdec.speculative(pair_of(draft), PROMPT, gamma=3, params=params))) == theirs
