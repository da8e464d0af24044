"""A draft whose agreement is set: its passes are true, its guesses are the target's own text as often as asked."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fakes import count_passes, noisy_copy, prompt_of, rounds_of, shared_tiny, tiny

import specdec
from specdec.drafters.synthetic import SyntheticDraft, given_guesses
from specdec.lanes.hf_assistants import cannot_assist
from specdec.measure.prompts import PromptItem
from specdec.measure.shapes import recorded

ITEMS = (PromptItem("one", "a", "Once upon a time"), PromptItem("two", "b", "def push(self"))
PARAMS = specdec.SamplingParams(max_new_tokens=60, seed=3, ignore_eos=True)


def pair_of(agreement: float, target=None, draft=None) -> specdec.Pair:
    method = SyntheticDraft(draft or shared_tiny("llama", 1, layers=1), agreement=agreement)
    pair = specdec.Pair(target=target or shared_tiny("llama", 4, layers=3), draft=method)
    return recorded(pair, ITEMS, PARAMS)


def ran(pair: specdec.Pair, gamma: int | str, params=PARAMS, item: PromptItem = ITEMS[0]) -> list:
    return list(specdec.speculative(pair, item.message(None), gamma=gamma, params=params))


def draft_tokens(events: list) -> list:
    return [token for event in rounds_of(events) for token in event.draft]


def test_guesses_agree_as_often_as_asked_and_else_are_another_id() -> None:
    text = tuple(prompt_of(20_000, 300).tolist())
    given = given_guesses([5, 6], text, 0.7, 301, seed=1)
    agrees = given[2:] == torch.tensor(text)
    assert agrees.float().mean() == pytest.approx(0.7, abs=0.02)
    # Independent of each other: after a hit as often as after a miss.
    assert agrees[1:][agrees[:-1]].float().mean() == pytest.approx(0.7, abs=0.02)
    wrong = given[2:][~agrees]
    assert 0 <= int(wrong.min()) and int(wrong.max()) < 301 and len(wrong.unique()) > 250
    assert torch.equal(given, given_guesses([5, 6], text, 0.7, 301, seed=1)), "a seed gives the same guesses again"
    for other in (given_guesses([5, 6], text, 0.7, 301, seed=2), given_guesses([6, 5], text, 0.7, 301, seed=1)):
        assert ((other[2:] == torch.tensor(text)) != agrees).any()


@pytest.mark.parametrize(("agreement", "alpha"), [(1.0, 1.0), (0.0, 0.0)])
def test_all_or_no_guesses_are_kept(agreement: float, alpha: float) -> None:
    """The draft would choose otherwise by itself: its weights have nothing to do with the target's."""
    for item in ITEMS:
        assert specdec.collect(ran(pair_of(agreement), 4, item=item)).metrics.alpha == alpha


def test_the_graph_engine_is_given_the_same_guesses() -> None:
    pair = pair_of(0.7)
    graph = dataclasses.replace(pair, engine="graph")
    assert graph.describe()["engine"]["name"] == "graph"
    for item in ITEMS:
        statuses = [[t.status for t in draft_tokens(ran(each, 4, item=item))] for each in (pair, graph)]
        assert statuses[0] == statuses[1] and "rejected" in statuses[0]


def test_the_text_is_the_targets_at_any_agreement_and_length() -> None:
    pair = pair_of(0.6)
    plain = specdec.collect(specdec.generate(pair, ITEMS[0].message(None), params=PARAMS)).token_ids
    for gamma in (0, 1, 5, "auto"):
        assert specdec.collect(ran(pair, gamma)).token_ids == plain
    alpha = specdec.collect(ran(pair, 5)).metrics.alpha
    assert 0.3 < alpha < 0.9
    assert draft_tokens(ran(pair, 5)) == draft_tokens(ran(pair, 5))


def test_the_draft_runs_a_pass_for_every_guess() -> None:
    """Its passes are those of a draft model that chooses by itself: the prompt, then one a guess."""
    draft = tiny("llama", 1, layers=1)
    pair = pair_of(1.0, draft=draft)
    with count_passes(draft) as fed:
        events = ran(pair, 4)
    assert len(fed) == 1 + len(draft_tokens(events))
    assert set(fed[1:]) == {1, 2}, "two tokens after a round without a miss, else one"


@pytest.mark.parametrize(("rows", "draft_rows"), [(330, 300), (300, 330)])
def test_models_of_different_vocabulary_rows(rows: int, draft_rows: int) -> None:
    """As Qwen2.5's 7B and 0.5B. The target's text may hold ids that the draft has no row for, which can be guessed."""
    pair = pair_of(1.0, tiny("llama", 4, vocab_size=rows), tiny("llama", 1, vocab_size=draft_rows))
    assert specdec.collect(ran(pair, 3)).metrics.alpha == 1


def test_a_synthetic_draft_refuses_sampling_and_unknown_prompts() -> None:
    pair = pair_of(0.8)
    with pytest.raises(specdec.InvalidInput, match="temperature 0"):
        ran(pair, 3, specdec.SamplingParams(60, temperature=1.0, seed=1))
    with pytest.raises(specdec.InvalidInput, match="recorded"):
        ran(pair, 3, item=PromptItem("three", "c", "another prompt"))
    for agreement in (-0.1, 1.1):
        with pytest.raises(specdec.InvalidInput, match="from 0 to 1"):
            SyntheticDraft("name", agreement=agreement)


def test_assisted_generation_gives_the_reason_why_it_is_left_out() -> None:
    target = shared_tiny("llama", 4, layers=3)
    assert "cannot use a synthetic draft" in (cannot_assist(pair_of(0.8)) or "")
    assert cannot_assist(specdec.Pair(target=target, draft=noisy_copy(target))) is None
