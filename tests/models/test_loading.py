"""Loading from a folder or the hub: what cannot work is refused in one sentence before weights are read."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from comparison import FULL
from fakes import byte_tokenizer, generated, noisy_copy, tiny
from hub import SHA, hub
from programs import ran
from transformers import (
    BertConfig,
    BertLMHeadModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    MambaConfig,
    MambaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import specdec
from specdec.models import checkpoint, loading
from specdec.models.pair_slot import Slot
from specdec.models.settings import LoadOptions

SMALL = {"vocab_size": 320, "num_layers": 1}


def write(folder: Path, model, **options) -> Path:
    model.save_pretrained(folder, **options)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """``me/good``, ``me/draft``, and one checkpoint for each possible fault."""
    root = tmp_path_factory.mktemp("models")
    write(root / "me/good", tiny("llama", 0))
    write(root / "me/draft", tiny("llama", 1, layers=1))
    write(root / "me/licensed", tiny("llama", 0))
    write(root / "me/t5", T5ForConditionalGeneration(T5Config(**SMALL, d_model=16, d_kv=4, d_ff=16, num_heads=2)))
    mamba = MambaConfig(vocab_size=320, hidden_size=16, num_hidden_layers=1, state_size=4)
    write(root / "me/mamba", MambaForCausalLM(mamba))
    pickled = write(root / "me/pickled", tiny("llama", 0))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    code = write(root / "me/code", tiny("llama", 0))
    config = json.loads((code / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (code / "config.json").write_text(json.dumps(config))
    (code / "own.py").write_text("raise SystemExit('code of the repository was run')")
    broken = write(root / "me/broken", tiny("llama", 0))
    data = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data[: len(data) // 2])
    (root / "me/empty").mkdir()
    small = {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    write(root / "me/bert", BertLMHeadModel(BertConfig(**small, intermediate_size=16)))
    masked = DistilBertConfig(vocab_size=320, dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    write(root / "me/masked", DistilBertForMaskedLM(masked))
    for name, change in (
        ("short", {"num_hidden_layers": 5}),
        ("packed", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
        ("odd", {"hidden_size": "48"}),
    ):
        folder = write(root / f"me/{name}", tiny("llama", 0))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | change))
    torn = write(root / "me/torn", tiny("llama", 0))
    (torn / "model.safetensors").rename(torn / "model-1.safetensors")
    (torn / "model.safetensors.index.json").write_text("{torn")
    return root


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_that_are_no_numbers_are_refused_by_name(dtype: str, value: float, shelf, tmp_path) -> None:
    bad = tiny("llama", 0)
    bad.model.layers[1].mlp.up_proj.weight.data[3, 5] = value
    bad, good = write(tmp_path, bad), shelf / "me/good"
    for names in ((bad, good), (good, bad)):
        with pytest.raises(specdec.LoadFailed, match=r"layers\.1\.mlp\.up_proj\.weight .* holds NaN or infinity"):
            specdec.load_pair(*names, dtype=dtype, draft_dtype=dtype)


def test_weights_that_a_narrow_number_type_makes_infinite_are_refused(tmp_path) -> None:
    """Weights that become infinite are refused; weights whose sum alone would overflow are not."""
    large = tiny("llama", 0)
    large.model.norm.weight.data[:] = 60_000.0
    folder = write(tmp_path, large)
    specdec.load_pair(folder, dtype="float16")
    large.model.norm.weight.data[3] = 1e6
    write(tmp_path, large)
    with pytest.raises(specdec.LoadFailed, match="norm.weight .* holds NaN or infinity in float16"):
        specdec.load_pair(folder, dtype="float16")


REFUSALS = {
    "me/pickled": "pytorch_model.bin only",
    "me/code": "code from its own repository",
    "me/t5": "encoder-decoder",
    "me/mamba": "recurrent state",
    "me/broken": "damaged",
    "me/empty": "config.json",
    "me/bert": "both directions",
    "me/masked": "not a causal language model",
    "me/short": "lacks 27 of the weights",
    "me/packed": "quantized by gptq, which cannot be read here",
    "me/odd": "could not be loaded",
    "me/torn": "damaged",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_folder_that_cannot_work_is_refused(name: str, shelf) -> None:
    """A folder that cannot work is refused as target and as draft, in one sentence that says what was found."""
    good, bad = str(shelf / "me/good"), str(shelf / name)
    for names in ((bad, good), (good, bad)):
        with pytest.raises((specdec.LoadFailed, specdec.IncompatiblePair)) as refusal:
            specdec.load_pair(*names)
        assert REFUSALS[name] in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["~nobody/here", "x" * 400, "a b", "me/../../x"])
def test_a_strange_name_is_no_model(name: str) -> None:
    with pytest.raises(specdec.LoadFailed):
        specdec.load_pair(name, name)


def test_a_way_to_draft_may_be_written_as_text(shelf) -> None:
    """It may be, with a target of one's own and with the embedded one. A draft that is a model needs its target."""
    for target in (shelf / "me/good", None):
        assert specdec.load_pair(target, "prompt-lookup:2-4").draft == specdec.PromptLookup(min_ngram=2, max_ngram=4)
        assert specdec.load_pair(target, "early-exit:1").draft == specdec.EarlyExit(1)
    assert specdec.load_pair("").name == "embedded"
    plain, both = specdec.load_pair(), specdec.load_pair("embedded", "embedded")
    assert both.name == "embedded" and both.describe() == plain.describe(), "it is called by its name too"
    assert specdec.load_pair("embedded", shelf / "me/draft").name is None, "the name is that of the pair as it ships"
    assert specdec.load_pair(shelf / "me/good", "embedded").draft.models[0].config.num_hidden_layers == 2
    named = specdec.load_pair(str(shelf / "me/good"), str(shelf / "me/draft")).draft
    assert named is not None and len(named.models) == 1
    for draft in (shelf / "me/draft", str(shelf / "me/draft"), named):
        with pytest.raises(specdec.InvalidInput, match="no target for it"):
            specdec.load_pair(draft=draft)
    with pytest.raises(specdec.InvalidInput, match="promptlookup"):
        specdec.load_pair(draft="promptlookup")


