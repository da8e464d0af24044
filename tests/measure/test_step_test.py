"""The test of every step: a right engine passes, and each kind of fault is found by its check.

Seeds are fixed. A right engine fails once in 1,000 choices of a seed.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from fakes import random_table, table_pair, tiny

import specdec
from specdec.drafters.autoregressive import ChainDraft
from specdec.engine.acceptance import Lossless
from specdec.measure.step_test import StepCheck, StepFindings, step_test
from specdec.runtime import draws
from specdec.runtime.sampling import Sampler

verify_module = importlib.import_module("specdec.engine.verify")

PROMPT = torch.tensor([2, 1, 0, 2])
TARGET = random_table(12, 1, seed=0)
DRAFT = TARGET + random_table(12, 1, seed=1, scale=0.5)
PARAMS = specdec.SamplingParams(max_new_tokens=400, temperature=1.0, seed=0)


def texts(pair: specdec.Pair, params: specdec.SamplingParams = PARAMS, count: int = 1, **settings) -> list:
    settings = {"gamma": 3} | settings
    seeds = range(params.seed, params.seed + count)
    return [list(specdec.speculative(pair, PROMPT, params=replace(params, seed=s), **settings)) for s in seeds]


def checks_of(found: StepFindings) -> dict[str, StepCheck]:
    return {check.kind: check for check in found.checks}


def faults(found: StepFindings) -> set[str]:
    return {check.kind for check in found.checks if check.differs}


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.7},
        {"temperature": 0.6, "top_k": 3},
        {"top_p": 0.7, "repetition_penalty": 1.4},
        {"min_p": 0.2},
    ],
    ids=str,
)
def test_recorded_figures_are_those_of_the_target(settings: dict) -> None:
    """The recorded p is the one that is computed again, at every setting that changes it."""
    params = replace(PARAMS, max_new_tokens=60, **settings)
    found = checks_of(step_test(table_pair(TARGET, DRAFT), texts(table_pair(TARGET, DRAFT), params)))
    assert [found[kind].gap < 1e-5 for kind in ("target", "rule", "residual")] == [True] * 3
    assert found["target"].places > 60 and found["residual"].places > 0


@pytest.mark.parametrize("family", ["llama", "gpt2", "lfm2"])
def test_one_pass_along_the_text_gives_the_p_of_every_round(family: str) -> None:
    """This holds for real models too, with windows and with recurrent state."""
    pair = specdec.Pair(tiny(family, 0), tiny(family, 1))
    found = step_test(pair, texts(pair, replace(PARAMS, max_new_tokens=24, top_k=5)))
    assert not found.differs and checks_of(found)["target"].gap < 1e-3 and found.tokens == 24


def test_rounding_in_half_precision_is_no_fault() -> None:
    """Rounds and the pass along the text round differently there."""
    pair = specdec.Pair(tiny("llama", 0).to(torch.bfloat16), tiny("llama", 1).to(torch.bfloat16))
    found = step_test(pair, texts(pair, replace(PARAMS, max_new_tokens=60)))
    assert faults(found) == set() and 0 < checks_of(found)["target"].gap < checks_of(found)["target"].allowed / 2


def test_a_right_engine_passes() -> None:
    pair = table_pair(TARGET, DRAFT)
    for params in (PARAMS, replace(PARAMS, top_k=3, temperature=2.0)):
        found = step_test(pair, texts(pair, replace(params, max_new_tokens=150), count=2))
        assert faults(found) == set(), params
        assert (found.tokens, found.texts) == (300, 2) and 0.1 < found.detectable < 0.2


def test_a_draft_at_another_temperature_is_lossless() -> None:
    """What counts is that guesses come from q, whatever distribution q is."""
    pair = table_pair(TARGET, DRAFT / 3)
    assert faults(step_test(pair, texts(pair))) == set()


def test_prompt_lookup_is_tested_too() -> None:
    pair = specdec.Pair(table_pair(TARGET, DRAFT).target, specdec.PromptLookup())
    found = step_test(pair, texts(pair))
    assert faults(found) == set() and checks_of(found)["kept"].places > 50


# --- faults ----------------------------------------------------------------------------------------------------------


def processed_at(temperature: float):
    process = Sampler.process
    return patch.object(Sampler, "process", lambda self, *args: process(self, *args) / temperature)


def guesses_at(temperature: float):
    """Guesses are drawn at another temperature than q says."""
    whole = ChainDraft._draft

    class Drawing:
        def __init__(self, sampler: Sampler):
            self._sampler = sampler

        def __getattr__(self, name: str):
            return getattr(self._sampler, name)

        def draw(self, q: torch.Tensor) -> torch.Tensor:
            return draws.draw(q ** (1 / temperature), self._sampler.rng)

    def draft(self, *args):
        sampler, self._sampler = self._sampler, Drawing(self._sampler)
        try:
            return whole(self, *args)
        finally:
            self._sampler = sampler

    return patch.object(ChainDraft, "_draft", draft)


def ratios_times(factor: float):
    ratios = verify_module._ratios
    return patch.object(verify_module, "_ratios", lambda *args: factor * ratios(*args))


def numbers_of(power: float):
    """The numbers that decide are not uniform; the records are consistent."""
    uniform = draws.uniform
    return patch.object(draws, "uniform", lambda *args, **kwargs: uniform(*args, **kwargs) ** power)


def residual_is_p():
    return patch.object(verify_module, "residual", lambda n, q, p, weight=1.0: p.index_select(0, n))


def last_draw(change):
    """The target's token is drawn from a changed distribution; the records name the right one."""
    draw = draws.draw
    whole = verify_module.verify

    def verify(*args):
        with patch.object(draws, "draw", lambda p, rng: draw(change(p), rng)):
            return whole(*args)

    return patch.object(Lossless, "_verify", staticmethod(verify))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (lambda: processed_at(1.1), "target"),
        (lambda: ratios_times(1.1), "rule"),
        (lambda: ratios_times(0.9), "rule"),
        (residual_is_p, "residual"),
        (lambda: numbers_of(2.5), "kept"),
        (lambda: guesses_at(4.0), "tokens"),
        (lambda: guesses_at(0.4), "tokens"),
        (lambda: last_draw(lambda p: p**0.3 * (p > 0)), "corrections"),
    ],
)
def test_a_fault_is_found_by_its_check(fault, check: str) -> None:
    pair = table_pair(TARGET, DRAFT)
    with fault():
        runs = texts(pair, PARAMS if check in ("kept", "tokens", "corrections") else replace(PARAMS, max_new_tokens=40))
    assert check in faults(step_test(pair, runs))


