"""What stands beside a model or in its place, and how its name is written: it loads, or the cause is named."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import byte_tokenizer, tiny
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

import specdec
from specdec.models import checkpoint, opening
from specdec.models.loading import plan_pair
from specdec.models.names import Name, read_name
from specdec.models.opening import open_checkpoint


def write(folder: Path, model=None) -> Path:
    (model or tiny("llama", 0)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("good"))


@pytest.fixture
def copy(good, tmp_path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in good.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def sized(path: Path, count: int) -> None:
    path.touch()
    os.truncate(path, count)


def test_files_that_are_not_read_may_be_many_and_of_any_size(copy) -> None:
    sized(copy / "train.txt", 80_000_000)
    sized(copy / "trainer_state.json", 80_000_000)
    sized(copy / "notes.model", 80_000_000)
    for number in range(5_001):
        (copy / f"{number}.log").touch()
    (copy / "gone").symlink_to(copy / "nowhere")
    assert specdec.load_pair(copy).target.config.model_type == "llama"


def test_a_folder_with_endless_files_is_refused(copy, monkeypatch) -> None:
    monkeypatch.setattr(opening, "_MOST_NAMES", 4)
    with pytest.raises(specdec.LoadFailed, match="holds more than 4 files"):
        plan_pair(copy)


def test_every_file_that_a_tokenizer_reads_is_fetched() -> None:
    """The files of all tokenizer classes of transformers are among those that are fetched, and they are bounded."""
    files: set[str] = {"chat_template.jinja", "special_tokens_map.json", "added_tokens.json", "tokenizer_config.json"}
    for name in sorted(filter(None, set(TOKENIZER_MAPPING_NAMES.values()))):
        with contextlib.suppress(ImportError, AttributeError):  # classes that need further packages, or have no files
            files |= {file for file in tokenizer_class_from_name(name).vocab_files_names.values() if file}
    assert len(files) > 15 and [file for file in files if opening._most_bytes(file) is None] == []


VALUES: dict[str, object] = {
    "rope_theta": 1_000_000_000,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10**9},
    "seed": 2**40,
    "num_tokens_seen": 15 * 10**12,
    "total_params": 7 * 10**9,
    "model_max_length": 10**30,
}


@pytest.mark.parametrize("field", VALUES)
def test_a_large_number_that_is_no_size_is_taken(field: str, copy) -> None:
    config = json.loads((copy / "config.json").read_text())
    if field == "rope_theta":
        del config["rope_parameters"]
    (copy / "config.json").write_text(json.dumps(config | {field: VALUES[field]}))
    pair = specdec.load_pair(copy)
    if field.startswith("rope"):
        assert pair.target.config.rope_parameters["rope_theta"] == 1e9


SIZES = [
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "max_position_embeddings", "n_positions", "num_experts", "n_routed_experts", "kv_lora_rank", "n_embd", "d_model",
    "n_inner", "ffn_dim", "lru_width", "ssm_state_size", "conv_kernel", "num_codebooks",
]  # fmt: skip


@pytest.mark.parametrize("field", SIZES)
def test_a_size_that_no_model_has_is_refused(field: str, copy) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {field: 10**9}))
    with pytest.raises(specdec.LoadFailed, match=f"sets {field} to 1e\\+09"):
        open_checkpoint(str(copy)).raw_config()


def sentencepiece(folder: Path) -> None:
    """Leaves the tokenizer only as a SentencePiece file of four tokens."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    pieces = b"".join(
        bytes([0x0A, len(text) + 4 + 5, 0x0A, len(text)]) + text + bytes([0x15, 0, 0, 0, 0]) + bytes([0x18, kind])
        for text, kind in ((b"<unk>", 2), (b"<s>", 3), (b"</s>", 3), (b"a", 1))
    )
    trainer = bytes([0x12, 2, 0x18, 2])  # model_type BPE
    (folder / "tokenizer.model").write_bytes(pieces + trainer)


def test_a_tokenizer_of_sentencepiece_alone_is_read_or_names_its_packages(copy, monkeypatch) -> None:
    sentencepiece(copy)
    packages = {"sentencepiece": "sentencepiece", "protobuf": "google.protobuf"}
    if all(map(checkpoint._is_installed, packages.values())):
        assert plan_pair(copy).target.tokenizer.convert_tokens_to_ids(["<s>", "a"]) == [1, 3]
    else:
        monkeypatch.setattr(checkpoint, "_is_installed", lambda module: module == "sentencepiece")
        with pytest.raises(specdec.LoadFailed, match="pip install protobuf$"):
            plan_pair(copy)
        monkeypatch.setattr(checkpoint, "_is_installed", lambda module: False)
        with pytest.raises(specdec.LoadFailed, match="SentencePiece.*pip install sentencepiece protobuf$"):
            plan_pair(copy)


