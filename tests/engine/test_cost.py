"""What a round costs, counted and not timed: passes, operators and new tensors of a fixed run."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from fakes import byte_tokenizer, noisy_copy, prompt_of, shared_tiny
from torch.utils._python_dispatch import TorchDispatchMode

import specdec
from specdec.passes.runner import Runner
from specdec.passes.stacks import Stack

VIEWS = {
    "alias", "as_strided", "detach", "expand", "select", "slice", "split", "squeeze", "t", "transpose", "unbind",
    "unsqueeze", "view", "_unsafe_view", "permute", "chunk", "narrow",
}  # fmt: skip


class Operators(TorchDispatchMode):
    """Counts the operators that compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def operators(layers: int, count: int, own: bool = False) -> Counter[str]:
    """Those of a pass over ``count`` tokens behind 8 cached ones."""
    model, ids = shared_tiny("llama", 0, layers=layers), prompt_of(8 + count)
    with torch.inference_mode():
        if own:
            cache = model(input_ids=ids[None, :8]).past_key_values
            with Operators() as seen:
                model(input_ids=ids[None, 8:], past_key_values=cache)
        else:
            runner = Runner(model)
            runner.forward(ids[:8])
            with Operators() as seen:
                runner.forward(ids[8:])
    return seen.counts


@pytest.mark.parametrize("count", [1, 6])
def test_a_layer_takes_few_operators(count: int) -> None:
    """Four products with the sums that read ahead, two norms, the rotation, one copy into the slots, the attention."""
    layer = operators(3, count) - operators(2, count)
    own = operators(3, count, own=True) - operators(2, count, own=True)
    assert layer["linear"] == 4 and layer["copy_"] == 1
    assert layer.total() <= 32 < own.total(), (layer, own)


def test_every_round_runs_the_same_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cache holds, a full round is one target pass and as many draft passes as it has guesses."""
    target = shared_tiny("llama", 1, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 1), byte_tokenizer())
    pair.describe()  # the comparison at load has passes of its own
    passes: list[tuple[int, int]] = []
    forward = Stack.forward

    def counted(self, ids, slots, start, keep):
        with Operators() as seen:
            logits = forward(self, ids, slots, start, keep)
        passes.append((len(ids), seen.counts.total()))
        return logits

    monkeypatch.setattr(Stack, "forward", counted)
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    rounds = [
        e for e in specdec.speculative(pair, prompt_of(5), gamma=4, params=params) if isinstance(e, specdec.Round)
    ]
    drafted = sum(len(event.draft) for event in rounds)
    assert len(passes) == len(rounds) + drafted + 1  # the draft reads the prompt in a pass of its own
    for rows in {count for count, _ in passes[2:]}:
        assert len({operators for count, operators in passes[2:] if count == rows}) == 1, rows
