"""Passes by a model's own ``forward``, for models without a lean one."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from specdec.errors import IncompatiblePair
from specdec.passes.cache import first_layers_of, new_cache
from specdec.passes.states import States

_UNBOUNDED = (0.0, float("inf"))
_FREE = (None, _UNBOUNDED)
_changing_bounds = threading.Lock()


class OwnPasses:
    """``forward`` over transformers' ``DynamicCache``; see ``Passes``."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache | None = None):
        self._model = model
        self._cache = new_cache(model) if cache is None else cache
        self._states = States(self._cache)
        self._length = 0
        self._tapped: Sequence[int] = ()
        self._hidden: Sequence[torch.Tensor] = ()
        self._keeps_logits = model._supports_logits_to_keep()
        # transformers 5.23 bounds the time steps of Mamba-2 layers in a pass over several tokens, but not in a pass
        # over one token. Nemotron-H has such a bound. ``generate`` reads the prompt with it, and later tokens without.
        with _changing_bounds:  # another thread may have removed the bounds for a pass
            self._bounded = [part for part in model.modules() if getattr(part, "time_step_limit", None) not in _FREE]
        self._takes_positions = "position_ids" in inspect.signature(type(model).forward).parameters

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        kwargs: dict[str, Any] = {"logits_to_keep": keep} if keep and self._keeps_logits else {}
        if self._takes_positions:
            # Positions from 0, as in ``generate``. Without this, RoBERTa and its relatives count from their padding id.
            kwargs["position_ids"] = torch.arange(start, start + len(ids), device=ids.device)[None]
        if self._tapped:
            kwargs["output_hidden_states"] = True
        self._length = start + len(ids)
        with _time_steps(self._bounded, bounded=start == 0):
            out = self._model(input_ids=ids[None], past_key_values=self._cache, use_cache=True, **kwargs)
        if self._tapped:
            self._hidden = [out.hidden_states[number][0] for number in self._tapped]
        return out.logits[0, -keep:] if keep else out.logits[0]

    def tap(self, layers: Sequence[int]) -> None:
        self._tapped = layers

    def features(self) -> torch.Tensor:
        first = self._hidden[0].device  # the layers of a target may be on several devices
        return torch.cat([states.to(first) for states in self._hidden], -1)

    @property
    def stateful(self) -> bool:
        return bool(self._states)

    def remember(self, start: int) -> None:
        self._states.keep(start)

    def forget(self, count: int) -> int:
        if not count:
            self._states.release()
        elif self._states:
            place = self._states.restore(self._length - count)
            if place is None:  # no copy is that old: read the text again
                return self._start_over()
            count = self._length - place
        self._cache.crop(-count)
        self._length -= count
        return count

    def _start_over(self) -> int:
        dropped = self._length
        self._cache, self._length = new_cache(self._model), 0
        self._states = States(self._cache)
        return dropped

    def first_layers(self, early: PreTrainedModel, count: int) -> OwnPasses:
        return OwnPasses(early, first_layers_of(self._cache, count))

    def require_cache(self, length: int) -> None:
        name = type(self._model).__name__
        if self._cache.get_seq_length() != length:
            raise IncompatiblePair(f"{name} leaves its cache empty, so it cannot go on where it stopped; use another.")


@contextmanager
def _time_steps(layers: Sequence[Any], bounded: bool) -> Iterator[None]:
    """Keep the bounds on the time steps of Mamba-2 layers, or remove them and restore them afterwards.

    Threads that share such a model take turns, because the bounds belong to the model.
    """
    if not layers:
        yield
        return
    with _changing_bounds:
        own = [layer.time_step_limit for layer in layers]
        try:
            if not bounded:
                for layer in layers:
                    layer.time_step_limit = _UNBOUNDED
            yield
        finally:
            for layer, limit in zip(layers, own, strict=True):
                layer.time_step_limit = limit
