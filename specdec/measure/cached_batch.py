"""One model with filled caches of several sequences, whose passes are timed: transformers', lean ones, or graphs.

Lean passes run by torch's operators, over one sequence too: native passes read no more than one, and all passes of a
table should be of one kind. Graphs are lean passes that were captured; like those of the graph engine, they read all
slots up to a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from transformers import PreTrainedModel

from specdec.forward.batched_buffer import BatchedKVBuffer
from specdec.forward.batched_graph import BatchedGraphs
from specdec.forward.hf_cache import new_cache
from specdec.forward.hf_private import keeps_logits
from specdec.forward.lean_check import lean_model
from specdec.measure.load import GRAPH, LEAN
from specdec.runtime.clock import between, mark

PART = 256  # tokens of each sequence that a pass reads while a cache is filled

Timed = Callable[[torch.device, Callable[[], torch.Tensor]], float]  # seconds of a pass on a device


def seconds_on(device: torch.device, work: Callable[[], torch.Tensor]) -> float:
    """Seconds of ``work``; on a GPU those of the device."""
    start = mark(device)
    work()
    return between(start, mark(device))


class CachedBatch(Protocol):
    """L cached tokens of each of B sequences."""

    def seconds(self, ids: torch.Tensor, timed: Timed) -> float:
        """Seconds of a pass over ``ids`` (B, w), which the cache forgets again."""


class TransformersBatch:
    """``ids`` (B, L) in transformers' cache; see ``CachedBatch``. A pass gives logits (B, w, V)."""

    def __init__(self, model: PreTrainedModel, ids: torch.Tensor):
        self._model, self._cache = model, new_cache(model)
        last = {"logits_to_keep": 1} if keeps_logits(model) else {}
        for part in ids.split(PART, dim=1):
            model(input_ids=part, past_key_values=self._cache, use_cache=True, **last)
            self._cache.crop(0)  # see ``new_cache``

    def _pass(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True).logits
        return logits

    def seconds(self, ids: torch.Tensor, timed: Timed) -> float:
        seconds = timed(ids.device, lambda: self._pass(ids))
        self._cache.crop(-ids.shape[1])
        return seconds


class LeanBatch:
    """``ids`` (B, L) in the cache of a model with a lean forward, and room for ``more`` tokens of each sequence.

    See ``CachedBatch``. A pass gives logits (w x B, V) in the order of ``BatchedKVBuffer``.
    """

    def __init__(self, model: PreTrainedModel, ids: torch.Tensor, more: int):
        lean = lean_model(model)
        assert not isinstance(lean, str)  # see ``require_passes``
        self._lean, self._length = lean, 0
        self._buffer = BatchedKVBuffer(lean, len(ids), ids.shape[1] + more)
        for part in ids.split(PART, dim=1):
            self._pass(part.T.flatten(), keep=len(ids))
            self._length += part.shape[1]

    def _pass(self, rows: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        return self._lean.forward(rows, self._buffer, self._length, keep)

    def seconds(self, ids: torch.Tensor, timed: Timed) -> float:
        rows = ids.T.flatten()
        return timed(ids.device, lambda: self._pass(rows))


class GraphBatch:
    """``LeanBatch`` with captured passes. A capture takes place before the first pass of a width is timed."""

    def __init__(self, model: PreTrainedModel, ids: torch.Tensor, more: int):
        lean = lean_model(model)
        assert not isinstance(lean, str)  # see ``require_passes``
        self._length = ids.shape[1]
        self._graphs = BatchedGraphs(lean, len(ids), self._length + more)
        for start in range(0, self._length, PART):
            self._graphs.fill(ids[:, start : start + PART].T.flatten(), start)

    def seconds(self, ids: torch.Tensor, timed: Timed) -> float:
        return timed(ids.device, self._graphs.prepared(ids.T.flatten(), self._length))


def cached_batch(model: PreTrainedModel, ids: torch.Tensor, more: int, passes: str) -> CachedBatch:
    """A cache of ``ids`` (B, L) for ``passes``, one of ``load.PASSES``, over up to ``more`` tokens of each sequence."""
    if passes == GRAPH:
        return GraphBatch(model, ids, more)
    return LeanBatch(model, ids, more) if passes == LEAN else TransformersBatch(model, ids)
