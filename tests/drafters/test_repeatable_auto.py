"""γ auto in sampled calls: a seed repeats the draft lengths and the text, whatever the clock says."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from block_heads import CONFIDENT, deepspec, zlab
from block_heads import head_of as block_head
from block_heads import pair_of as block_pair
from block_heads import target_of as block_target
from comparison import FULL
from drafting import head_of
from fakes import generated, noisy_copy, prompt_of, rounds_of, tiny
from pairwise import few
from test_combined import combined, eagle_pair, model_pair, target_of, translated_pair
from test_gemma4_assistant import config_of as assistant_config
from test_gemma4_assistant import grouped
from test_gemma4_assistant import head_of as assistant
from test_gemma4_assistant import target_of as gemma4
from test_mtp import pair_of as mtp_pair
from test_peagle import parallel
from test_qwen_mtp import pair_of as qwen_mtp_pair

import specdec
from specdec.drafters.base import DraftMethod, DraftWork
from specdec.drafters.draft_model import DraftModel
from specdec.engine.policy import tell_of_costs
from specdec.engine.round_costs import BY_TORCH, EstimatedCosts, estimated_costs
from specdec.engine.round_times import RoundTimes
from specdec.forward.model_info import why_torch_passes
from specdec.forward.pass_size import PassSize
from specdec.lanes.race import race
from specdec.runtime import clock

decode_module = importlib.import_module("specdec.engine.decode")


def experts_pair() -> specdec.Pair:
    """A target with experts; its draft agrees with it often."""
    target = tiny("mixtral", 3, context=512)
    return specdec.Pair(target, noisy_copy(target, 2))


def recurrent_pair() -> specdec.Pair:
    """A target with recurrent state; its draft agrees with it often."""
    target = tiny("qwen3_5_text", 3, layers=4, context=512)
    return specdec.Pair(target, noisy_copy(target, 2))


PAIRS: dict[str, Callable[[], specdec.Pair]] = {
    "a draft model": partial(model_pair, agrees=True),
    "in 8 bits": partial(model_pair, rounded=True, agrees=True),
    "in fixed buffers": lambda: replace(model_pair(agrees=True), engine="graph"),
    "recurrent state": recurrent_pair,
    "experts": experts_pair,
    "another tokenizer": translated_pair,
    "early exit": lambda: specdec.Pair(target_of(), specdec.EarlyExit(4)),
    "prompt lookup": lambda: specdec.Pair(target_of(), specdec.PromptLookup()),
    "suffix decoding": lambda: specdec.Pair(target_of(), specdec.Suffix()),
    "token recycling": lambda: specdec.Pair(target_of(), specdec.Recycling()),
    "an EAGLE-3 head": eagle_pair,
    "a P-EAGLE head": lambda: specdec.Pair(target_of(), specdec.Eagle3(head_of(parallel()))),
    "MTP layers": partial(mtp_pair, "glm4_moe", 2),
    "the MTP layer of Qwen": partial(qwen_mtp_pair, "qwen3_5_text"),
    "a DFlash head": lambda: block_pair(block_target(), block_head(zlab())),
    "a DSpark head": lambda: block_pair(block_target(), block_head(deepspec(**CONFIDENT))),
    "a Gemma 4 assistant": lambda: specdec.Pair(
        gemma4(), specdec.Gemma4Assistant(assistant(assistant_config(**grouped())))
    ),
    "a copy, else a model": lambda: combined(model_pair(agrees=True)),
}


@pytest.fixture
def disturbed(monkeypatch) -> Callable[[int], None]:
    """Sets a clock that says something random each time it is asked, by a seed."""

    def disturb(seed: int) -> None:
        chance = random.Random(seed)
        random_clock = SimpleNamespace(perf_counter=chance.random, thread_time=chance.random)
        monkeypatch.setattr(clock, "time", random_clock)

    return disturb


def sampled(pair: specdec.Pair, **changes) -> tuple[list[int], tuple[int, ...]]:
    """The draft lengths and the tokens of a call."""
    params = specdec.SamplingParams(**{"max_new_tokens": 72, "temperature": 0.7, "seed": 5, "top_k": 8} | changes)
    prompt_ids = prompt_of(3).repeat(4)  # so that there is something to copy
    events = rounds_of(list(specdec.speculative(pair, prompt_ids, gamma="auto", params=params)))
    return [len(event.draft) for event in events], sum((event.committed_ids for event in events), ())


@pytest.mark.parametrize("drafting", PAIRS)
def test_a_seed_repeats_the_text_whatever_the_clock_says(drafting: str, disturbed) -> None:
    pair = PAIRS[drafting]()
    expected = sampled(pair)
    for seed in range(3 if FULL else 1):
        disturbed(seed)
        assert sampled(pair) == expected
    assert sampled(pair, seed=6)[1] != expected[1], "another seed writes another text"


@pytest.mark.parametrize("drafting", few(["a draft model", "a copy, else a model", "recurrent state"], 2))
def test_measured_costs_would_not_repeat_it(drafting: str, disturbed, monkeypatch) -> None:
    monkeypatch.setattr(
        decode_module,
        "tell_of_costs",
        lambda lengths, known: tell_of_costs(lengths, lambda: known()._replace(times=RoundTimes())),
    )
    pair = PAIRS[drafting]()

    def lengths(seed: int) -> list[int]:
        disturbed(seed)
        return sampled(pair)[0]

    first = lengths(0)
    assert any(lengths(seed) != first for seed in range(1, 6))


def test_a_drawn_seed_repeats_the_text_too(disturbed) -> None:
    """A call without a seed names the one it drew, which repeats it. So it decides by the same costs."""
    pair = PAIRS["a draft model"]()
    params = specdec.SamplingParams(max_new_tokens=48, temperature=1.0)
    first = list(specdec.speculative(pair, prompt_of(9), gamma="auto", params=params))
    disturbed(1)
    again = list(specdec.speculative(pair, prompt_of(9), gamma="auto", params=first[0].params))
    drafts = [[[token.token_id for token in event.draft] for event in rounds_of(events)] for events in (first, again)]
    assert drafts[0] == drafts[1]


def test_every_run_of_a_race_repeats_it(disturbed) -> None:
    disturbed(1)
    pair, params = PAIRS["a draft model"](), specdec.SamplingParams(max_new_tokens=32, temperature=1.0)
    texts: list[list[int]] = []
    for batch in race(pair, prompt_of(9), lanes=("speculative",), gamma="auto", params=params, runs=3):
        for event in batch:
            if isinstance(event, specdec.Started):
                texts.append([])
            elif isinstance(event, specdec.Round):
                texts[-1] += event.committed_ids
    assert len(texts) == 3 and len(texts[0]) == 32 and texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("drafting", ["a draft model", "early exit", "a copy, else a model"])
def test_greedy_text_does_not_depend_on_the_lengths(drafting: str, disturbed) -> None:
    """So greedy calls measure what a round costs: the lengths follow the clock, and the text is that of generate."""
    pair, found = PAIRS[drafting](), set()
    reference = generated(pair.target, prompt_of(3).repeat(4), 72)
    for seed in range(6):
        disturbed(seed)
        lengths, text = sampled(pair, temperature=0.0, seed=None)
        assert text == reference
        found.add(tuple(lengths))
    assert len(found) > 1


# --- the costs ------------------------------------------------------------------------------------------------------


SIZE = PassSize(None, None, 10**7, 4e7)
COSTS = EstimatedCosts(
    SIZE, 20, BY_TORCH, DraftWork(4e6, 2), BY_TORCH, one_call=False, copied=frozenset(), stateful=False
)


def test_costs_are_told_in_target_passes() -> None:
    assert COSTS.draft(0) == 0 and COSTS.check(1) == 1
    assert COSTS.draft(1) == pytest.approx((4e6 + 2 * 3e6 + 3e6) / (4e7 + 20 * 3e6 + 3e6))
    assert COSTS.draft(2) == pytest.approx(2 * COSTS.draft(1))
    assert 1 < COSTS.check(2) < COSTS.check(3)


def test_what_a_draft_costs() -> None:
    """A block drafter's guesses share a pass. A copy takes as long as one choice, and so does choosing in one call."""
    block = replace(COSTS, drafting=DraftWork(4e6, 2, one_pass=True))
    assert COSTS.draft(1) < block.draft(5) < COSTS.draft(5) / 2
    mixed, copies = replace(COSTS, copied=frozenset({"prompt-lookup"})), replace(COSTS, drafting=DraftWork())
    assert mixed.draft(5, "model") == mixed.draft(5) == COSTS.draft(5)
    at_once = replace(COSTS, one_call=True)
    assert at_once.draft(1) == COSTS.draft(1)
    assert COSTS.draft(9) - at_once.draft(9) == pytest.approx(8 * copies.draft(1))
    assert 0 < mixed.draft(1, "prompt-lookup") == mixed.draft(9, "prompt-lookup") == copies.draft(5) < COSTS.draft(1)


