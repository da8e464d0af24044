"""Drafts whose native passes read their weights in 8 bits: what they compute, and that texts stay the target's."""

from __future__ import annotations

import copy
from weakref import WeakKeyDictionary

import pytest
import torch
from fakes import noisy_copy, prompt_of, rounds_of, shared_tiny, tiny
from lean_models import CLOSE, COPIED, logits
from transformers import PreTrainedModel

import specdec
from specdec.drafters.draft_model import DraftModel
from specdec.forward import lean_check
from specdec.forward.lean import LeanModel
from specdec.forward.native import passes
from specdec.forward.native.availability import why_torch
from specdec.forward.native.passes import MOST, in_8_bits
from specdec.measure import roofline
from specdec.models.loading import EMBEDDED, plan_pair
from specdec.models.settings import LoadOptions
from specdec.report import provenance


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lean models are built anew, on a machine that can compile."""
    if (reason := why_torch(torch.float32, torch.device("cpu"))) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(lean_check, "_stacks", WeakKeyDictionary())


def rounded(model: PreTrainedModel) -> LeanModel:
    found = lean_check.lean_model(model)
    assert isinstance(found, LeanModel) and found.why_torch is None, found
    assert found.rounded() is found.rounded() is not found
    return found.rounded()


def pair_of(target: PreTrainedModel) -> specdec.Pair:
    return specdec.Pair(target, DraftModel(noisy_copy(target, 1), rounded=True))


def test_a_matrix_is_rounded_by_row() -> None:
    weight = torch.randn(7, 50, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 7)[:, None]
    weight[3] = 0
    small, factors = in_8_bits(weight)
    assert small.dtype == torch.int8 and int(small.abs().max()) == 127 and not small[3].any()
    assert bool(((small * factors[:, None] - weight).abs() <= factors[:, None] / 2 * (1 + 1e-5)).all())


@pytest.mark.parametrize("name", COPIED)
def test_logits_are_those_of_a_model_with_the_rounded_weights(name: str) -> None:
    """For 1 to 17 rows, each to the last bit as alone."""
    model, ids = COPIED[name](), prompt_of(2 * MOST)
    twin = copy.deepcopy(model)
    plain = lean_check.lean_model(twin)
    with torch.no_grad():
        for matrix in plain.matrices:
            small, factors = in_8_bits(matrix.weight)
            matrix.weight.copy_(small * factors[:, None])
    expected, alone = logits(plain, ids, 1), logits(rounded(model), ids, 1)
    assert float(lean_check.share_apart(alone, expected)) < CLOSE
    assert float(lean_check.share_apart(alone, logits(lean_check.lean_model(model), ids, 1))) > 10 * CLOSE
    for rows in range(2, MOST + 1):
        assert torch.equal(logits(rounded(model), ids, rows), alone), rows


def test_greedy_text_is_that_of_generate_and_what_ran_is_said() -> None:
    pair = pair_of(shared_tiny("llama", 1, layers=3))
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, prompt_of(7), params=params)).token_ids
    events = list(specdec.speculative(pair, prompt_of(7), gamma=4, params=params))
    assert specdec.collect(iter(events)).token_ids == plain and len(rounds_of(events)) < 40
    facts = events[0].pair
    assert (facts["target"]["dtype"], facts["draft"]["dtype"]) == ("float32", "int8")
    assert "layers, int8)" in provenance.pair_line(facts)
    assert "int8" not in provenance.pair_line(specdec.Pair(pair.target, pair.draft.model).describe())


def test_the_target_s_own_passes_are_not_rounded() -> None:
    """Also where one model is both."""
    target, ids = tiny("llama"), prompt_of(9)
    pair = specdec.Pair(target, DraftModel(target, rounded=True))
    params = specdec.SamplingParams(max_new_tokens=30, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, ids, params=params)).token_ids
    assert specdec.collect(specdec.speculative(pair, ids, gamma=3, params=params)).token_ids == plain


def test_changed_weights_are_rounded_anew() -> None:
    model, ids = tiny("llama"), prompt_of(5)
    before = logits(rounded(model), ids, 5)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(2)
    assert not torch.equal(logits(rounded(model), ids, 5), before)


def test_where_torch_runs_passes_weights_are_read_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "why_torch", lambda dtype, device: "This is a test.")
    pair = pair_of(tiny("llama"))
    lean = lean_check.lean_model(pair.draft.model)
    assert lean.rounded() is lean
    assert pair.describe()["draft"]["dtype"] == "float32"


@pytest.mark.parametrize("nan", [float("nan"), float("inf")])
def test_what_is_no_number_reaches_the_logits(nan: float) -> None:
    model = tiny("llama")
    found = rounded(model)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[0, 0] = nan
    assert not logits(found.__class__(model).rounded(), prompt_of(3), 3).isfinite().all()


def test_the_limit_counts_the_bytes_that_are_read() -> None:
    lean = lean_check.lean_model(tiny("llama"))
    whole, small = roofline.weight_bytes(lean), roofline.weight_bytes(lean.rounded())
    assert whole / 4 <= small < whole / 3.5


# --- how it is asked for ---------------------------------------------------------------------------------------------


def test_a_loaded_draft_model_is_rounded_unless_asked_otherwise() -> None:
    assert [specdec.load_pair(draft_weights=asked).draft.rounded for asked in ("auto", "int8", "same")] == [
        True, True, False,
    ]  # fmt: skip
    assert not specdec.Pair(tiny("llama"), tiny("llama")).draft.rounded, "a model that was given is used as it is"


def test_a_draft_that_was_loaded_before_says_what_it_wants() -> None:
    draft, target = specdec.load_pair().draft.model, str(EMBEDDED / "target")
    for wanted in (True, False):
        assert specdec.load_pair(target, DraftModel(draft, rounded=wanted)).draft.rounded == wanted
    assert specdec.load_pair(target, DraftModel(draft), draft_weights="int8").draft.rounded
    assert not specdec.load_pair(target, DraftModel(draft, rounded=True), draft_weights="same").draft.rounded


def test_the_plan_counts_the_copy() -> None:
    same, small = (plan_pair(options=LoadOptions(draft_weights=asked)) for asked in ("same", "int8"))
    assert small.weights - same.weights == same.draft_parts[0].parameters


def test_under_autocast_nothing_says_int8() -> None:
    pair = specdec.load_pair()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pair.describe()["draft"]["dtype"] == "float32"
    assert pair.describe()["draft"]["dtype"] == "int8"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"draft_weights": "int4"}, "draft_weights is 'int4'; use 'auto', 'same', 'int8'."),
        (
            {"draft_weights": "int8", "draft": "prompt-lookup"},
            "which only a draft model can have; leave draft_weights out",
        ),
        ({"draft_weights": "int8", "draft_dtype": "bfloat16"}, "Native passes are for float32 weights on a CPU."),
    ],
)
def test_what_cannot_be_had_is_a_sentence(settings: dict[str, str], said: str) -> None:
    with pytest.raises(specdec.SpecdecError, match=said.replace(".", r"\.")):
        specdec.load_pair(**{"target": str(EMBEDDED / "target"), "draft": str(EMBEDDED / "draft")} | settings)
