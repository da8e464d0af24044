"""A fault of the device during a lane gives a sentence, frees its memory, and leaves the next call right."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable

import pytest
import torch
from comparison import FULL
from fakes import chain, noisy_copy, random_table, table_pair, tiny
from pairwise import each_once

import specdec
from specdec.errors import DeviceLost, NotNumbers, OutOfMemory
from specdec.forward.lean import LeanModel

PROMPT = torch.tensor([1, 2, 3])
PARAMS = specdec.SamplingParams(max_new_tokens=12, ignore_eos=True)
LANES = ("generate", "speculative", "assisted")


def ids(lane: str, pair: specdec.Pair) -> list[int]:
    events = [event for batch in specdec.driven(getattr(specdec, lane)(pair, PROMPT, params=PARAMS)) for event in batch]
    return specdec.collect(events).token_ids


def failing(own, error: Callable[[], Exception], at: int):
    """Wrap ``own`` so that call number ``at`` raises once. Also returns what that call held."""
    calls, held = [], []

    def forward(*args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            tensor = torch.zeros(1000)
            held.append(weakref.ref(tensor))
            raise error()
        return own(*args, **kwargs)

    return forward, held


NO_MEMORY = {
    "a GPU": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "a library of a GPU": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    "a CPU": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
    "Python": lambda: MemoryError(),
}


@each_once(where=tuple(NO_MEMORY), lane=LANES)
def test_after_too_little_memory_the_next_call_is_right(lane: str, where: str) -> None:
    """Memory runs out in each of four passes. The error is kept, but no tensor of the pass."""
    target = random_table(12, 2, seed=0, scale=2.0)
    pair = table_pair(target, target + random_table(12, 2, seed=1))
    own, right = pair.target.forward, ids(lane, pair)
    for at in range(1, 5):
        pair.target.forward, held = failing(own, NO_MEMORY[where], at)
        with pytest.raises(OutOfMemory, match="fewer new tokens") as raised:
            ids(lane, pair)
        assert [ref() for ref in held] == [None] and raised.value.__cause__ is None
        assert ids(lane, pair) == right
        del pair.target.forward


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_after_too_little_memory_the_buffers_of_an_engine_are_right_too(engine: str, monkeypatch) -> None:
    target = tiny("llama", 4)
    pair = specdec.Pair(target, noisy_copy(target, 4), engine=engine)
    own, right = LeanModel.forward, ids("speculative", pair)
    for at in range(1, 7) if FULL else (1, 2, 6):
        forward, held = failing(own, NO_MEMORY["a GPU"], at)
        monkeypatch.setattr(LeanModel, "forward", lambda *args, f=forward: f(*args))
        with pytest.raises(OutOfMemory):
            ids("speculative", pair)
        assert [ref() for ref in held] == [None]
        assert ids("speculative", pair) == right


LOST = {
    "an assertion": lambda: RuntimeError(
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be reported late"
    ),
    "an accelerator's": lambda: torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
}


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("lane", LANES)
def test_a_lost_device_is_said_in_a_sentence(lane: str, fault: str) -> None:
    pair = table_pair(chain([1, 2, 3, 4, 0]), chain([1, 2, 3, 4, 0]))
    pair.target.forward, _ = failing(pair.target.forward, LOST[fault], 2)
    with pytest.raises(DeviceLost, match=r"^The GPU reported .*\. Start the program again\.$"):
        ids(lane, pair)


def test_other_errors_are_not_changed() -> None:
    pair = table_pair(chain([1, 2, 3, 0]), None)
    for error in (RuntimeError("out of cheese"), specdec.LoadFailed("CUDA error: no"), KeyError("a")):
        pair.target.forward, _ = failing(type(pair.target).forward.__get__(pair.target), lambda error=error: error, 2)
        with pytest.raises(type(error)) as raised:
            ids("generate", pair)
        assert raised.value is error


@pytest.mark.parametrize("error", [NotNumbers("draft"), OutOfMemory(), DeviceLost("CUDA error: no")])
def test_device_errors_can_be_pickled(error: specdec.SpecdecError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and len(str(error)) > 80
