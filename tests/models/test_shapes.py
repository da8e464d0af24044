"""Pairs of a model's shape with random weights: they have the named model's sizes, and memory is checked first."""

from __future__ import annotations

import pytest
import torch
from pairwise import each_once, few

import specdec
from specdec.drafters import registry
from specdec.drafters.draft_model import DraftModel
from specdec.forward.lean_check import lean_model
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.shapes import recorded
from specdec.models import presets, shapes
from specdec.models.presets import PRESETS, SHAPES
from specdec.models.shapes import shape_pair

LLAMA = {"model_type": "llama", "hidden_size": 96, "intermediate_size": 192, "num_attention_heads": 4}
TINY = {
    "llama": LLAMA | {"num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 530},
    "llama-draft": LLAMA | {"num_hidden_layers": 1, "vocab_size": 512, "tie_word_embeddings": True},
    "gpt2": {"model_type": "gpt2", "n_embd": 96, "n_layer": 2, "n_head": 4, "vocab_size": 512},
    "neox": LLAMA | {"model_type": "gpt_neox", "num_hidden_layers": 2, "vocab_size": 512},
    "qwen3.5": LLAMA | presets._qwen35(
        num_hidden_layers=4, num_key_value_heads=2, head_dim=24, vocab_size=512, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    ),
    "gemma3": LLAMA | {
        "model_type": "gemma3_text", "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 24,
        "vocab_size": 512, "sliding_window": 8,
    },
}  # fmt: skip
# By the last part of the hub id in ``PRESETS``, without suffixes that do not change the shape.
ENDINGS = ("-deduped", "-hf", "-chat-v1.0", "-instruct", "-it")


@pytest.fixture(autouse=True)
def tiny_shapes(monkeypatch) -> None:
    for name, fields in TINY.items():
        monkeypatch.setitem(presets.SHAPES, f"tiny-{name}", fields)


def test_every_preset_has_its_shape_and_its_parameters() -> None:
    """Parameters are counted on models without values. The presets' figures are from the model cards."""
    counted = {}
    for preset in PRESETS:
        drafted = preset.target is not None and isinstance(registry.method_of(preset.draft), DraftModel)
        if not drafted or "EAGLE" in preset.name:  # the name of a head does not tell it from a model
            continue
        for source, parameters in ((preset.target, preset.target_parameters), (preset.draft, preset.draft_parameters)):
            name = source.split("/")[-1].lower()
            for ending in ENDINGS:
                name = name.removesuffix(ending)
            if name not in counted:
                counted[name] = shapes._empty(name, torch.bfloat16).num_parameters()
            assert counted[name] == pytest.approx(parameters, rel=0.01), name
    assert set(counted) >= {"qwen2.5-7b", "llama-2-13b", "tinyllama-1.1b", "pythia-12b", "gpt2-xl", "smollm2-135m"}
    assert set(counted) >= {"qwen3.5-4b", "qwen3.5-0.8b", "gemma-3-4b", "gemma-3-270m"}


def test_the_pair_for_a_cpu() -> None:
    sizes = [shapes._empty(name, torch.float32).num_parameters() for name in ("llama-500m", "llama-50m")]
    assert sizes[0] == pytest.approx(500e6, rel=0.02) and sizes[1] / sizes[0] == pytest.approx(0.1, rel=0.02)


@each_once(
    shape=few(
        (
            "tiny-llama:tiny-llama-draft", "tiny-qwen3.5:tiny-qwen3.5", "tiny-neox:tiny-gpt2", "tiny-gpt2:tiny-gpt2",
            "tiny-gemma3:tiny-gemma3",
        ),
        3,
    ),
    dtype=("float32", "bfloat16"),
)  # fmt: skip
def test_a_shape_decodes_as_any_pair(shape: str, dtype: str) -> None:
    """At agreement 1 all guesses are kept in both number types, as one row and several rows give the same text."""
    items = read_prompts(EXAMPLES)[:2]
    params = specdec.SamplingParams(max_new_tokens=100, seed=0, ignore_eos=True)
    pair = recorded(shape_pair(shape, 1.0, "cpu", dtype), items, params)
    assert pair.tokenizer is None and str(pair.target.dtype) == f"torch.{dtype}"
    lean = not shape.startswith(("tiny-qwen3.5", "tiny-gemma3"))
    assert all(isinstance(lean_model(model), str) != lean for model in pair.models(drafting=True))
    for item in items:
        found = specdec.collect(specdec.speculative(pair, item.message(None), gamma=5, params=params))
        assert found.metrics.alpha == 1 and len(found.token_ids) == 100


@pytest.mark.parametrize("tied", [True, False])
def test_the_next_token_leads_by_far(tied: bool, monkeypatch) -> None:
    """With weights of the usual size the lead is small, and rounding in bfloat16 could reverse it."""
    wide = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "tie_word_embeddings": tied}
    monkeypatch.setitem(presets.SHAPES, "wide", TINY["llama"] | wide)
    target = shape_pair("wide:wide", 0.8, "cpu", "bfloat16").target
    with torch.inference_mode():
        logits = target(torch.arange(1, 40)[None]).logits[0].float()
    best = logits.topk(2).values
    share = (best[:, 0] - best[:, 1]) / (best[:, 0] - logits.amin(-1))
    assert float(share.min()) > 0.2


def test_a_shape_is_the_same_every_time_and_holds_a_shared_matrix_once() -> None:
    one, again = (shape_pair("tiny-llama:tiny-llama-draft", 0.8, "cpu") for _ in range(2))
    for model, other in zip(one.models(True), again.models(True), strict=True):
        for weight, same in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(weight, same)
    draft = one.models(True)[1]
    assert draft.get_output_embeddings().weight is draft.get_input_embeddings().weight


def test_what_does_not_fit_is_refused_before_a_weight_is_made(monkeypatch) -> None:
    monkeypatch.setattr(shapes, "free_bytes", lambda device: 10_000)
    monkeypatch.setattr(shapes, "_fill", lambda *arguments: pytest.fail("weights were made"))
    with pytest.raises(specdec.LoadFailed, match="needs .* MB .* smaller shape"):
        shape_pair("tiny-llama:tiny-llama-draft", 0.8, "cpu")


@pytest.mark.parametrize(
    ("shape", "said"),
    [("gpt3:gpt2", "no shape 'gpt3'"), ("gpt2", "TARGET:DRAFT"), ("gpt2:gpt2:gpt2", "TARGET:DRAFT")],
)
def test_an_unknown_shape_is_refused(shape: str, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        shape_pair(shape, 0.8, "cpu")
    assert "gpt2" in SHAPES