def test_a_path_is_a_folder_whatever_its_name(shelf, tmp_path, monkeypatch) -> None:
    (tmp_path / "suffix").symlink_to(shelf / "me/draft")
    monkeypatch.chdir(tmp_path)
    assert len(specdec.load_pair(shelf / "me/good", Path("suffix")).draft.models) == 1


@pytest.mark.parametrize("given", [3, True, ["a"], specdec.PromptLookup, tiny("llama", 0)], ids=repr)
def test_what_is_no_name_is_refused_as_what_it_is(given, shelf) -> None:
    for role, pair in (("target", (given, None)), ("draft", (shelf / "me/good", given))):
        with pytest.raises(specdec.InvalidInput, match=f"The {role} is .*; give a hub id or a folder") as refusal:
            specdec.load_pair(*pair)
        assert "\n" not in str(refusal.value)


def test_an_impossible_early_exit_is_refused_before_weights_are_read(shelf, monkeypatch) -> None:
    monkeypatch.setattr(loading, "_read", lambda *args: pytest.fail("weights were read"))
    with pytest.raises(specdec.IncompatiblePair, match="Early exit after 99 layers"):
        specdec.load_pair(shelf / "me/good", specdec.EarlyExit(99))


def test_too_little_memory_is_said_before_weights_are_read(shelf, monkeypatch) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda device: 1e5)
    monkeypatch.setattr(loading, "_read", lambda *args: pytest.fail("weights were read"))
    with pytest.raises(specdec.LoadFailed, match=r"need .* free"):
        specdec.load_pair(str(shelf / "me/good"), str(shelf / "me/draft"))


@pytest.mark.full
def test_models_that_a_user_compiled_write_the_same_text_through_their_own_forward() -> None:
    graphs: list = []
    target = tiny("llama", 3, layers=1)
    draft = noisy_copy(target, 1)
    plain = generated(target, torch.tensor([5, 6, 7]), 8)
    for model in (target, draft):
        model.compile(backend=lambda graph, inputs: graphs.append(graph) or graph.forward, dynamic=True)
    pair = specdec.Pair(target=target, draft=draft)
    assert all("compiled" in pair.describe()[role]["own_forward"] for role in ("target", "draft"))
    try:
        params = specdec.SamplingParams(max_new_tokens=8, ignore_eos=True)
        events = specdec.speculative(pair, torch.tensor([5, 6, 7]), gamma=2, params=params)
        assert tuple(specdec.collect(events).token_ids) == plain and len(graphs) > 1
    finally:
        torch.compiler.reset()


def test_assisted_generation_drafts_with_compiled_passes_too() -> None:
    """Assisted generation uses the draft's compiled passes, though its draft is a second object over the weights."""
    target = tiny("llama", 1)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, 2))
    passes = []
    compiled = pair.draft.model._call_impl
    pair.draft.model._compiled_call_impl = lambda *args, **kwargs: passes.append(1) or compiled(*args, **kwargs)
    params = specdec.SamplingParams(max_new_tokens=9, ignore_eos=True)
    events = specdec.collect(specdec.assisted(pair, torch.tensor([5, 6, 7]), gamma=3, params=params))
    assert len(events.token_ids) == 9 and len(passes) >= 3