def test_a_pass_over_more_rows_reads_more_experts() -> None:
    dense, mixed = (estimated_costs(PAIRS[name]()).target for name in ("a draft model", "experts"))
    assert dense.bytes_of(6) == dense.bytes_of(1)
    count, chosen = mixed.config.num_local_experts, mixed.config.num_experts_per_tok
    assert mixed.bytes_of(1) == pytest.approx(mixed.bytes)
    assert mixed.bytes < mixed.bytes_of(2) < mixed.bytes_of(6) < mixed.bytes + mixed.experts * (1 - chosen / count)
    model = experts_pair().target
    layers = sum(weight.nbytes for weight in model.model.layers.parameters())
    rest = layers - mixed.experts + model.lm_head.weight.nbytes
    assert mixed.bytes == pytest.approx(rest + mixed.experts * chosen / count)


def test_only_greedy_guesses_in_c_are_made_in_one_call() -> None:
    """Sampled guesses are drawn outside the pass, each after the other, and torch makes a pass for each."""
    pair = PAIRS["a draft model"]()
    in_c = why_torch_passes(pair.target) is None
    assert estimated_costs(pair, greedy=True).one_call == in_c
    assert not estimated_costs(pair).one_call
    assert not estimated_costs(PAIRS["an EAGLE-3 head"](), greedy=True).one_call


