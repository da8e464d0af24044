"""Weights that nobody would read: packed ones without their method, scales, and others without a place in the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import byte_tokenizer, generated, tiny
from safetensors.torch import load_file, save_file
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING
from transformers.utils.quantization_config import QuantizationMethod

import specdec
from specdec.models import loading

METHODS = sorted(
    {*AUTO_QUANTIZER_MAPPING, *AUTO_QUANTIZATION_CONFIG_MAPPING, *(each.value for each in QuantizationMethod)}
)
UNKNOWN = ("modelopt", "bitsandbytes", "homemade", None)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.int8, torch.uint8)
LAYER, PROJECTION = "model.layers.0.", "model.layers.0.mlp.up_proj."
# The names that ModelOpt, compressed-tensors, DeepSeek, GPTQ, AWQ, bitsandbytes, quanto, MXFP4 and vLLM give to scales
# and to packed weights.
SCALES = (
    *(f"{PROJECTION}{name}" for name in (
        "weight_scale", "weight_scale_inv", "weight_scale_2", "input_scale", "output_scale", "activation_scale",
        "scale", "scales", "qscale_weight", "qscale_act", "qweight", "qzeros", "g_idx", "weight_packed", "weight_shape",
        "weight_zero_point", "SCB", "weight_format", "weight.absmax", "weight.quant_map", "weight_quantizer._amax",
        "weight.quant_state.bitsandbytes__nf4", "weight._data", "weight._scale", "weight_blocks", "weight_scales",
    )),
    *(f"{LAYER}self_attn.{name}" for name in ("k_scale", "v_scale", "kv_scale", "k_proj.output_scale")),
    "lm_head.weight_scale",
)  # fmt: skip


def write(folder: Path, change: Mapping[str, torch.Tensor] = {}, **config: Any) -> Path:  # noqa: B006 - only read
    """A checkpoint of a small model with these weights added or changed, and with these fields in its config."""
    tiny("llama", 0, layers=1).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    save_file(load_file(folder / "model.safetensors") | change, folder / "model.safetensors", {"format": "pt"})
    known = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | config))
    return folder


def projections(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {name: weight for name, weight in tiny("llama", 0, layers=1).state_dict().items() if "proj" in name}
    return {name: weight.to(dtype) for name, weight in found.items()}


def refusal(target: Path, draft: Any = None) -> str:
    with pytest.raises(specdec.LoadFailed) as refused:
        specdec.load_pair(target, draft)
    said = str(refused.value)
    assert said.endswith(".") and "\n" not in said and "Choose" in said or "choose" in said
    return said


def text(pair: specdec.Pair) -> tuple[int, ...]:
    return generated(pair.target, torch.tensor([5, 6, 7]), 8)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("good"))


# --- methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_transformers_knows_reads_its_scales_or_is_refused_by_name(method: str, tmp_path) -> None:
    """With scales of another method: the sentence names the method and what it needs, or the scales."""
    config: dict[str, Any] = {"quant_method": method, "bits": 4, "group_size": 32}
    if method.startswith("bitsandbytes_"):
        config = {"quant_method": "bitsandbytes", f"load_in_{method[-4:]}": True}
    packed = projections(torch.float8_e4m3fn)
    scales = {f"{name}_scale": torch.ones(()) for name in packed}
    said = refusal(write(tmp_path, packed | scales, quantization_config=config))
    assert f"is quantized by {method}" in said or "7 scale or packed weights" in said and "weight_scale" in said


@pytest.mark.parametrize("method", UNKNOWN)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float32], ids=str)
def test_an_unknown_method_is_refused_before_weights_are_read(method, dtype, good, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loading, "_read", lambda *args: pytest.fail("weights were read"))
    config = {"quant_method": method} if method else {"bits": 8}
    scale = {f"{PROJECTION}weight_scale": torch.ones(())}
    bad = write(tmp_path, projections(dtype) | scale, quantization_config=config)
    for names in ((bad, good), (good, bad), (bad, "early-exit:1")):
        assert f"is quantized by {method or 'a method that it does not name'}" in refusal(*names)


@pytest.mark.parametrize("algorithm", ["FP8", "NVFP4", "W4A16_AWQ"])
def test_modelopts_file_beside_the_config_names_a_method_too(algorithm: str, good, tmp_path) -> None:
    scale = {f"{PROJECTION}{name}": torch.ones(()) for name in ("weight_scale", "input_scale")}
    bad = write(tmp_path, projections(torch.float8_e4m3fn) | scale)
    file = bad / "hf_quant_config.json"
    file.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}))
    for names in ((bad, None), (good, bad)):
        assert f"modelopt ({algorithm} in hf_quant_config.json)" in refusal(*names)


@pytest.mark.parametrize("content", ['{"quantization": {"quant_algo": null}}', "{}", "[]", "{torn"])
def test_a_file_of_modelopt_that_names_no_method_changes_nothing(content: str, good, tmp_path) -> None:
    folder = write(tmp_path, {})
    (folder / "hf_quant_config.json").write_text(content)
    assert text(specdec.load_pair(folder)) == text(specdec.load_pair(good))


def test_a_missing_package_is_named(tmp_path) -> None:
    """What has to be installed stands in the sentence, before weights are fetched."""
    for method, package in (
        ("gptq", "optimum"),
        ("torchao", "torchao"),
        ("compressed-tensors", "compressed-tensors"),
    ):
        folder = write(tmp_path / method, quantization_config={"quant_method": method, "bits": 4})
        with pytest.raises(specdec.LoadFailed, match=f"quantized by {method}, .*{package}.* Provide what it needs"):
            loading.plan_pair(folder)


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_eight_bits_without_a_method_are_refused_before_weights_are_read(dtype, good, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loading, "_read", lambda *args: pytest.fail("weights were read"))
    name = f"{PROJECTION}weight"
    bad = write(tmp_path, {name: torch.zeros(projections(torch.float32)[name].shape).to(dtype)})
    for names in ((bad, good), (good, bad), (bad, "early-exit:1")):
        said = refusal(*names)
        assert f"holds 1 weight ({name}) in 8 bits or fewer" in said


@pytest.mark.parametrize("method", ["gguf", "mxfp4", "fp8"])
def test_eight_bits_without_any_scale_are_refused_whatever_the_method(method: str, tmp_path) -> None:
    bad = write(tmp_path, projections(torch.float8_e4m3fn), quantization_config={"quant_method": method})
    assert ") in 8 bits or fewer (F8_E4M3)" in refusal(bad)


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_that_nobody_reads_is_refused_by_name(name: str, good, tmp_path) -> None:
    bad = write(tmp_path, {name: torch.ones(3)})
    said = refusal(*((bad, None) if len(name) % 2 else (good, bad)))  # the target and the draft go the same way
    assert f"holds 1 scale or packed weight ({name})" in said or f"holds 1 weight ({name})" in said


def test_packed_weights_in_place_of_plain_ones_are_named_before_what_is_missing(tmp_path) -> None:
    folder = write(tmp_path)
    kept = {key: weight for key, weight in load_file(folder / "model.safetensors").items() if "up_proj" not in key}
    packed = {f"{PROJECTION}{name}": torch.ones(4, dtype=torch.int32) for name in ("qweight", "qzeros")}
    save_file(kept | packed, folder / "model.safetensors", {"format": "pt"})
    assert f"2 scale or packed weights ({PROJECTION}qweight and {PROJECTION}qzeros)" in refusal(folder)


@pytest.mark.parametrize(
    "name",
    [f"{PROJECTION}bias", f"{LAYER}self_attn.q_norm.weight", "model.layers.1.mlp.up_proj.weight", "score.weight"],
)
def test_a_weight_without_a_place_in_the_model_is_refused(name: str, good, tmp_path) -> None:
    """The configuration describes another model than the one that was trained."""
    bad = write(tmp_path, {name: torch.ones(3)})
    for names in ((bad, None), (good, bad)):
        assert f"holds 1 weight ({name}) that nothing here reads" in refusal(*names)


def test_weights_under_other_names_are_named_beside_what_is_missing(tmp_path) -> None:
    folder = write(tmp_path)
    renamed = {f"wrapped.{key}": weight for key, weight in load_file(folder / "model.safetensors").items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    said = refusal(folder)
    assert f"lacks {len(renamed)} of the weights" in said and "under other names" in said and "wrapped." in said


UNREAD_FOR_A_REASON = (
    "mtp.layers.0.mlp.up_proj.weight", "model.mtp_layers.0.eh_proj.weight", "model.layers.1.eh_proj.weight",
    f"{LAYER}self_attn.rotary_emb.inv_freq", "rotary_emb.cos_cached", f"{LAYER}attn.masked_bias", f"{LAYER}attn.bias",
    "model.position_ids", "model.visual.blocks.0.weight", "vision_tower.patch.weight", "audio_tower.conv.weight",
    "multi_modal_projector.linear.weight", "decoder.version", "model.pooler.dense.weight", "cls.seq_relationship.bias",
    "v_head.summary.weight",
)  # fmt: skip


def test_what_a_language_model_does_not_need_may_be_unread(good, tmp_path) -> None:
    """MTP layers, computed buffers and towers for other input: the text is that of the model without them."""
    extra = {name: torch.ones(3) for name in UNREAD_FOR_A_REASON}
    extra[f"{LAYER}attn.bias"] = torch.ones(1, 1, 4, 4, dtype=torch.uint8)
    folder = write(tmp_path, extra, num_nextn_predict_layers=1)
    assert text(specdec.load_pair(folder)) == text(specdec.load_pair(good))


def test_a_tied_output_matrix_may_stand_in_the_checkpoint(tmp_path) -> None:
    folder = write(tmp_path, tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    specdec.load_pair(folder)


# --- quantized weights that are read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scales", ["weight_scale_inv", "scale"])
def test_weights_in_eight_bits_are_read_by_their_method(scales: str, tmp_path) -> None:
    """FP8 with a scale for each block: the text is that of the weights that these numbers stand for."""
    plain, packed = {}, {}
    for name, weight in projections(torch.float32).items():
        rows, columns = weight.shape
        scale = torch.rand(rows // 8, columns // 8) * 0.5 + 0.1
        narrow = weight.to(torch.float8_e4m3fn)
        packed |= {name: narrow, name.removesuffix("weight") + scales: scale}
        plain[name] = narrow.float() * scale.repeat_interleave(8, 0).repeat_interleave(8, 1)
    config = {"quant_method": "fp8", "weight_block_size": [8, 8], "activation_scheme": "dynamic"}
    quantized = specdec.load_pair(write(tmp_path / "fp8", packed, quantization_config=config))
    assert text(quantized) == text(specdec.load_pair(write(tmp_path / "plain", plain)))


@pytest.mark.parametrize("bits", [8, 4])
def test_a_checkpoint_that_was_saved_in_fewer_bits_is_read(bits: int, good, tmp_path) -> None:
    packed = specdec.load_pair(good, bits=bits)
    packed.target.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    read, written = (pair.target.model.layers[0].mlp.up_proj.weight for pair in (specdec.load_pair(tmp_path), packed))
    assert torch.equal(read, written) and read.dtype == (torch.int8 if bits == 8 else torch.uint8)
