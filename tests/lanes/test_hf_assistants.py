"""transformers' own draft methods as lanes: their greedy text, what they leave unchanged, and what they refuse."""

from __future__ import annotations

import copy

import pytest
import torch
from drafters.test_mtp import pair_of
from fakes import byte_tokenizer, generated, ids_of, noisy_copy, prompt_of, rounds_of, tiny

import specdec
from specdec.lanes.hf_assistants import cannot_assist
from specdec.lanes.race import race
from specdec.lanes.table import row_of

PARAMS = specdec.SamplingParams(24)
SAMPLED = specdec.SamplingParams(24, temperature=1.0, seed=5)


def pairs() -> dict[str, specdec.Pair]:
    target = tiny("llama", layers=3)
    other = tiny("qwen2", seed=1, vocab_size=290)
    return {
        "draft model": specdec.Pair(target, noisy_copy(target), byte_tokenizer()),
        "own tokenizer": specdec.Pair(target, other, byte_tokenizer(270), draft_tokenizer=byte_tokenizer(285)),
        "prompt lookup": specdec.Pair(target, specdec.PromptLookup(), byte_tokenizer()),
        "early exit": specdec.Pair(target, specdec.EarlyExit(2), byte_tokenizer()),
        "MTP": pair_of("glm4_moe", 2),
    }


@pytest.fixture(scope="module")
def made() -> dict[str, specdec.Pair]:
    return pairs()


@pytest.mark.parametrize("name", list(pairs()))
def test_greedy_text_is_that_of_generate(made, name: str) -> None:
    """Greedy text equals ``generate``, twice: the first call must not change the pair's models."""
    pair, prompt_ids = made[name], prompt_of(9)
    before = [copy.deepcopy(model.config.to_dict()) for model in pair.models(drafting=True)]
    assert cannot_assist(pair) is None
    for _ in range(2):
        ids = ids_of(specdec.assisted(pair, prompt_ids, gamma=2, params=PARAMS))
        assert tuple(ids) == generated(pair.target, prompt_ids, 24)
    assert [model.config.to_dict() for model in pair.models(drafting=True)] == before


@pytest.mark.parametrize("name", [name for name in pairs() if name != "own tokenizer"])
def test_a_sampled_call_leaves_our_own_lane_as_it_was(made, name: str) -> None:
    pair, prompt_ids = made[name], prompt_of(9)
    ours = [ids_of(specdec.speculative(pair, prompt_ids, gamma=2, params=p)) for p in (PARAMS, SAMPLED)]
    for _ in range(2):
        assert len(ids_of(specdec.assisted(pair, prompt_ids, gamma=2, params=SAMPLED))) == 24
    assert [ids_of(specdec.speculative(pair, prompt_ids, gamma=2, params=p)) for p in (PARAMS, SAMPLED)] == ours


def test_right_guesses_are_kept(made) -> None:
    """There are more tokens than passes with an early exit whose later layers do nothing, or a repeating prompt."""
    target = tiny("llama", layers=3)
    with torch.no_grad():
        for weight in (target.model.layers[2].self_attn.o_proj.weight, target.model.layers[2].mlp.down_proj.weight):
            weight.zero_()
    pair = specdec.Pair(target, specdec.EarlyExit(2))
    rounds = rounds_of(list(specdec.assisted(pair, prompt_of(9), gamma=3, params=PARAMS)))
    assert max(len(r.committed_ids) for r in rounds) == 4


@pytest.mark.parametrize(
    ("name", "prompt", "gamma", "params", "said"),
    [
        ("MTP", 9, 5, PARAMS, "; use 2"),
        ("MTP", 1, 2, PARAMS, "longer"),
        ("own tokenizer", 9, 2, SAMPLED, "wrong distribution"),
    ],
)
def test_a_request_that_transformers_fails_at_is_refused(made, name, prompt, gamma, params, said) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        specdec.assisted(made[name], prompt_of(prompt), gamma=gamma, params=params)


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_early_exit_is_refused_where_layers_slide(family: str) -> None:
    assert "early exit" in cannot_assist(specdec.Pair(tiny(family, layers=3), specdec.EarlyExit(2)))
    lookup = specdec.Pair(tiny(family, layers=3), specdec.PromptLookup())
    assert cannot_assist(lookup) is None
    ids = ids_of(specdec.assisted(lookup, prompt_of(9), gamma=2, params=PARAMS))
    assert tuple(ids) == generated(lookup.target, prompt_of(9), 24)


def test_what_transformers_cannot_draft_is_refused() -> None:
    same = specdec.Pair(tiny("llama"), tiny("qwen2"), byte_tokenizer(), draft_tokenizer=byte_tokenizer(280))
    assert "one tokenizer" in cannot_assist(same)
    hybrid = tiny("lfm2", layers=4)
    hybrid._is_stateful = True
    stateful = specdec.Pair(hybrid, specdec.PromptLookup())
    assert "recurrent" in cannot_assist(stateful)
    assert all("recurrent" in row_of(key).refusal(stateful) for key in ("assisted", "transformers-lookup"))


def test_their_prompt_lookup_runs_in_a_race_of_any_pair(made) -> None:
    lanes = race(made["early exit"], "abc abc abc", gamma=3, params=PARAMS, lanes=("transformers-lookup",))
    events = [event for batch in lanes for event in batch]
    started = [event for event in events if isinstance(event, specdec.Started)]
    assert [event.lane for event in started] == ["transformers-lookup"]
    assert started[0].pair["draft"]["kind"] == "prompt-lookup"
