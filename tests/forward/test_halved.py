"""Native passes of large models, which read bfloat16 numbers in 16 bits: each logit stays the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import pytest
import torch
from fakes import noisy_copy, prompt_of, shared_tiny
from lean_models import COPIED, logits, with_config
from transformers import PreTrainedModel

import specdec
from specdec.forward import lean_check
from specdec.forward.lean import LeanModel
from specdec.forward.native import passes
from specdec.forward.native.availability import why_torch
from specdec.forward.native.passes import MOST, in_16_bits
from specdec.measure import roofline
from specdec.report import provenance


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lean models are built anew, on a machine that can compile. Every model counts as large."""
    if (reason := why_torch(torch.float32, torch.device("cpu"))) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(lean_check, "_stacks", WeakKeyDictionary())
    monkeypatch.setattr(passes, "LARGE", 0)


@torch.no_grad()
def as_checkpoint(model: PreTrainedModel) -> PreTrainedModel:
    """The model with bfloat16 numbers, kept in float32."""
    for weight in model.parameters():
        weight.copy_(weight.bfloat16().float())
    return model


def llama() -> PreTrainedModel:
    return as_checkpoint(with_config("llama"))


def lean_of(model: PreTrainedModel) -> LeanModel:
    found = lean_check.lean_model(model)
    assert isinstance(found, LeanModel) and found.why_torch is None, found
    return found


def read(lean: LeanModel) -> float:
    """The share of the bytes of its weights that a pass reads."""
    return roofline.weight_bytes(lean) / sum(weight.nbytes for weight in roofline._matrices(lean))


@pytest.mark.parametrize("name", COPIED)
def test_logits_are_the_same_to_the_last_bit(name: str) -> None:
    """For 1 to 17 rows."""
    lean, ids = lean_of(as_checkpoint(COPIED[name]())), prompt_of(2 * MOST)
    half = lean.halved()
    assert half is lean.halved() is not lean and read(half) < 0.55
    expected = logits(lean, ids, 1)
    for rows in range(1, MOST + 1):
        assert torch.equal(logits(half, ids, rows), expected), rows


def test_a_matrix_with_another_number_is_read_as_it_is() -> None:
    whole = torch.randn(1500, 40).bfloat16().float()
    assert torch.equal(in_16_bits(whole).float(), whole)
    for number in (1 + 2**-9, float("nan"), 1e-45):
        other = whole.clone()
        other[-1, -1] = number
        assert in_16_bits(other) is None
    model = llama()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] += 1e-6
    lean, ids = lean_of(model), prompt_of(9)
    assert torch.equal(logits(lean.halved(), ids, 3), logits(lean, ids, 3)) and 0.5 < read(lean.halved()) < 0.7


def test_small_models_and_little_memory_need_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "free_bytes", lambda device: 10)
    lean = lean_of(llama())
    assert lean.halved() is lean
    monkeypatch.undo()
    lean = lean_of(llama())
    assert lean.halved() is lean


def test_a_pair_says_which_weights_are_read_in_16_bits() -> None:
    draft = noisy_copy(shared_tiny("llama", 1), 1)  # its numbers are no bfloat16 ones
    lean = lean_of(draft)
    assert lean.halved() is lean
    facts = specdec.Pair(llama(), draft).describe()
    assert facts["target"]["in_16_bits"] and "in_16_bits" not in facts["draft"]
    told = "Passes of the target over few rows run in C and read weights in 16 bits, which changes no logit. "
    assert provenance.passes(facts).endswith(told + "Passes of the draft over few rows run in C.")
    exit = specdec.Pair(llama(), specdec.EarlyExit(1)).describe()
    assert exit["target"]["in_16_bits"] and "in_16_bits" not in exit["draft"]


def change_in_place(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.mul_(2)


def change_unseen(weight: torch.Tensor) -> None:
    weight.data.mul_(2)


def replace_data(weight: torch.Tensor) -> None:
    weight.data = weight.data * 2


@pytest.mark.parametrize("change", [change_in_place, change_unseen, replace_data])
def test_changed_weights_are_read(change: Callable[[torch.Tensor], None]) -> None:
    """Also by ways of which torch keeps no count, as some that merge adapters into weights take."""
    model, ids = llama(), prompt_of(5)
    before = logits(lean_of(model).halved(), ids, 5)
    change(model.model.layers[0].mlp.down_proj.weight)
    after = logits(lean_of(model).halved(), ids, 5)
    assert not torch.equal(after, before)
    lean_check._stacks.clear()
    assert torch.equal(after, logits(lean_of(model), ids, 5))


@pytest.mark.parametrize("draft", [None, specdec.EarlyExit(1)])
def test_greedy_text_is_that_of_generate(draft: specdec.EarlyExit | None) -> None:
    target = llama()
    pair = specdec.Pair(target, draft or as_checkpoint(noisy_copy(shared_tiny("llama", 1), 1)))
    if draft is not None:
        pair = replace(pair, draft=draft)
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, prompt_of(7), params=params)).token_ids
    assert specdec.collect(specdec.speculative(pair, prompt_of(7), gamma=4, params=params)).token_ids == plain
    assert read(lean_of(target).halved()) < 0.55


def test_the_limit_counts_the_bytes_that_are_read() -> None:
    pair = specdec.Pair(llama(), llama())
    limit = roofline.limit_of(pair)
    assert isinstance(limit, roofline.Limit) and limit.draft is not None
    whole = roofline.weight_bytes(lean_of(pair.target))
    assert max(roofline.weight_bytes(lean) for lean in (limit.target, limit.draft)) < 0.55 * whole
