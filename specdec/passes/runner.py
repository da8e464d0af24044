"""One model with its KV cache: feed ids behind what is cached, get logits; cut the cache back to a length."""

from __future__ import annotations

from typing import Protocol

import torch
from transformers import PreTrainedModel

from specdec.errors import IncompatiblePair
from specdec.passes.clock import Mark, between, mark
from specdec.passes.lean import stack_of
from specdec.passes.own import OwnPasses
from specdec.passes.stacks import StackPasses


class Passes(Protocol):
    """A model's passes with their cache: by the lean forward, or by the model's own."""

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        """Feed ``ids`` (n,) behind ``start`` cached tokens; logits (keep or n, V) of the last rows."""

    def forget(self, count: int) -> None:
        """Drop the last ``count`` tokens. Called each round, also with 0."""

    def first_layers(self, early: PreTrainedModel, count: int) -> Passes:
        """The passes of ``early``, which are the first ``count`` layers, in the same cache."""

    def require_cache(self, length: int) -> None:
        """After a first pass over ``length`` tokens: refuse a cache that cannot be rolled back."""


class Runner:
    """Runs one model for one call. The cache belongs to the call; the model is shared and only read."""

    def __init__(self, model: PreTrainedModel, passes: Passes | None = None):
        self.model = model
        self.device = device_of(model)
        self._passes = passes or passes_of(model)
        self._length = 0
        self._marks: list[tuple[Mark, Mark]] = []

    def __len__(self) -> int:
        """How many tokens are cached. Counted here: cache classes disagree on what they report."""
        return self._length

    def forward(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """Feed ``ids`` (n,) behind the cached tokens; return raw float32 logits (keep or n, V) of the last rows."""
        start = mark(self.device)
        logits = self._passes.logits(ids.to(self.device), self._length, keep).float()
        self._marks.append((start, mark(self.device)))
        self._length += len(ids)
        return logits

    def crop_to(self, length: int) -> None:
        """Keep the first ``length`` tokens. Called each round, also when nothing is cut: see ``new_cache``."""
        self._passes.forget(max(0, self._length - length))
        self._length = min(self._length, length)

    def sharing(self, early: PreTrainedModel) -> Runner:
        """A runner of this model's first layers that shares their part of the cache; see ``follow``."""
        count = early.config.get_text_config(decoder=True).num_hidden_layers
        return Runner(early, self._passes.first_layers(early, count))

    def follow(self, length: int) -> None:
        """Take note that whoever shares this cache has left ``length`` tokens in it."""
        self._length = length

    def require_cache(self) -> None:
        """After a first pass: refuse a model that did not fill its cache, or whose cache cannot be rolled back."""
        self._passes.require_cache(self._length)

    def take_seconds(self) -> float:
        """Seconds spent in ``forward`` since the last call of this method; the device must be idle."""
        seconds = sum(between(start, end) for start, end in self._marks)
        self._marks.clear()
        return seconds


def passes_of(model: PreTrainedModel) -> Passes:
    """Passes by the lean forward where the model has one whose logits agree, else by the model's own."""
    stack = stack_of(model)
    return OwnPasses(model) if isinstance(stack, str) else StackPasses(stack)


def device_of(model: PreTrainedModel) -> torch.device:
    """Where a model takes its ids. Weights that accelerate keeps elsewhere until they are needed are on "meta", and
    then its hooks know."""
    if model.device.type != "meta":
        return model.device
    for module in model.modules():
        device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    raise IncompatiblePair(f"{type(model).__name__} has its weights on no device; load them first.")
