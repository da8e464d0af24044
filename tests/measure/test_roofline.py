"""The limit: bytes and operations of a pass, counted in a second way, and the time that follows from given rates."""

from __future__ import annotations

import math

import pytest
import torch
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import specdec
from specdec.forward.lean_check import lean_model
from specdec.lanes.table import lane_configs
from specdec.measure import roofline as limits
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.roofline import Limit, Rates, Work, limit_of, limit_record, rates_for, weight_bytes, work_of
from specdec.measure.trials import trials


def counted_operations(lean, cached: int) -> int:
    """Operations of a pass over one row, as torch counts them while it runs."""
    buffer = lean.new_buffer()
    with torch.inference_mode():
        lean.forward(torch.arange(cached), buffer, 0, 1)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the fused one is not counted
            lean.forward(torch.arange(1), buffer, cached, None)
    return counter.get_total_flops()


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "qwen3", "mistral"])
def test_operations_are_those_that_run(family: str, torch_passes) -> None:
    """The counted operations equal torch's, also with windows (mistral), grouped queries and a tied head (gpt2)."""
    lean = lean_model(shared_tiny(family))
    assert work_of(lean, 1, 20).operations == counted_operations(lean, 20)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_bytes_of_a_pass(family: str) -> None:
    """A pass reads all matrices, the head even if tied, the embeddings of its rows, keys and values."""
    model = shared_tiny(family, layers=2)
    width, vocabulary = 48, 320
    tables = {"llama": 1, "gpt2": 2}[family]  # of embeddings: tokens, and positions where they are learned
    norms = {"llama": 5 * width, "gpt2": 5 * 2 * width}[family]
    embeddings = vocabulary * width + (128 * width if family == "gpt2" else 0)
    head = vocabulary * width if family == "gpt2" else 0  # llama's is a matrix of its own
    matrices = model.num_parameters() - norms - embeddings + head
    token = 2 * 2 * {"llama": 24, "gpt2": 48}[family]  # keys and values of two layers; llama's 4 heads share 2
    lean = lean_model(model)
    assert weight_bytes(lean) == 4 * matrices
    for rows, cached in ((1, 0), (1, 50), (6, 50)):
        assert work_of(lean, rows, cached).bytes == 4 * (matrices + tables * rows * width + (cached + rows) * token)


def test_more_rows_compute_more_and_read_hardly_more() -> None:
    lean = lean_model(shared_tiny("llama"))
    one, six = work_of(lean, 1, 50), work_of(lean, 6, 50)
    assert six.operations > 6 * one.operations and six.bytes < 1.1 * one.bytes
    windowed = lean_model(shared_tiny("mistral"))
    assert work_of(windowed, 1, 100) == work_of(windowed, 1, 50), "what left the window is not read"


def test_a_pass_takes_the_larger_of_its_two_times() -> None:
    rates = Rates(bandwidth=10, operations=100)
    assert rates.seconds(Work(20, 100)) == 2 and rates.seconds(Work(20, 500)) == 5


def test_the_limit_of_a_round() -> None:
    """The limit of a round is gamma draft passes and one target pass, divided by the round's tokens."""
    target, draft = lean_model(shared_tiny("llama", layers=3)), lean_model(shared_tiny("llama", 1, layers=1))
    found = Limit(target, Rates(1e6, math.inf), draft, Rates(2e6, math.inf))
    expected = (work_of(target, 5, 30).bytes / 1e6 + 4 * work_of(draft, 1, 30).bytes / 2e6) / 2.5
    assert found.speculative(4, 2.5, 30) == pytest.approx(expected)
    assert found.plain(30) == pytest.approx(work_of(target, 1, 30).bytes / 1e6)
    free = Limit(target, Rates(1e6, math.inf), None, None)
    assert free.speculative(4, 2.5, 30) == pytest.approx(work_of(target, 5, 30).bytes / 1e6 / 2.5)