def test_number_types_of_target_and_draft_may_differ(shelf) -> None:
    names = str(shelf / "me/good"), str(shelf / "me/draft")
    pair = specdec.load_pair(*names, draft_dtype="bfloat16")
    assert (pair.target.dtype, pair.draft.model.dtype) == (torch.float32, torch.bfloat16)
    texts = [
        specdec.collect(specdec.speculative(p, "Once", gamma=4, params=specdec.SamplingParams(max_new_tokens=12)))
        for p in (pair, specdec.load_pair(*names))
    ]
    assert texts[0].token_ids == texts[1].token_ids


@pytest.mark.parametrize("bits", [8, 4])
def test_a_target_in_fewer_bits_writes_what_its_own_generate_writes(bits: int) -> None:
    """In 8 bits the rows of one pass share the unquantized columns, so near-ties may differ between passes."""
    names = [str(loading.EMBEDDED / role) for role in ("target", "draft")]
    pair, params = specdec.load_pair(*names, bits=bits), specdec.SamplingParams(max_new_tokens=24)
    texts = [
        specdec.collect(lane(pair, "Once upon a time", params=params)).token_ids
        for lane in (specdec.generate, specdec.speculative, specdec.assisted)
    ]
    alike = {8: 1, 4: 24}[bits]
    assert [len(text) for text in texts] == [24] * 3 and len({tuple(text[:alike]) for text in texts}) == 1
    packed = type(pair.target.model.layers[0].mlp.up_proj).__name__
    assert packed == {8: "Linear8bitLt", 4: "Linear4bit"}[bits]
    whole, draft = loading.plan_pair(*names), pair.draft.model.get_memory_footprint()
    foreseen = loading.plan_pair(*names, LoadOptions(bits=bits, draft_weights="same")).weights
    assert foreseen < whole.weights
    assert pair.target.get_memory_footprint() + draft == pytest.approx(foreseen, rel=0.05)


def test_fewer_bits_need_their_package_and_are_eight_or_four(shelf, monkeypatch) -> None:
    names = str(shelf / "me/good"), str(shelf / "me/draft")
    with pytest.raises(specdec.InvalidInput, match="use 8 or 4"):
        specdec.load_pair(*names, bits=3)
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(specdec.LoadFailed, match="the package bitsandbytes"):
        specdec.load_pair(*names, bits=8)


IN_A_PROCESS = pytest.mark.xdist_group("hub")  # the process that others are forked from starts once

SCRIPT = """
import json, sys, specdec
for target, draft, revision in json.load(sys.stdin):
    seen = []
    try:
        pair = specdec.load_pair(target, draft, revision=revision, progress=lambda *step: seen.append(step))
        params = specdec.SamplingParams(max_new_tokens=8)
        ids = list(specdec.collect(specdec.speculative(pair, "Once", params=params)).token_ids)
        facts = pair.describe()["target"]
        print(json.dumps({"ids": ids, "name": facts["name"], "revision": facts["revision"], "progress": seen[-1:]}))
    except specdec.SpecdecError as error:
        print(json.dumps({"error": str(error)}))
"""


def load_from(address: str, home: Path, pairs: list[tuple], script: str = SCRIPT, **more: str) -> list[dict]:
    """The output of ``load_pair`` in a separate process, as the hub's address is read only once."""
    environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"} | more
    out = ran("-c", script, cwd=home.parent, env=environment, given=json.dumps(pairs))
    assert out.returncode == 0, out.stderr
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]


@IN_A_PROCESS
def test_hub(shelf, tmp_path) -> None:
    """A pair is downloaded with progress, faults are refused before weights, and loading again needs no network."""
    good = ("me/good", "me/draft", None)
    with hub(shelf, licensed=("me/licensed",)) as (address, asked):
        wrong = [(name, "me/draft", None) for name in (*REFUSALS, "me/unknown", "me/licensed", "no/such/name")]
        first, *refused = load_from(address, tmp_path, [good, *wrong])
    here = specdec.load_pair(str(shelf / "me/good"), str(shelf / "me/draft"))
    expected = specdec.collect(specdec.speculative(here, "Once", params=specdec.SamplingParams(max_new_tokens=8)))
    assert tuple(first["ids"]) == tuple(expected.token_ids)
    assert first["name"] == "me/good" and first["revision"] == SHA
    (what, done, total) = first["progress"][0]
    assert what == "me/draft" and 0 < done <= total
    words = [*REFUSALS.values(), "no model 'me/unknown'", "HF_TOKEN", "not a valid Hub id"]
    for answer, word in zip(refused, words, strict=True):
        assert word in answer["error"]
    weights = [path for path in asked if path.startswith("GET") and path.endswith((".bin", ".py"))]
    assert not weights, "what is refused is not fetched"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        again, missing = load_from(nowhere, tmp_path, [good, ("me/other", "me/draft", None)])
    assert again["ids"] == first["ids"]
    assert "network" in missing["error"]


