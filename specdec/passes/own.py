"""Passes by a model's own ``forward``, for all models that have no lean one."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.errors import IncompatiblePair
from specdec.passes.cache import first_layers_of, new_cache


class OwnPasses:
    """``forward`` over transformers' ``DynamicCache``; see ``Passes``."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache | None = None):
        self._model = model
        self._cache = new_cache(model) if cache is None else cache
        self._keeps_logits = model._supports_logits_to_keep()
        self._takes_positions = "position_ids" in inspect.signature(type(model).forward).parameters

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        kwargs: dict[str, Any] = {"logits_to_keep": keep} if keep and self._keeps_logits else {}
        if self._takes_positions:
            # ``generate`` counts from 0 as well. Left alone, RoBERTa and its kin count from their padding id on.
            kwargs["position_ids"] = torch.arange(start, start + len(ids), device=ids.device)[None]
        out = self._model(input_ids=ids[None], past_key_values=self._cache, use_cache=True, **kwargs)
        return out.logits[0, -keep:] if keep else out.logits[0]

    def forget(self, count: int) -> None:
        self._cache.crop(-count)

    def first_layers(self, early: PreTrainedModel, count: int) -> OwnPasses:
        return OwnPasses(early, first_layers_of(self._cache, count))

    def require_cache(self, length: int) -> None:
        name = type(self._model).__name__
        if self._cache.get_seq_length() != length:
            raise IncompatiblePair(f"{name} leaves its cache empty, so it cannot go on where it stopped; use another.")
        if not getattr(self._cache, "is_croppable", True):
            raise IncompatiblePair(
                f"{name} keeps recurrent state, which cannot be rolled back after a rejected draft. Use a model with "
                "attention or convolution layers only."
            )