def test_a_text_of_another_model_is_found() -> None:
    """Records that fit each other are no evidence: p must be that of the target."""
    other = table_pair(TARGET + random_table(12, 1, seed=2, scale=0.1), DRAFT)
    runs = texts(other, replace(PARAMS, max_new_tokens=40))
    assert faults(step_test(table_pair(TARGET, DRAFT), runs)) >= {"target"}


@pytest.mark.parametrize(
    ("params", "settings", "said"),
    [
        (specdec.SamplingParams(8, seed=0), {}, "greedy"),
        (replace(PARAMS, max_new_tokens=8), {"acceptance": "block"}, "Acceptance was block"),
        (replace(PARAMS, max_new_tokens=8), {"acceptance": "top-k", "accept_top_k": 2}, "Acceptance was top-k"),
    ],
)
def test_runs_that_cannot_be_tested_are_refused(params, settings: dict, said: str) -> None:
    pair = table_pair(TARGET, DRAFT)
    with pytest.raises(specdec.InvalidInput, match=said):
        step_test(pair, texts(pair, params, **settings))


def test_lanes_without_records_are_refused() -> None:
    pair, params = table_pair(TARGET, DRAFT), replace(PARAMS, max_new_tokens=8)
    for lane in (specdec.generate(pair, PROMPT, params=params), specdec.assisted(pair, PROMPT, params=params)):
        with pytest.raises(specdec.InvalidInput, match="records no probabilities"):
            step_test(pair, [list(lane)])