STRANGERS = """
import json, sys, specdec
from specdec.models.loading import load, plan_pair
from specdec.models.settings import LoadOptions
for target, draft, token in json.load(sys.stdin):
    try:
        load(plan_pair(target, draft, LoadOptions(token=token)))
        print(json.dumps({"loaded": target}))
    except specdec.SpecdecError as error:
        print(json.dumps({"error": str(error)}))
"""


@IN_A_PROCESS
def test_a_strangers_choice_is_fetched_without_the_owners_token(shelf, tmp_path) -> None:
    """No request for a stranger's choice, from the first to the last byte, carries the owner's token."""
    (shelf / "me/sharded").exists() or write(shelf / "me/sharded", tiny("llama", 0), max_shard_size="50KB")
    pairs = [("me/good", "me/sharded", False), ("me/licensed", "me/draft", False), ("me/unknown", "me/draft", False)]
    for owners in (False, True):
        tokens: list[str | None] = []
        asked = [(target, draft, owners) for target, draft, _ in pairs]
        with hub(shelf, licensed=("me/licensed",), tokens=tokens) as (address, paths):
            loaded, licensed, unknown = load_from(
                address, tmp_path / str(owners), asked, STRANGERS, HF_TOKEN="hf_owner"
            )
        assert loaded == {"loaded": "me/good"}
        assert len([path for path in paths if path.endswith(".safetensors")]) > 2
        assert set(tokens) - {None} == ({"Bearer hf_owner"} if owners else set())
        assert ("HF_TOKEN" in licensed["error"]) == owners and ("HF_TOKEN" in unknown["error"]) == owners


@IN_A_PROCESS
def test_what_is_too_large_to_be_read_is_not_even_fetched(shelf, tmp_path) -> None:
    """A file that is read and too large is refused by its listed size, and nothing of its repository is downloaded.

    Files that are not read may be large and many, and they are not downloaded.
    """
    files = {"config.json": 1_000_001, "chat_template.jinja": 1_000_001, "tokenizer.json": 64_000_001}
    for file, size in files.items():
        folder = write(tmp_path / "hub/me" / file.split(".")[0], tiny("llama", 0))
        os.truncate(folder / file, size) if (folder / file).exists() else (folder / file).write_bytes(b" " * size)
    many = write(tmp_path / "hub/me/many", tiny("llama", 0))
    for number in range(5_001):
        (many / f"{number}.log").touch()
    for beside in ("train.txt", "trainer_state.json"):
        (many / beside).touch()
        os.truncate(many / beside, 80_000_000)
    names = [f"me/{file.split('.')[0]}" for file in files]
    with hub(tmp_path / "hub") as (address, asked):
        refused = load_from(address, tmp_path / "home", [(name, name, None) for name in names])
        assert not [path for path in asked if not path.startswith("GET /api")]
        (loaded,) = load_from(address, tmp_path / "home", [("me/many", "prompt-lookup", None)])
    for answer, said in zip(refused, files, strict=True):
        assert said in answer["error"]
    assert len(loaded["ids"]) == 8
    assert not [path for path in asked if path.endswith((".log", "train.txt", "trainer_state.json"))]


def test_another_pair_takes_the_place_of_the_first(shelf, monkeypatch) -> None:
    """A new pair loads beside the old one if both fit, else after it. A failure leaves the old one working."""

    def plan(target: str, draft: str) -> loading.PairPlan:
        return loading.plan_pair(str(shelf / target), str(shelf / draft))

    def text() -> list[int]:
        params = specdec.SamplingParams(max_new_tokens=8)
        return list(specdec.collect(specdec.speculative(slot.pair, "Once", params=params)).token_ids)

    slot = Slot(plan("me/good", "me/draft"))
    first = text()
    assert not slot.change(plan("me/draft", "me/draft")), "both fit"
    second = text()
    assert first != second
    monkeypatch.setattr("specdec.models.pair_slot.free_bytes", lambda device: 0)
    assert slot.change(plan("me/good", "me/draft"))
    assert text() == first

    def fail(part, *args):
        if part.checkpoint.name.endswith("licensed"):
            raise specdec.LoadFailed("no luck")
        return read(part, *args)

    read = loading._read
    monkeypatch.setattr(loading, "_read", fail)
    for free in (0, 1e12):
        monkeypatch.setattr("specdec.models.pair_slot.free_bytes", lambda device, free=free: free)
        with pytest.raises(specdec.LoadFailed, match="no luck"):
            slot.change(plan("me/licensed", "me/draft"))
        assert text() == first


