"""Lanes one after another, as often as asked, on the same ids and settings."""

from __future__ import annotations

import pytest
from fakes import byte_tokenizer, ids_of, noisy_copy, shared_tiny

import specdec
from specdec.lanes.race import ENTRANTS, race

PROMPT = "Once upon a time"
PARAMS = specdec.SamplingParams(max_new_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 4, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())


def lanes_of(pair: specdec.Pair, **settings) -> list[list]:
    """The events of a race, a list a lane, in the order in which they ran."""
    lanes: list[list] = []
    for batch in race(pair, PROMPT, **{"params": PARAMS} | settings):
        for event in batch:
            if isinstance(event, specdec.Started):
                lanes.append([])
            lanes[-1].append(event)
    return lanes


def test_every_entrant_runs_under_its_own_name(pair) -> None:
    """Six lanes, each complete; all that end in the target's word write its greedy text, the draft alone its own."""
    lanes = lanes_of(pair, lanes=ENTRANTS, gamma=3)
    assert [events[0].lane for events in lanes] == list(ENTRANTS)
    assert all(isinstance(events[-1], specdec.Finished) for events in lanes)
    texts = dict(zip(ENTRANTS, map(ids_of, lanes), strict=True))
    alone = specdec.Pair(target=pair.draft.model, tokenizer=pair.tokenizer)
    assert texts.pop("draft-alone") == ids_of(specdec.generate(alone, PROMPT, params=PARAMS))
    assert set(map(tuple, texts.values())) == {tuple(texts["generate"])}
    assert all(not r.draft for r in lanes[ENTRANTS.index("gamma-0")][1:-1])
    assert lanes[ENTRANTS.index("prompt-lookup")][0].pair["draft"]["kind"] == "prompt-lookup"


def test_the_order_rotates_from_run_to_run(pair) -> None:
    lanes = lanes_of(pair, lanes=("generate", "speculative", "gamma-0"), runs=3)
    assert [events[0].lane for events in lanes] == [
        "generate", "speculative", "gamma-0", "speculative", "gamma-0", "generate", "gamma-0", "generate",
        "speculative",
    ]  # fmt: skip


def test_all_lanes_share_one_seed(pair) -> None:
    """A seed that nobody gave is drawn once: the race can be run again as it was."""
    params = specdec.SamplingParams(max_new_tokens=4, temperature=1.0)
    seeds = [{events[0].params.seed for events in lanes_of(pair, params=params, runs=2)} for _ in range(2)]
    assert len(seeds[0]) == len(seeds[1]) == 1
    assert seeds[0] != seeds[1]


def test_lossy_acceptance_reaches_the_lanes_that_accept(pair) -> None:
    lanes = lanes_of(pair, acceptance="top-k", accept_top_k=4)
    assert [events[0].acceptance for events in lanes] == ["lossless", "top-k"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lanes": ("generate", "nobody")}, "no lane 'nobody'"),
        ({"lanes": ()}, "at least one"),
        ({"lanes": ("generate", "generate")}, "each once"),
        ({"runs": 0}, "runs is 0"),
        ({"gamma": "auto", "lanes": ("assisted",)}, "fixed number"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(pair, settings: dict, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        race(pair, PROMPT, params=PARAMS, **settings)


def test_a_pair_without_a_draft_model_has_no_draft_alone(pair) -> None:
    lookup = specdec.Pair(target=pair.target, draft=specdec.PromptLookup(), tokenizer=pair.tokenizer)
    with pytest.raises(specdec.IncompatiblePair, match="no draft model"):
        race(lookup, PROMPT, params=PARAMS, lanes=("draft-alone",))