def test_rates_are_measured_over_a_buffer_as_large_as_the_weights(monkeypatch) -> None:
    """Rates are measured over a buffer of the weights' size: weights that fit a cache are not limited by memory."""
    monkeypatch.setattr(limits, "SECONDS", 0.001)
    monkeypatch.setitem(limits.SIDE, "cpu", 32)
    limits._product_rate.cache_clear()
    sizes, ones = [], torch.ones

    def noted(*shape, **options):
        made = ones(*shape, **options)
        sizes.append(made.nbytes)
        return made

    monkeypatch.setattr(torch, "ones", noted)
    lean = lean_model(shared_tiny("llama", layers=3))
    found = rates_for(lean)
    assert max(sizes) == pytest.approx(weight_bytes(lean), abs=4096)
    limits._product_rate.cache_clear()
    assert 0 < found.bandwidth < math.inf and 0 < found.operations < math.inf


@pytest.fixture
def known_rates(monkeypatch) -> None:
    monkeypatch.setattr(limits, "rates_for", lambda lean: Rates(1e9, 1e9))


def test_no_limit_without_a_lean_forward(known_rates) -> None:
    """There is no limit, and a reason is given, for experts, a draft of an unknown family and a model with hooks."""
    target = shared_tiny("llama", layers=3)
    assert "target" in limit_of(specdec.Pair(target=tiny("mixtral")))
    assert "draft" in limit_of(specdec.Pair(target=target, draft=shared_tiny("bloom")))
    hooked = tiny("llama")
    hooked.register_forward_hook(lambda *arguments: None)
    found = limit_of(specdec.Pair(target=hooked))
    assert "hook" in found
    assert limit_record(found, None, None, []) == {"reason": found}


@pytest.mark.parametrize("draft", [specdec.PromptLookup(), specdec.EarlyExit(1), None])
def test_ways_to_draft_without_a_model_of_their_own(draft, known_rates) -> None:
    target = shared_tiny("llama", layers=3)
    found = limit_of(specdec.Pair(target=target, draft=draft))
    assert isinstance(found, Limit)
    if isinstance(draft, specdec.EarlyExit):
        assert weight_bytes(found.draft) < weight_bytes(found.target)
    else:
        assert found.draft is None


def test_the_record_of_a_benchmark(known_rates) -> None:
    target = shared_tiny("llama", layers=3)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, scale=0.006), tokenizer=byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=32, seed=0, ignore_eos=True)
    configs = lane_configs(("generate", "speculative", "assisted"), (0, 3, "auto"))
    plan = Plan((PromptItem("one", "a", "Once upon a time"),), configs, params, 1)
    found = limit_of(pair)
    record = limit_record(found, pair, plan, list(filter(None, trials(pair, plan))))
    assert [(row["lane"], row["gamma"]) for row in record["rows"]] == [
        ("generate", None), ("speculative", 0), ("speculative", 3),
    ]  # fmt: skip
    cached = pair.encode("Once upon a time").shape[1] + 16
    assert record["cached_tokens"] == cached
    for row in record["rows"][:2]:
        assert row["computed_least_seconds_per_token"] == pytest.approx(found.plain(cached))
    for row in record["rows"]:
        least, seconds = row["computed_least_seconds_per_token"], row["measured_seconds_per_token"]
        assert row["share_of_limit"] == pytest.approx(least / seconds)
    assert record["measured"]["target"]["read_bytes_per_second"] == 1e9


def test_a_draft_that_guesses_less_than_gamma_is_held_to_what_it_guessed(known_rates) -> None:
    """Where prompt lookup finds nothing a pass reads one row, and the limit must not count gamma + 1."""
    pair = specdec.Pair(target=shared_tiny("llama", layers=3), draft=specdec.PromptLookup(), tokenizer=byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=32, seed=0, ignore_eos=True)
    configs = lane_configs(("generate", "speculative"), (8,))
    plan = Plan((PromptItem("one", "a", "Once upon a time"),), configs, params, 1)
    found, run = limit_of(pair), list(filter(None, trials(pair, plan)))
    metrics = next(trial.metrics for trial in run if trial.gamma == 8)
    assert 0 < metrics.drafted < 8 * metrics.target_passes
    record = limit_record(found, pair, plan, run)
    row = next(row for row in record["rows"] if row["gamma"] == 8)
    work = work_of(found.target, 1 + metrics.drafted / metrics.target_passes, record["cached_tokens"])
    expected = found.target_rates.seconds(work) * metrics.target_passes / metrics.decode_tokens
    assert row["computed_least_seconds_per_token"] == pytest.approx(expected)
