"""One model with its KV cache: feed ids behind what is cached, get logits; cut the cache back to a length."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.errors import IncompatiblePair
from specdec.passes.bare import bare_logits, is_bare
from specdec.passes.cache import first_layers_of, new_cache
from specdec.passes.clock import Mark, between, mark


class Runner:
    """Runs one model for one call. The cache belongs to the call; the model is shared and only read."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache | None = None):
        self.model = model
        self.device = device_of(model)
        self._cache = new_cache(model) if cache is None else cache
        self._length = 0
        self._keeps_logits = model._supports_logits_to_keep()
        self._takes_positions = "position_ids" in inspect.signature(type(model).forward).parameters
        self._bare = is_bare(model, self._cache)
        self._marks: list[tuple[Mark, Mark]] = []

    def __len__(self) -> int:
        """How many tokens are cached. Counted here: cache classes disagree on what they report."""
        return self._length

    def forward(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """Feed ``ids`` (n,) behind the cached tokens; return raw float32 logits (keep or n, V) of the last rows."""
        start = mark(self.device)
        logits = self._logits(ids, keep)
        self._marks.append((start, mark(self.device)))
        self._length += len(ids)
        return logits

    def crop_to(self, length: int) -> None:
        """Keep the first ``length`` tokens. Called each round, also when nothing is cut: see ``new_cache``."""
        self._cache.crop(min(0, length - self._length))
        self._length = min(self._length, length)

    def sharing(self, early: PreTrainedModel) -> Runner:
        """A runner of this model's first layers that shares their part of the cache; see ``follow``."""
        count = early.config.get_text_config(decoder=True).num_hidden_layers
        return Runner(early, first_layers_of(self._cache, count))

    def follow(self, length: int) -> None:
        """Take note that whoever shares this cache has left ``length`` tokens in it."""
        self._length = length

    def require_cache(self) -> None:
        """After a first pass: refuse a model that did not fill its cache, or whose cache cannot be rolled back."""
        name = type(self.model).__name__
        if self._cache.get_seq_length() != self._length:
            raise IncompatiblePair(f"{name} leaves its cache empty, so it cannot go on where it stopped; use another.")
        if not getattr(self._cache, "is_croppable", True):
            raise IncompatiblePair(
                f"{name} keeps recurrent state, which cannot be rolled back after a rejected draft. Use a model with "
                "attention or convolution layers only."
            )

    def take_seconds(self) -> float:
        """Seconds spent in ``forward`` since the last call of this method; the device must be idle."""
        seconds = sum(between(start, end) for start, end in self._marks)
        self._marks.clear()
        return seconds

    def _logits(self, ids: torch.Tensor, keep: int | None) -> torch.Tensor:
        if self._bare and self._length:
            return bare_logits(self.model, ids.to(self.device), self._cache, self._length, keep).float()
        kwargs: dict[str, Any] = {"logits_to_keep": keep} if keep and self._keeps_logits else {}
        if self._takes_positions:
            # ``generate`` counts from 0 as well. Left alone, RoBERTa and its kin count from their padding id on.
            kwargs["position_ids"] = torch.arange(self._length, self._length + len(ids), device=self.device)[None]
        out = self.model(input_ids=ids[None].to(self.device), past_key_values=self._cache, use_cache=True, **kwargs)
        return (out.logits[0, -keep:] if keep else out.logits[0]).float()


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