def test_a_tokenizer_of_tiktoken_is_not_taken_for_one_of_sentencepiece(copy) -> None:
    sentencepiece(copy)
    (copy / "tokenizer.model").write_text("YQ== 0\nYg== 1\n")
    if importlib.util.find_spec("tiktoken") is None:
        with pytest.raises(specdec.LoadFailed, match="tiktoken"):
            plan_pair(copy)


def renamed(*names: str) -> Callable[[Path], None]:
    """Puts files of these names in the place of the weights."""

    def change(folder: Path) -> None:
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").unlink()
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(weights)

    return change


def without_config(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def both(folder: Path) -> None:
        change(folder)
        (folder / "config.json").unlink()

    return both


def pointer(file: str) -> Callable[[Path], None]:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    return lambda folder: (folder / file).write_text(text)


def emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


FOUND: dict[str, tuple[Callable[[Path], object], str]] = {
    "Meta's layout": (renamed("consolidated.00.pth"), r"layout of their maker \(consolidated.00.pth\)"),
    "Mistral's layout": (
        without_config(renamed("consolidated-00001-of-00002.safetensors", "params.json", "tekken.json")),
        r"layout of their maker \(consolidated-00001-of-00002.safetensors\)",
    ),
    "a variant": (renamed("model.fp16.safetensors"), "only as a variant .*Rename a single file to model.safetensors"),
    "variants": (
        renamed("model.bf16-00001-of-00002.safetensors", "model.safetensors.index.bf16.json"),
        r"only as a variant \(model.bf16-00001-of-00002",
    ),
    "old variants": (renamed("model-00001-of-00002.fp16.safetensors"), "only as a variant"),
    "no index": (
        renamed("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        r"without model.safetensors.index.json, which names them\. Fetch that file",
    ),
    "another name": (renamed("weights.safetensors"), r"another name \(weights.safetensors\).*rename it"),
    "pickles": (renamed("pytorch_model.bin", "training_args.bin"), "pytorch_model.bin only.*can run code"),
    "an adapter": (
        without_config(renamed("adapter_model.safetensors", "adapter_config.json")),
        r"adapter for another model \(adapter_config.json\).*merge_and_unload",
    ),
    "diffusers": (without_config(renamed("model_index.json", "unet/x.safetensors")), "a diffusers pipeline"),
    "ONNX": (renamed("model.onnx"), r"for ONNX only \(model.onnx\)"),
    "ONNX in a folder": (renamed("onnx/model.onnx"), r"for ONNX only \(onnx\)"),
    "Flax": (renamed("flax_model.msgpack"), "for Flax only"),
    "TensorFlow": (renamed("tf_model.h5"), "for TensorFlow only"),
    "MLX": (renamed("weights.npz"), "for MLX or NumPy only"),
    "OpenVINO": (renamed("openvino_model.xml", "openvino_model.bin"), "for OpenVINO only"),
    "GGML": (renamed("ggml-model-q4_0.bin"), "for GGML, which came before GGUF only"),
    "a training run": (
        without_config(renamed("checkpoint-500/config.json", "checkpoint-1000/config.json", "training_args.bin")),
        "checkpoints of a training run. Give one of them, such as .*/checkpoint-1000",
    ),
    "a training run with its config": (renamed("checkpoint-7/config.json"), "such as .*/checkpoint-7"),
    "a model one folder deeper": (without_config(renamed("final/config.json")), "such as .*/final"),
    "DeepSpeed": (renamed("global_step500/x.pt"), "a DeepSpeed run .*zero_to_fp32.py"),
    "a pointer": (pointer("model.safetensors"), "pointer of git-lfs in place of model.safetensors. Run 'git lfs pull'"),
    "a pointer to the tokenizer": (pointer("tokenizer.json"), "pointer of git-lfs in place of tokenizer.json"),
    "no config": (without_config(lambda folder: None), "has no config.json"),
    "no weights": (renamed(), "holds no weights"),
    "nothing": (emptied, "is empty: it has no config.json and no weights"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_stands_in_the_place_of_weights_is_named(name: str, copy) -> None:
    change, said = FOUND[name]
    change(copy)
    with pytest.raises(specdec.LoadFailed, match=said) as refusal:
        plan_pair(copy)
    assert "\n" not in str(refusal.value) and "hides" not in str(refusal.value)


@pytest.mark.parametrize("place", ["Qwen/Qwen2.5-0.5B", "gpt2"])
def test_a_folder_that_hides_a_hub_model_says_so(place: str, tmp_path, monkeypatch) -> None:
    (tmp_path / place).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(specdec.LoadFailed, match="is empty.*hides the hub's model of that name.*rename the folder"):
        plan_pair(place)
    with pytest.raises(specdec.LoadFailed, match="is empty") as refusal:
        plan_pair(f"./{place}")
    assert "hides" not in str(refusal.value)


HUB = Name("Qwen/Qwen3-0.6B")
NAMES = {
    " Qwen/Qwen3-0.6B\n": HUB,
    "\u200b\u201cQwen/Qwen3-0.6B\u201d\xa0": HUB,
    "'Qwen/Qwen3-0.6B'": HUB,
    "Qwen/Qwen3-0.6B/": HUB,
    "https://huggingface.co/Qwen/Qwen3-0.6B": HUB,
    "http://www.huggingface.co/Qwen/Qwen3-0.6B/?library=vllm#top": HUB,
    "huggingface.co/Qwen/Qwen3-0.6B/tree/main": HUB,
    "https://hf.co/Qwen/Qwen3-0.6B/tree/v1": Name("Qwen/Qwen3-0.6B", "v1"),
    "https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json": HUB,
    "https://huggingface.co/Qwen/Qwen3-0.6B.git": HUB,
    "hf://Qwen/Qwen3-0.6B": HUB,
    "https://huggingface.co/gpt2": Name("gpt2"),
    "https://huggingface.co/gpt2/tree/refs%2Fpr%2F1": Name("gpt2", "refs/pr/1"),
    "Qwen/Qwen3-0.6B:q4.gguf": Name("Qwen/Qwen3-0.6B", gguf="q4.gguf"),
    "https://huggingface.co/a/b/resolve/main/q/q4.gguf?download=true": Name("a/b", gguf="q/q4.gguf"),
    "./x": Name("./x"),
}


@pytest.mark.parametrize("given", NAMES)
def test_a_pasted_name_is_read(given: str) -> None:
    assert read_name(given) == NAMES[given]


def test_a_folder_may_be_pasted_too(good, tmp_path, monkeypatch) -> None:
    """A folder may have spaces around it and quotes. One whose own name has them is found as it is."""
    for given in (f" {good}\n", f'"{good}"'):
        assert plan_pair(given, given).target.checkpoint.name == str(good)
    monkeypatch.chdir(tmp_path)
    (tmp_path / " odd ").symlink_to(good)
    assert plan_pair(" odd ").target.checkpoint.folder == Path(" odd ")


WRONG = {
    "./nosuch": "There is no folder './nosuch'. Check the path",
    "../nosuch/deeper": "There is no folder",
    "/nosuch": "There is no folder '/nosuch'",
    "~/nosuch": "There is no folder",
    "nosuch/": "There is no folder 'nosuch/'",
    "C:\\nosuch": "There is no folder",
    "no/such/name": "There is no folder 'no/such/name', and 'no/such/name' is not a valid Hub id",
    "two words": "not a valid Hub id",
    "a--b/c": "not a valid Hub id",
    "nosuch.gguf": "There is no file 'nosuch.gguf'",
    "https://github.com/a/b": "not the address of a model on huggingface.co",
    "https://huggingface.co/datasets/a/b": "not the page of a model",
    "https://huggingface.co/a/b/tree/main/sub": "is a folder of a/b",
}


@pytest.mark.parametrize("given", WRONG)
def test_a_name_that_is_nothing_says_what_it_was_taken_for(given: str, good) -> None:
    for pair in ((given, None), (str(good), given)):
        with pytest.raises(specdec.LoadFailed) as refusal:
            plan_pair(*pair)
        assert WRONG[given] in str(refusal.value) and "Repo id" not in str(refusal.value)


def test_a_file_is_no_folder(good) -> None:
    with pytest.raises(specdec.LoadFailed, match="is a file. Give the folder that holds it"):
        plan_pair(good / "model.safetensors")


def test_the_shorter_context_of_a_draft_is_named_as_the_drafts() -> None:
    target, draft = tiny("llama", 0, context=64), tiny("llama", 1, context=32)
    pair, params = specdec.Pair(target, draft, byte_tokenizer()), specdec.SamplingParams(max_new_tokens=40)
    with pytest.raises(specdec.InvalidInput, match="the draft's context holds 32.*or take another draft"):
        specdec.speculative(pair, "Once", params=params)
    pair = specdec.Pair(draft, target, byte_tokenizer())
    with pytest.raises(specdec.InvalidInput, match="the context holds 32. .*fewer new tokens.$"):
        specdec.speculative(pair, "Once", params=params)