@pytest.mark.parametrize("drafting", PAIRS)
def test_what_a_draft_reads(drafting: str) -> None:
    """Copies read nothing; every other draft reads less than a target of some layers and more than nothing."""
    found = estimated_costs(PAIRS[drafting]())
    if drafting in ("prompt lookup", "suffix decoding", "token recycling"):
        assert found.drafting == DraftWork()
    else:
        assert found.drafting.bytes > 0 and found.drafting.layers > 0
    assert found.drafting.one_pass == (drafting in ("a P-EAGLE head", "a DFlash head", "a DSpark head"))
    assert found.stateful == (drafting in ("recurrent state", "the MTP layer of Qwen"))


def test_what_models_read() -> None:
    """A draft model its layers and output matrix, in one byte a number where it is rounded; early exit its layers."""
    pair = PAIRS["early exit"]()
    whole = estimated_costs(pair)
    layers = [sum(weight.nbytes for weight in layer.parameters()) for layer in pair.target.model.layers]
    output = pair.target.lm_head.weight.nbytes
    assert whole.target.bytes == sum(layers) + output
    assert whole.drafting == DraftWork(pytest.approx(sum(layers[:4]) + output), 4)
    plain, rounded = (specdec.Pair(pair.target, DraftModel(tiny("llama", 2), rounded=asked)) for asked in (False, True))
    read = estimated_costs(plain).drafting.bytes
    assert estimated_costs(rounded).drafting.bytes == (read / 4 if rounded.rounds_draft else read)


class Strange(specdec.Suffix):
    """A way of another package that says nothing of its work."""


def test_a_way_that_says_nothing_of_its_work_reads_its_weights() -> None:
    assert isinstance(Strange(), DraftMethod)
    assert Strange().work(SIZE, ()) == DraftWork()
    model = PassSize(config_with_layers(3), None, 5, 20.0)
    assert Strange().work(SIZE, (model, PassSize(None, "head", 1, 4.0))) == DraftWork(24.0, 3)


def config_with_layers(count: int) -> SimpleNamespace:
    text = SimpleNamespace(num_hidden_layers=count)
    return SimpleNamespace(get_text_config=lambda decoder: text)
