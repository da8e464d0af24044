"""The warm-up call runs all kernel shapes that the measured call would otherwise meet for the first time."""

from __future__ import annotations

import dataclasses

import pytest
from fakes import byte_tokenizer, count_passes, noisy_copy, prompt_of, rounds_of, tiny

import specdec
from specdec.engine.acceptance import TopK
from specdec.engine.request import make_request
from specdec.forward import cuda_graph
from specdec.forward.cuda_graph import GraphEngine
from specdec.lanes.race import WARM_UP_GAMMA, WARM_UP_TOKENS, race, start, warm_up
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.trials import trials

PROMPT = 4  # tokens
LONG = specdec.SamplingParams(max_new_tokens=200)


def new_pair(scale: float = 0.02, eos: int | list[int] | None = None) -> specdec.Pair:
    target = tiny("llama", 1, context=512, eos=eos)
    return specdec.Pair(target, noisy_copy(target, 1, scale), byte_tokenizer())


def rows_of(pair: specdec.Pair, config: LaneConfig, params: specdec.SamplingParams = LONG, **asked):
    """How many tokens each pass of the target and of the draft was fed."""
    with count_passes(pair.target) as target, count_passes(pair.draft.model) as draft:
        events = list(warm_up(make_request(pair, prompt_of(PROMPT), params), config, **asked))
    assert rounds_of(events)
    return target, draft


@pytest.mark.parametrize("scale", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("gamma", [1, 2, 7])
def test_every_number_of_rows_is_met(gamma: int, scale: float) -> None:
    """Each number of rows is met once, whether all guesses are accepted, some, or hardly any."""
    target, draft = rows_of(new_pair(scale), LaneConfig("speculative", gamma))
    longest = max(2, gamma)
    assert target == [PROMPT, 1, *range(longest + 1, 1, -1)]
    assert draft[0] == PROMPT and set(draft[1:]) == {1, 2}
    assert len(draft) == 1 + longest * (longest + 1) // 2


@pytest.mark.parametrize(
    "changes", [{"temperature": 1.0, "top_k": 20, "seed": 3}, {"repetition_penalty": 1.2}, {"stop": ("e", "a", " ")}]
)
def test_neither_settings_nor_eos_shorten_a_warm_up(changes: dict) -> None:
    pair = new_pair(eos=list(range(2, 300, 2)))
    target, _ = rows_of(pair, LaneConfig("speculative", 3), specdec.SamplingParams(max_new_tokens=64, **changes))
    assert target == [PROMPT, 1, 4, 3, 2]


def test_lossy_acceptance_is_warmed_up_as_it_runs() -> None:
    pair = new_pair(0.5)
    target, _ = rows_of(pair, LaneConfig("speculative", 3), acceptance=TopK(5))
    assert target == [PROMPT, 1, 4, 3, 2]


@pytest.mark.parametrize(
    ("gamma", "most"), [("auto", WARM_UP_GAMMA), (specdec.ConfidenceStop(4, least_confidence=1e-9), 4)]
)
def test_a_policy_meets_its_lengths_up_to_a_bound(gamma, most: int) -> None:
    target, _ = rows_of(new_pair(), LaneConfig("speculative", gamma))
    assert target == [PROMPT, 1, *range(most + 1, 1, -1)]


def test_on_a_cpu_the_longest_drafts_are_left_out() -> None:
    """On a CPU the longest drafts are left out: at gamma 16 they would take as long as a short race."""
    target, _ = rows_of(new_pair(), LaneConfig("speculative", 16))
    assert target == [PROMPT, 1, *range(WARM_UP_GAMMA + 1, 1, -1)]


@pytest.mark.parametrize("config", [LOOP, LaneConfig("generate")])
def test_a_lane_without_a_draft_writes_a_few_tokens(config: LaneConfig) -> None:
    target, draft = rows_of(new_pair(), config)
    assert target == [PROMPT, *[1] * (WARM_UP_TOKENS - 1)] and not draft


def test_the_graph_engine_captures_every_step_of_a_fixed_length_in_it(monkeypatch) -> None:
    """In the measured call every step is a graph replay, but those of the prompt and of a new bound."""
    seen: list[object] = []
    run = GraphEngine.run
    monkeypatch.setattr(cuda_graph, "_difference", lambda model, lean: None)  # a replay below repeats no values
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: lambda step, rng: (step(), lambda: None))

    def noted(self, name, key, step):
        seen.append((self, key and (name, self._settings, key)))
        return run(self, name, key, step)

    monkeypatch.setattr(GraphEngine, "run", noted)
    pair = dataclasses.replace(new_pair(), engine="graph")
    request = make_request(pair, prompt_of(PROMPT), specdec.SamplingParams(max_new_tokens=100))
    for config in (LaneConfig("speculative", 3), LOOP):
        list(warm_up(request, config))
        ((engine, _), *_) = seen
        captured, seen[:] = {tuple(key) for _, *key in engine._graphs}, []
        list(start(request, config))
        assert {id(used) for used, _ in seen} == {id(engine)}
        assert {key for _, key in seen if key is not None} <= captured
        seen.clear()


def test_a_warm_up_is_no_longer_than_its_call() -> None:
    target, _ = rows_of(new_pair(0.0), LaneConfig("speculative", 8), specdec.SamplingParams(max_new_tokens=6))
    assert target == [PROMPT, 1, 4]


def first_passes(pair: specdec.Pair, run) -> list[int]:
    with count_passes(pair.target) as fed:
        for _ in run():
            pass
    return fed


def test_races_and_benchmarks_warm_up_before_they_measure() -> None:
    pair, params = new_pair(), specdec.SamplingParams(max_new_tokens=32)
    length = len(pair.encode("Once upon a time")[0])
    expected = [length, 1, 4, 3, 2, length]

    def a_race():
        return race(pair, "Once upon a time", gamma=3, params=params, lanes=("speculative",))

    def a_benchmark():
        plan = Plan((PromptItem("a", "a", "Once upon a time"),), (LaneConfig("speculative", 3),), params, 1)
        return trials(pair, plan)

    for run in (a_race, a_benchmark):
        assert first_passes(pair, run)[: len(expected)] == expected
