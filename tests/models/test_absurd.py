"""Damaged or absurd checkpoints are refused in one sentence, quickly, and before anything is built."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fakes import byte_tokenizer, shared_tiny
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import save_file

import specdec
from specdec.models import checkpoint, sandbox
from specdec.models.bounds import require_sane
from specdec.models.loading import plan_pair
from specdec.models.pair_check import check_pair

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
SOON = 20.0  # seconds on a busy machine; without the bounds it would take hours or all memory


@pytest.fixture(scope="module")
def started() -> None:
    """Start the process for templates, which takes seconds, before anything is timed."""
    sandbox.render(templated("{{ messages[0].content }}"), [{"role": "user", "content": "a"}])


def templated(template: str):
    tokenizer = byte_tokenizer.__wrapped__()  # its own copy
    tokenizer.chat_template = template
    return tokenizer


def config(**fields) -> Callable[[Path], None]:
    """Changes fields of a config."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def text(file: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(content)


def size(file: str, count: int) -> Callable[[Path], None]:
    """Makes an empty file of this size."""

    def change(folder: Path) -> None:
        (folder / file).touch()
        os.truncate(folder / file, count)

    return change


def nested(depth: int) -> dict:
    found: dict = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def index(content: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(content)

    return change


ABSURD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a million layers": (config(num_hidden_layers=10**6), "sets num_hidden_layers to 1e\\+06"),
    "endless layers": (config(num_hidden_layers=10**30), "sets num_hidden_layers to 1e\\+30"),
    "more layers than weights": (config(num_hidden_layers=1000, hidden_size=4096), "its weights have"),
    "wide": (config(hidden_size=10**9), "sets hidden_size to 1e\\+09"),
    "wider than its weights": (config(hidden_size=10**7), "its weights have"),
    "no width": (config(hidden_size=0, head_dim=12), "sets hidden_size to 0"),
    "no heads": (config(num_attention_heads=0), "could not be loaded|sets num_attention_heads to 0"),
    "many words": (config(vocab_size=10**7), "its weights have"),
    "negative words": (config(vocab_size=-5), "sets vocab_size to -5"),
    "a window of one token": (config(sliding_window=1), "sets sliding_window to 1"),
    "a window that is a flag": (config(sliding_window=True), "sets sliding_window to True"),
    "a window with a fraction": (config(sliding_window=1.5), "could not be loaded|sets sliding_window to 1.5"),
    "many labels": (config(num_labels=10**7), "sets num_labels to 1e\\+07"),
    "nested": (config(rope_parameters=nested(40)), "nested too deeply"),
    "nested beyond reading": (text("config.json", "[" * 100_000), "nested too deeply"),
    "a long number": (text("config.json", '{"a": ' + "9" * 5000 + "}"), "damaged config.json"),
    "no text": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "damaged config.json"),
    "a list": (text("config.json", "[]"), "could not be loaded"),
    "odd architectures": (config(architectures=5), "could not be loaded"),
    "odd layers": (config(layer_types=["full_attention", "knitting"]), "could not be loaded"),
    "an index beyond reading": (index("[" * 100_000), "nested too deeply"),
    "an index of lists": (index('{"weight_map": {"a": ["b"]}}'), "damaged model.safetensors.index.json"),
    "an index that goes up": (index('{"weight_map": {"a": "../model.safetensors"}}'), "lacks ../model.safetensors"),
    "a large config": (size("config.json", 1_000_001), "holds config.json of 1 MB"),
    "a large template": (size("chat_template.jinja", 1_000_001), "holds chat_template.jinja of 1 MB"),
    "a large tokenizer": (size("tokenizer.json", 64_000_001), "holds tokenizer.json of 64 MB"),
    "a large index": (size("model.safetensors.index.json", 64_000_001), "index.json of 64 MB"),
    "a torn tokenizer": (text("tokenizer.json", "{"), "The tokenizer of .* could not be loaded"),
    "a deep tokenizer": (text("tokenizer.json", "[" * 100_000), "The tokenizer of .* could not be loaded|deeply"),
    "an endless template": (
        text("chat_template.jinja", ENDLESS),
        "chat template of .* (more than 1 seconds|too much memory)",
    ),
    "a huge template": (
        text("chat_template.jinja", "{{ 'a' * 10**11 }}"),
        "chat template of .* (more than 1 seconds|too much memory)",
    ),
    "an adapter": (text("adapter_config.json", "{}"), "holds an adapter"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    shared_tiny("llama", 0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def copied(sound: Path, folder: Path) -> Path:
    for file in sound.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_checkpoint_is_refused_soon(name: str, sound, started, tmp_path, monkeypatch) -> None:
    """Each absurd checkpoint is refused quickly, as a target and as a draft."""
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    change, said = ABSURD[name]
    absurd = copied(sound, tmp_path)
    change(absurd)
    for pair in ((absurd, sound), (sound, absurd)):
        began = time.monotonic()
        with pytest.raises(specdec.LoadFailed, match=said) as refusal:
            check_pair(plan_pair(*pair))
        assert time.monotonic() - began < SOON
        assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 700


def test_an_endless_tokenizer_is_ended(sound, started, tmp_path, monkeypatch) -> None:
    """A tokenizer is ended whose regular expression tries every way to split a row of letters."""
    absurd = copied(sound, tmp_path)
    state = json.loads((absurd / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a|aa|a?)+$(?<=b)"}, "behavior": "Isolated", "invert": False}
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, state["pre_tokenizer"]]}
    (absurd / "tokenizer.json").write_text(json.dumps(state))
    monkeypatch.setattr(checkpoint, "TRYING", 1.0)
    with pytest.raises(specdec.LoadFailed, match="The tokenizer of .* (more than 1 seconds|too much memory)"):
        plan_pair(absurd, sound)


def test_a_template_that_refuses_a_greeting_is_no_reason_to_refuse_the_model(sound, tmp_path) -> None:
    (copied(sound, tmp_path) / "chat_template.jinja").write_text("{{ raise_exception('a system message is needed') }}")
    pair = specdec.load_pair(tmp_path, sound)
    with pytest.raises(specdec.InvalidInput, match="refuses these messages: a system message is needed"):
        pair.encode([{"role": "user", "content": "Hello"}])


def test_an_endless_chat_template_is_ended_and_the_next_one_works(started, monkeypatch) -> None:
    """A chat template that hangs is ended, and the next one gives the same text as transformers."""
    tokenizer = templated("{% if messages|length > 1 %}" + ENDLESS + "{% endif %}<s>{{ messages[0].content }}</s>")
    pair = specdec.Pair(shared_tiny("llama", 0), tokenizer=tokenizer)
    message = {"role": "user", "content": "naïve 🙂"}
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    for _ in range(2):
        with pytest.raises(specdec.InvalidInput, match="(more than 1 seconds|too much memory)"):
            pair.encode([message] * 2)
        found = pair.encode([message])[0].tolist()
        assert found == tokenizer.apply_chat_template([message], add_generation_prompt=True)["input_ids"]


def test_the_process_for_templates_knows_no_token(started, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_owner")
    process = sandbox._started()
    process.stdin.write('{"kind": "start"}\n')
    process.stdin.flush()
    process.stdout.readline()  # wait until the new program runs: its environment was empty before
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    process.communicate()
    assert b"HF_HUB_OFFLINE" in environment and b"hf_owner" not in environment


def test_weights_in_a_file_of_another_shape_are_refused(sound, tmp_path) -> None:
    absurd = copied(sound, tmp_path)
    save_file({"x": torch.zeros(3)}, absurd / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(specdec.LoadFailed, match="its weights have 3"):
        plan_pair(absurd, sound)


def test_real_configs_are_sane() -> None:
    """No default of a transformers class and no shape of ours is outside the bounds."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    kinds = {kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING if kind in CONFIG_MAPPING.values()}
    for kind in kinds:
        with contextlib.suppress(ValueError, TypeError, StrictDataclassError):  # a few have no complete defaults
            defaults = kind().to_json_string(use_diff=False)
            require_sane(kind.__name__, json.loads(defaults))