@pytest.mark.parametrize("free", [0, 1e12])
def test_a_change_that_fails_leaves_the_old_pair_as_it_was(free: float, shelf, tmp_path, monkeypatch) -> None:
    """Again and again: a file is damaged between check and load, or the disk is full during the download."""
    monkeypatch.setattr("specdec.models.pair_slot.free_bytes", lambda device: free)

    def text() -> list[int]:
        params = specdec.SamplingParams(max_new_tokens=8)
        return list(specdec.collect(specdec.speculative(slot.pair, "Once", params=params)).token_ids)

    def no_room(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "snapshot_download", no_room)
    slot = Slot(loading.plan_pair(shelf / "me/good", shelf / "me/draft"))
    first, facts = text(), slot.facts
    for turn in range(10 if FULL else 3):
        folder = write(tmp_path / str(turn), tiny("llama", 3))
        plan = loading.plan_pair(folder, shelf / "me/draft")
        os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1 - 999 * turn)
        with pytest.raises(specdec.LoadFailed, match="damaged"):
            slot.change(plan)
        assert text() == first and slot.facts == facts
        far = replace(plan.target, checkpoint=replace(plan.target.checkpoint, missing_bytes=1))
        with pytest.raises(specdec.LoadFailed, match="The disk is full"):
            slot.change(replace(plan, target=far))
        assert text() == first and slot.facts == facts


def test_a_pair_that_failed_makes_room_for_the_old_one(shelf, monkeypatch) -> None:
    """A failed pair's draft is freed before the old pair is loaded again, though the error refers to it."""
    slot = Slot(loading.plan_pair(shelf / "me/good", shelf / "me/draft"))
    monkeypatch.setattr("specdec.models.pair_slot.free_bytes", lambda device: 0)
    read, models = loading._read, []

    def fail(part, *args):
        if part.checkpoint.name.endswith("licensed"):
            raise specdec.LoadFailed("no luck")
        gone = [model() is None for model in models]
        model = read(part, *args)
        models.append(weakref.ref(model))
        alive.append(gone.count(False))
        return model

    alive: list[int] = []
    monkeypatch.setattr(loading, "_read", fail)
    with pytest.raises(specdec.LoadFailed, match="no luck"):
        slot.change(loading.plan_pair(shelf / "me/licensed", shelf / "me/draft"))
    assert alive == [0, 0, 1]  # first the new draft; then, without it, the old draft and the old target


def test_a_pair_that_fits_nowhere_is_not_even_fetched(shelf, monkeypatch) -> None:
    slot = Slot(loading.plan_pair(shelf / "me/draft", shelf / "me/draft"))
    before = slot.pair
    monkeypatch.setattr("specdec.models.checkpoint.Checkpoint.fetch", lambda *args: pytest.fail("weights were fetched"))
    monkeypatch.setattr(loading, "free_bytes", lambda device: 0)
    with pytest.raises(specdec.LoadFailed, match="free"):
        slot.change(loading.plan_pair(shelf / "me/good", shelf / "me/good"))
    assert slot.pair is before


def test_a_lost_old_pair_is_reported(shelf, tmp_path, monkeypatch) -> None:
    """If the old pair is freed, the new one fails and the old files are gone, a sentence says so."""
    old = write(tmp_path / "old", tiny("llama", 0))
    slot = Slot(loading.plan_pair(old, old))
    monkeypatch.setattr("specdec.models.pair_slot.free_bytes", lambda device: 0)
    (old / "model.safetensors").unlink()
    with pytest.raises(specdec.LoadFailed, match="could not be loaded again either"):
        slot.change(loading.plan_pair(shelf / "me/short", shelf / "me/draft"))
    assert slot.facts["target"] and not slot.loaded
    with pytest.raises(specdec.LoadFailed, match="No pair is loaded"):
        slot.pair  # noqa: B018
    assert slot.change(loading.plan_pair(shelf / "me/good", shelf / "me/draft"))
    assert slot.loaded
