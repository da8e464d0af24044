"""GGUF files: they write the text of the model they were made from, and what would be read wrongly is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from fakes import byte_tokenizer, tiny
from hub import hub
from test_loading import IN_A_PROCESS, load_from
from transformers import AutoModelForCausalLM, Qwen3Config

import specdec
from specdec.models import gguf_file
from specdec.models.loading import plan_pair
from specdec.models.pair_check import check_pair
from specdec.models.pair_slot import Slot
from specdec.models.settings import LoadOptions

gguf = pytest.importorskip("gguf")
from gguf_files import write_gguf  # noqa: E402

PARAMS = specdec.SamplingParams(max_new_tokens=24, ignore_eos=True)


def qwen():
    config = Qwen3Config(
        vocab_size=320, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=256, rope_theta=1e6, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """One file with a Llama model in ``one``, two in ``two``, and the folders they were made from."""
    root = tmp_path_factory.mktemp("gguf")
    for name, model in (("llama", tiny("llama", 0)), ("draft", tiny("llama", 1, layers=1)), ("qwen3", qwen())):
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    (root / "one").mkdir()
    write_gguf(root / "one" / "tiny.gguf", tiny("llama", 0), byte_tokenizer())
    (root / "one" / "mmproj-tiny.gguf").write_bytes(b"of pictures")
    (root / "two").mkdir()
    write_gguf(root / "two" / "a.gguf", tiny("llama", 1, layers=1), byte_tokenizer())
    write_gguf(root / "two" / "b.gguf", qwen(), byte_tokenizer())
    return root


def text(pair: specdec.Pair, gamma: int = 4, prompt: str = "Once upon  a time\n\tnaïve 🙂") -> tuple[int, ...]:
    return specdec.collect(specdec.speculative(pair, prompt, gamma=gamma, params=PARAMS)).token_ids


@pytest.mark.parametrize(
    ("made", "source"), [("one/tiny.gguf", "llama"), ("one", "llama"), ("two/a.gguf", "draft"), ("two/b.gguf", "qwen3")]
)
def test_a_file_in_float32_writes_the_text_of_its_model(made: str, source: str, shelf) -> None:
    """Weights, prompt ids and greedy text are the model's own, with drafts of both kinds."""
    own = specdec.load_pair(shelf / source, "prompt-lookup")
    for draft in ("prompt-lookup", str(shelf / "two/a.gguf"), str(shelf / "draft")):
        pair = specdec.load_pair(str(shelf / made), draft)
        assert text(pair) == text(own) == text(pair, gamma=0)
    theirs, ours = own.target.state_dict(), pair.target.state_dict()
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_a_quantised_file_is_unpacked_and_says_so(shelf, tmp_path) -> None:
    path = write_gguf(tmp_path / "q8.gguf", qwen(), byte_tokenizer(), quantised="Q8_0")
    plan = plan_pair(path, shelf / "draft")
    assert plan.target.parameters == plan_pair(shelf / "qwen3").target.parameters
    findings = {finding.topic: finding.sentence for finding in check_pair(plan)}
    assert "Q8_0" in findings["GGUF"] and "float32" in findings["GGUF"]
    pair = specdec.load_pair(path, shelf / "one")
    kind = gguf.GGMLQuantizationType.Q8_0
    unpacked = gguf.dequantize(gguf.quantize(qwen().model.layers[0].mlp.up_proj.weight.detach().numpy(), kind), kind)
    assert torch.equal(pair.target.model.layers[0].mlp.up_proj.weight, torch.from_numpy(unpacked))
    assert len(text(pair)) == 24


def test_a_file_in_the_working_directory_is_not_taken_for_another(shelf, tmp_path, monkeypatch) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny("llama", 5), byte_tokenizer())
    monkeypatch.chdir(tmp_path)
    assert text(specdec.load_pair(shelf / "one/tiny.gguf"), 0) == text(specdec.load_pair(shelf / "llama"), 0)
    monkeypatch.chdir(shelf)
    assert specdec.load_pair("one:tiny.gguf").target.config.name_or_path == "one/tiny.gguf"


