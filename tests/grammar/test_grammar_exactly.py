"""Under a grammar, sampling has the target's distribution over the allowed tokens at each place.

Whole distributions are compared, by going through every outcome of every random choice (``enumeration``). Tests that
end in ``is_caught`` put known bugs in and check that the comparison fails.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from enumeration import Target
from fakes import letter_tokenizer, random_table, table_model
from pairwise import few, pairwise

import specdec
from specdec.drafters.draft_model import ModelDraft
from specdec.engine.request import LaneCall
from specdec.errors import GrammarStuck
from specdec.measure.enumeration import CLOSE, distance, distribution
from specdec.runtime.grammar import FunctionMatcher, Masks

OPEN, CLOSED, LETTER, END = range(4)
PROMPT = (LETTER, CLOSED, LETTER)
TARGET = random_table(4, 2, seed=0)
DRAFT = TARGET + random_table(4, 2, seed=1)
CAUGHT = 1e-3  # a bug must move some chance by more than this


def brackets(text: tuple[int, ...]) -> list[int]:
    """Brackets that are closed again, at most two deep, and a letter only within them. The end follows outside."""
    depth = text.count(OPEN) - text.count(CLOSED)
    inside = [CLOSED, LETTER] if depth else [END] if text else []
    return [*inside, *([OPEN] if depth < 2 else [])]


def pair_of(drafting: str) -> specdec.Pair:
    target = table_model(TARGET, eos=END)
    if drafting == "early exit":
        return specdec.Pair(target=table_model(DRAFT, TARGET - DRAFT, eos=END), draft=specdec.EarlyExit(1))
    if drafting == "other tokenizer":  # it has no token for the end
        draft, names = table_model(random_table(5, 2, seed=2)), letter_tokenizer(["x", "b", "ab", "a", "c"])
        return specdec.Pair(target, draft, tokenizer=letter_tokenizer(list("abcd")), draft_tokenizer=names)
    ways: dict[str, Any] = {
        "model": table_model(DRAFT),
        "narrower draft": table_model(random_table(2, 2, seed=4)),  # inside brackets it can propose only what closes
        "prompt lookup": specdec.PromptLookup(max_ngram=2),
        "recycling": specdec.Recycling(),
        "lookup, else model": specdec.Combined(specdec.PromptLookup(3, 2), table_model(DRAFT)),
    }
    return specdec.Pair(target=target, draft=ways[drafting])


WAYS = ("model", "prompt lookup", "early exit", "other tokenizer", "narrower draft", "recycling", "lookup, else model")
SETTINGS = {"plain": {}, "all": {"temperature": 0.8, "top_k": 2, "top_p": 0.95, "repetition_penalty": 1.3}}


def difference(drafting: str, gamma: int, tokens: int = 4, acceptance: str = "lossless", **settings: Any) -> float:
    """The largest difference in the chance of a text between the engine and the target alone."""
    asked = {"temperature": 1.0, "grammar": brackets} | settings
    params = specdec.SamplingParams(max_new_tokens=tokens, seed=0, **asked)
    pair = pair_of(drafting)

    def write() -> tuple[int, ...]:
        events = specdec.speculative(pair, torch.tensor(PROMPT), gamma=gamma, params=params, acceptance=acceptance)
        return tuple(token for event in events for token in getattr(event, "committed_ids", ()))

    texts, paths = distribution(write, every=acceptance == "block")
    assert paths > 1
    alone = Target(TARGET, PROMPT, params, frozenset({END}))
    return distance(texts, alone.completed({(): 1.0}))


@pairwise(drafting=WAYS, gamma=(0, 1, 2, 3), draft_mask=(True, False), settings=tuple(SETTINGS))
def test_sampling_is_exact(drafting: str, gamma: int, draft_mask: bool, settings: str) -> None:
    assert difference(drafting, gamma, draft_mask=draft_mask, **SETTINGS[settings]) < CLOSE


@pytest.mark.parametrize("draft_mask", [True, False])
@pytest.mark.parametrize("drafting", few(WAYS, 4))
def test_block_verification_is_exact(drafting: str, draft_mask: bool) -> None:
    assert difference(drafting, 2, 3, "block", draft_mask=draft_mask) < CLOSE


def require_caught() -> None:
    """The bug moves a chance, or the engine notices itself that a text breaks the grammar."""
    try:
        assert difference("model", 2) > CAUGHT
    except GrammarStuck:
        pass


def test_the_mask_of_the_row_before_is_caught(monkeypatch) -> None:
    apply = Masks.apply

    def late(self: Masks, logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        return apply(self, logits, tokens[:-1] if len(logits) > 1 else tokens)

    monkeypatch.setattr(Masks, "apply", late)
    require_caught()


def test_a_state_that_is_not_rolled_back_is_caught(monkeypatch) -> None:
    monkeypatch.setattr(FunctionMatcher, "back", lambda self, count: None)
    require_caught()


def test_a_bonus_after_the_end_is_caught(monkeypatch) -> None:
    """A text that goes on because its end stood inside the draft."""
    cut = LaneCall.cut

    def cut_at_the_last(self: LaneCall, before: list[int], block: list[int]) -> Any:
        kept, reason = cut(self, before, block)
        return (kept, reason) if reason != "eos" or kept == len(block) else (len(block), None)

    monkeypatch.setattr(LaneCall, "cut", cut_at_the_last)
    require_caught()


def test_a_draft_that_obeys_with_a_q_that_does_not_is_caught(monkeypatch) -> None:
    propose = ModelDraft.propose

    def unmasked(self: ModelDraft, *arguments: Any) -> Any:
        found = propose(self, *arguments)
        logits = torch.cat([*found.choices.logits])[: len(found.ids)] if len(found.ids) else None
        return found if logits is None else found._replace(q=logits.softmax(-1))

    monkeypatch.setattr(ModelDraft, "propose", unmasked)
    require_caught()


def test_a_residual_of_all_tokens_is_caught(monkeypatch) -> None:
    """The correction drawn from what the target gives without the grammar."""
    verify = importlib.import_module("specdec.engine.verify")
    monkeypatch.setattr(verify, "residual", lambda n, q, p, weight=1.0: torch.full_like(p[:1], 0.25))
    require_caught()


def test_a_text_that_cannot_go_on_ends_in_a_sentence() -> None:
    params = specdec.SamplingParams(
        max_new_tokens=6, temperature=1.0, seed=0, grammar=lambda text: [OPEN] * (len(text) < 2)
    )
    for gamma in (0, 3):
        with pytest.raises(GrammarStuck, match="allows no token after the text so far"):
            list(specdec.speculative(pair_of("model"), torch.tensor(PROMPT), gamma=gamma, params=params))
    with pytest.raises(GrammarStuck):
        list(specdec.generate(pair_of("model"), torch.tensor(PROMPT), params=params))
