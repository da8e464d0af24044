"""What a GPU changes in a plan: number type and memory. ``torch.cuda`` is replaced by stand-ins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fakes import byte_tokenizer, prompt_of, tiny

import specdec
from specdec.forward.hf_cache import new_cache
from specdec.models import loading
from specdec.models.compatibility import refuse_untimed
from specdec.models.memory import PLANNED_TOKENS, WORKSPACE, cache_bytes
from specdec.models.pair_check import check_pair
from specdec.models.pair_slot import Slot
from specdec.models.settings import LoadOptions
from specdec.runtime.memory import free_bytes

GB = 10**9


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """A target and a draft."""
    root = tmp_path_factory.mktemp("pair")
    for name, layers in (("target", 2), ("draft", 1)):
        tiny("llama", layers=layers).save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    return root / "target", root / "draft"


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """GPUs of one kind: ``free`` bytes of each, ``kept`` by torch without use, their compute ``capability``."""
    state = SimpleNamespace(free=[8 * GB], kept=0, capability=(8, 0))

    def index_of(device: torch.device) -> int:
        return device.index or 0

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)  # torch counts emulation
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(state.free))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: state.capability)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (state.free[index_of(device)], 16 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 100 + state.kept)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    return state


def memory_sentence(plan: loading.PairPlan) -> str:
    (found,) = (finding for finding in check_pair(plan) if finding.topic == "Memory")
    return found.sentence


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((6, 1), "float16"), ((7, 5), "float16"), ((8, 0), "bfloat16"), ((8, 6), "bfloat16"), ((9, 0), "bfloat16")],
)
def test_half_precision_is_what_the_gpu_computes_in(folders, gpus, capability, dtype: str) -> None:
    """A T4 (7.5) only emulates bfloat16, which torch counts as support, so float16 is chosen.

    The check says which type.
    """
    gpus.capability = capability
    plan = loading.plan_pair(*folders)
    assert plan.device.type == "cuda"
    assert [str(part.dtype) for part in plan.parts] == [f"torch.{dtype}"] * 2
    assert dtype in memory_sentence(plan)


def test_the_embedded_pair_is_float32_everywhere(gpus) -> None:
    assert [part.dtype for part in loading.plan_pair().parts] == [torch.float32] * 2
    plan = loading.plan_pair(options=LoadOptions(dtype="float16"))
    assert [part.dtype for part in plan.parts] == [torch.float16, torch.float32]


def test_on_a_cpu_numbers_are_float32(folders) -> None:
    plan = loading.plan_pair(*folders, LoadOptions(device="cpu"))
    assert [part.dtype for part in plan.parts] == [torch.float32] * 2 and "float32" in memory_sentence(plan)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox", "gemma3", "phi3"])
def test_keys_and_values_are_planned_as_a_full_context_holds_them(family: str) -> None:
    """Keys and values are planned for a whole context below the cap. A window holds all of it until the next crop."""
    model = tiny(family, context=64)
    cache = new_cache(model)
    with torch.inference_mode():
        model(input_ids=prompt_of(64)[None], past_key_values=cache, use_cache=True)
    held = sum(states.nbytes for layer in cache.layers for states in (layer.keys, layer.values))
    assert cache_bytes(model.config, torch.float32) == 2 * cache_bytes(model.config, torch.float16) == held


def test_a_long_context_is_planned_up_to_a_cap() -> None:
    short, long, longer = (
        cache_bytes(tiny("llama", context=n).config, torch.float32) for n in (2048, PLANNED_TOKENS, 131_072)
    )
    assert 2 * short == long == longer


def test_memory_for_a_call_is_needed_besides_the_weights(folders, gpus) -> None:
    """A pair whose weights alone fit one GPU is spread over several, and refused if no memory is left for a call."""
    plan = loading.plan_pair(*folders)
    gpus.free = [int(plan.bytes)]
    assert not loading.must_spread(plan)
    gpus.free = [int(plan.bytes) - 1]
    assert plan.weights < gpus.free[0] and loading.must_spread(plan)


def test_what_is_needed_and_what_is_free_is_said(folders, gpus, monkeypatch) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda device: 0.2 * GB if device.type == "cuda" else 0.1 * GB)
    plan = loading.plan_pair(*folders)
    with pytest.raises(specdec.LoadFailed) as refusal:
        loading.must_spread(plan)
    for part in ("0.5 GB", "for weights", "keys and values", "logits", "CUDA", "0.2 GB on GPUs", "0.1 GB of main"):
        assert part in str(refusal.value)
    assert plan.bytes == plan.weights + plan.cache + plan.rows + WORKSPACE


def test_a_cpu_needs_no_workspace_of_cuda(folders) -> None:
    plan = loading.plan_pair(*folders, LoadOptions(device="cpu"))
    assert plan.bytes == plan.weights + plan.cache + plan.rows and "CUDA" not in plan.needs


def test_a_spread_target_leaves_room_for_calls_on_every_gpu(folders, gpus, monkeypatch) -> None:
    gpus.free = [10**6, 3 * GB, 0]
    plan = loading.plan_pair(*folders)
    rooms = []
    monkeypatch.setattr(loading, "_read", lambda part, device, room=None: rooms.append(room) or tiny("llama"))
    loading.load(plan)
    draft, target = rooms
    calls = plan.cache + plan.rows + WORKSPACE
    assert draft is None
    assert target == {0: 0, 1: 3 * GB - calls, 2: 0, "cpu": target["cpu"]} and target["cpu"] > GB


def test_memory_that_torch_keeps_and_does_not_use_is_free(gpus) -> None:
    gpus.kept = 5
    assert free_bytes(torch.device("cuda")) == 8 * GB + 5


def test_an_old_pair_gives_back_its_weights_and_no_more(folders, monkeypatch) -> None:
    """An old pair gives back only its weights, because keys and values are freed after each call."""
    old = loading.plan_pair(*folders, LoadOptions(device="cpu", dtype="bfloat16", draft_dtype="bfloat16"))
    plan = loading.plan_pair(*folders, LoadOptions(device="cpu"))
    slot = Slot(old)
    monkeypatch.setattr(loading, "free_bytes", lambda device: plan.weights - old.weights - 1)
    monkeypatch.setattr("specdec.models.checkpoint.Checkpoint.fetch", lambda *args: pytest.fail("weights were fetched"))
    with pytest.raises(specdec.LoadFailed, match="keys and values"):
        slot.change(plan)
    monkeypatch.setattr(loading, "free_bytes", lambda device: plan.weights - old.weights)
    assert not loading.must_spread(plan, regained=old.weights)


def test_a_cpu_that_holds_the_weights_is_not_refused(folders, monkeypatch) -> None:
    """A CPU that holds the weights is accepted, as short calls run there.

    The check says that a long one may not fit.
    """
    plan = loading.plan_pair(*folders, LoadOptions(device="cpu"))
    for module in ("loading", "pair_check"):
        monkeypatch.setattr(f"specdec.models.{module}.free_bytes", lambda device: plan.weights)
    assert not loading.must_spread(plan)
    (found,) = (finding for finding in check_pair(plan) if finding.topic == "Memory")
    assert found.level == "note" and "shorter" in found.sentence


def test_a_device_without_a_clock_is_refused(folders, monkeypatch) -> None:
    """Apple's GPU is refused, because its passes cannot be timed. On a Mac "auto" is the CPU."""
    with pytest.raises(specdec.SpecdecError, match="'mps' cannot be measured"):
        loading.plan_pair(*folders, LoadOptions(device="mps"))
    with pytest.raises(specdec.SpecdecError, match="'mps'"):
        refuse_untimed(torch.device("mps"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert loading.plan_pair(*folders).device.type == "cpu"


def test_a_pair_of_models_on_such_a_device_is_refused(monkeypatch) -> None:
    target = tiny("llama")
    monkeypatch.setattr(type(target), "device", property(lambda model: torch.device("mps")))
    with pytest.raises(specdec.IncompatiblePair, match="'mps'"):
        specdec.Pair(target)