def test_a_file_goes_the_way_of_all_targets(shelf) -> None:
    """It changes places with another pair, its facts name the file, and memory is planned for its weights."""
    slot = Slot(plan_pair(shelf / "llama"))
    slot.change(plan_pair(shelf / "one/tiny.gguf", shelf / "two/a.gguf"))
    assert (slot.facts["target"]["name"], slot.facts["target"]["local"]) == ("tiny.gguf", True)
    assert slot.facts["draft"]["name"] == "a.gguf"
    with pytest.raises(specdec.InvalidInput, match="cannot be packed again"):
        plan_pair(shelf / "one", options=LoadOptions(bits=8))


def test_safetensors_come_first(shelf, tmp_path) -> None:
    for file in (shelf / "llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "x.gguf").write_bytes(b"nothing")
    assert plan_pair(tmp_path).target.checkpoint.gguf is None


def test_all_end_tokens_of_a_file_end_a_text(tmp_path) -> None:
    more = {"tokenizer.ggml.eot_token_id": 7}
    path = write_gguf(tmp_path / "x.gguf", tiny("llama", 0), byte_tokenizer(), more=more)
    assert specdec.load_pair(path).eos_ids == {1, 7}


WRONG: dict[str, tuple[dict, str]] = {
    "rope scaling": ({"more": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}}, "to yarn"),
    "a scale": ({"more": {"llama.attention.scale": 0.3}}, "attention.scale to 0.3.*does not read"),
    "a window": ({"more": {"llama.attention.sliding_window": 16}}, "sliding_window to 16, and transformers takes noth"),
    "half the rotation": ({"more": {"llama.rope.dimension_count": 4}}, "attn_q.weight with the shape"),
    "a capped logit": ({"more": {"llama.final_logit_softcapping": 30.0}}, "final_logit_softcapping to 30"),
    "parts": ({"more": {"split.count": 3}}, "one of 3 parts.*llama-gguf-split --merge"),
    "another split": ({"pre": "smollm"}, "splits text in the way 'smollm'"),
    "many layers": ({"more": {"llama.leading_block_count": 10**6}}, "leading_block_count to 1e\\+06"),
    "wide": ({"more": {"llama.odd_dim": 10**9}}, "odd_dim to 1e\\+09"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_transformers_would_not_read_is_refused(name: str, tmp_path) -> None:
    options, said = WRONG[name]
    path = write_gguf(tmp_path / "x.gguf", tiny("llama", 0), byte_tokenizer(), **options)
    with pytest.raises(specdec.LoadFailed, match=said) as refusal:
        plan_pair(path)
    assert "\n" not in str(refusal.value)


def writer(path: Path, architecture: str, tensors: dict, numbers: dict | None = None) -> Path:
    file = gguf.GGUFWriter(path, architecture)
    file.add_block_count(1)
    for key, value in (numbers or {}).items():
        file.add_float32(f"{architecture}.{key}", value)
    for name, (values, kind) in tensors.items():
        file.add_tensor(name, values, raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def test_what_cannot_be_read_is_refused_with_its_reason(shelf, tmp_path, monkeypatch) -> None:
    import numpy as np

    values = np.zeros((2, 32), np.float32)
    for architecture in ("clip", "rwkv6", "command-r"):
        path = writer(tmp_path / "x.gguf", architecture, {"a.weight": (values, None)})
        with pytest.raises(specdec.LoadFailed, match=f"of the architecture '{architecture}'.*does not read"):
            plan_pair(path)
    path = writer(tmp_path / "x.gguf", "llama", {"a.weight": (np.zeros((2, 32), np.int8), None)})
    with pytest.raises(specdec.LoadFailed, match="holds a.weight in the type I8, which transformers cannot unpack"):
        plan_pair(path)
    whole = (shelf / "one/tiny.gguf").read_bytes()
    for content, said in (
        (whole[:-2000], "ends within its tensor"),
        (whole[:500], "is damaged"),
        (b"GGUF" + whole[4:8] + b"\xff" * 500, "is damaged"),
        (b"PK" * 100, "could not be loaded.*GGUF"),
        (b"", "could not be loaded"),
        (b"version https://git-lfs.github.com/spec/v1\n", "pointer of git-lfs"),
    ):
        path.write_bytes(content)
        with pytest.raises(specdec.LoadFailed, match=said) as refusal:
            plan_pair(path)
        assert "\n" not in str(refusal.value)
    with pytest.raises(
        specdec.LoadFailed, match=r"holds 2 GGUF files \(a.gguf, b.gguf\). Name one of them: .*two/a.gguf"
    ):
        plan_pair(shelf / "two")
    with pytest.raises(specdec.LoadFailed, match="There is no file '.*one/other.gguf'"):
        plan_pair(f"{shelf}/one:other.gguf")
    monkeypatch.setattr(gguf_file.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(specdec.LoadFailed, match="needs the package gguf: pip install gguf$"):
        plan_pair(shelf / "one")


def test_a_key_that_transformers_replaces_by_a_default_is_refused(tmp_path) -> None:
    """transformers takes the base of Starcoder2's rotary angles from the class, whatever the file says."""
    path = writer(tmp_path / "x.gguf", "starcoder2", {}, {"rope.freq_base": 999_999.0})
    with pytest.raises(specdec.LoadFailed, match="rope.freq_base to 999999.0, and transformers takes 10000.0 there"):
        plan_pair(path)


def test_a_tensor_that_transformers_leaves_out_is_refused(shelf, tmp_path) -> None:
    """Llama 3.1 and later keep the scaling of their rotary angles as a tensor, which transformers does not read."""
    model = tiny("llama", 0)
    model.rope_freqs = torch.nn.Linear(8, 1, bias=False)
    path = write_gguf(tmp_path / "x.gguf", model, byte_tokenizer())
    with pytest.raises(specdec.LoadFailed, match="holds the tensor rope_freqs.weight, which transformers leaves out"):
        plan_pair(path)


HUB = """
import json, sys, specdec
from specdec.models.loading import load, plan_pair
from specdec.models.settings import LoadOptions
for target, draft, revision in json.load(sys.stdin):
    try:
        plan = plan_pair(target, draft, LoadOptions(revision=revision))
        print(json.dumps({"planned": plan.target.parameters, "missing": plan.target.checkpoint.missing_bytes}))
        params = specdec.SamplingParams(max_new_tokens=24, ignore_eos=True)
        pair = load(plan)
        ids = list(specdec.collect(specdec.speculative(pair, "Once", params=params)).token_ids)
        print(json.dumps({"ids": ids, "name": pair.describe()["target"]["name"]}))
    except specdec.SpecdecError as error:
        print(json.dumps({"error": str(error)}))
"""


@pytest.mark.full
@IN_A_PROCESS
def test_a_file_on_the_hub_is_planned_by_its_beginning_and_fetched_alone(shelf, tmp_path) -> None:
    names = ["me/one", "me/one:tiny.gguf", "me/two:a.gguf", "me/two", "me/two:c.gguf"]
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/me").symlink_to(shelf)
    with hub(tmp_path / "hub") as (address, asked):
        found = load_from(address, tmp_path / "home", [(name, "prompt-lookup", None) for name in names], HUB)
    assert [line.get("error") for line in found[:-2]] == [None] * 6
    plan, first, again, second, other, third, several, absent = found
    size = os.path.getsize(shelf / "one/tiny.gguf")
    assert (plan["missing"], again["missing"], other["missing"]) == (size, 0, os.path.getsize(shelf / "two/a.gguf"))
    assert first["ids"] == second["ids"] == list(text(specdec.load_pair(shelf / "llama", "prompt-lookup"), 5, "Once"))
    assert third["ids"] == list(text(specdec.load_pair(shelf / "draft", "prompt-lookup"), 5, "Once"))
    assert first["name"] == "me/one:tiny.gguf"
    assert "holds 2 GGUF files (a.gguf, b.gguf). Name one of them: me/two:a.gguf" in several["error"]
    assert "has no file 'c.gguf'" in absent["error"]
    assert not [path for path in asked if "b.gguf" in path or "mmproj" in path]
