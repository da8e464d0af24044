"""The cost of a round, counted and not timed: passes, operators and new tensors of a fixed run."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from fakes import byte_tokenizer, noisy_copy, prompt_of, shared_tiny, tensors
from torch.utils._python_dispatch import TorchDispatchMode

import specdec
from specdec.forward.lean import LeanModel
from specdec.forward.runner import Runner

MOST_MADE = {0.0: 398, 1.0: 439}  # tensors of a round with four guesses, by temperature
VIEWS = {
    "alias", "as_strided", "detach", "expand", "select", "slice", "split", "squeeze", "t", "transpose", "unbind",
    "unsqueeze", "view", "_unsafe_view", "permute", "chunk", "narrow",
}  # fmt: skip


class Operators(TorchDispatchMode):
    """Counts the operators that compute something, and the tensors they make."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in VIEWS:
            self.counts[name] += 1
        found = func(*args, **(kwargs or {}))
        taken = {tensor.untyped_storage().data_ptr() for tensor in tensors(args, kwargs)}
        self.made += len({tensor.untyped_storage().data_ptr() for tensor in tensors(found)} - taken)
        return found


def operators(layers: int, count: int, own: bool = False) -> Counter[str]:
    """The operators of a pass over ``count`` tokens after 8 cached ones."""
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
def test_a_layer_takes_few_operators(count: int, torch_passes) -> None:
    """Four products with the sums that read ahead, two norms, the rotation, one copy into the slots, the attention."""
    layer = operators(3, count) - operators(2, count)
    own = operators(3, count, own=True) - operators(2, count, own=True)
    assert layer["linear"] == 4 and layer["copy_"] == 1
    assert layer.total() <= 32 < own.total(), (layer, own)


def test_every_round_runs_the_same_operators(monkeypatch: pytest.MonkeyPatch, torch_passes) -> None:
    """With any cache, a full round has one target pass, and a draft pass for each guess."""
    target = shared_tiny("llama", 1, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 1), byte_tokenizer())
    pair.describe()  # the comparison at load has passes of its own
    passes: list[tuple[int, int]] = []
    forward = LeanModel.forward

    def counted(self, ids, *given):
        with Operators() as seen:
            logits = forward(self, ids, *given)
        passes.append((len(ids), seen.counts.total()))
        return logits

    monkeypatch.setattr(LeanModel, "forward", counted)
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    rounds = [
        e for e in specdec.speculative(pair, prompt_of(5), gamma=4, params=params) if isinstance(e, specdec.Round)
    ]
    drafted = sum(len(event.draft) for event in rounds)
    assert len(passes) == len(rounds) + drafted + 1  # the draft reads the prompt in a pass of its own
    for rows in {count for count, _ in passes[2:]}:
        assert len({operators for count, operators in passes[2:] if count == rows}) == 1, rows


@pytest.mark.full
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_late_round_creates_as_many_tensors_as_an_early_one(temperature: float) -> None:
    """The compared rounds have equally many guesses, and equally many tokens that the draft had not read."""
    target = shared_tiny("llama", 1, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 1), byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=100, temperature=temperature, seed=1, ignore_eos=True)
    events, kinds = specdec.speculative(pair, prompt_of(5), gamma=4, params=params), {}
    while True:
        with Operators() as seen:
            event = next(events)
        if isinstance(event, specdec.Finished):
            break
        if isinstance(event, specdec.Round) and event.index > 1:
            kinds.setdefault((len(event.draft), len(event.missed)), []).append((seen.made, seen.counts.total()))
    assert max(len(rounds) for rounds in kinds.values()) > 5
    for rounds in kinds.values():
        assert len(set(rounds)) == 1
    # Five passes of 3 layers, the decision, and what the event tells.
    assert max(made for made, _ in kinds[4, 0]) <= MOST_MADE[temperature]
