"""Recurrent states of a cache: what linear attention folds the past into, kept where a pass may be undone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin


class States:
    """Copies of the recurrent states of a cache, by the number of tokens that were cached then.

    A crop shortens keys, values and convolutions, but cannot take a token out of a recurrent state again. So a rollback
    goes back to the start of a pass, and what was kept of that pass is read again. A copy is as large as the states
    are, however long the text is; there is at most one for each pass of a round.
    """

    def __init__(self, cache: DynamicCache):
        self._layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
        self._kept: list[tuple[int, list[torch.Tensor]]] = []  # by rising length

    def __bool__(self) -> bool:
        """Whether there is any recurrent state; known after the first pass."""
        return any(True for _ in self._present())

    def keep(self, length: int) -> None:
        """Copy the states after ``length`` tokens."""
        if self._kept and self._kept[-1][0] == length:
            return  # they were restored and have not moved since
        self._kept.append((length, [state.clone() for state in self._present()]))

    def restore(self, length: int) -> int | None:
        """Go back to the last copy after at most ``length`` tokens; its length, or None where there is none."""
        while self._kept and self._kept[-1][0] > length:
            self._kept.pop()
        if not self._kept:
            return None
        place, copies = self._kept[-1]
        del self._kept[:-1]
        for state, copy in zip(self._present(), copies, strict=True):
            state.copy_(copy)
        return place

    def release(self) -> None:
        """Drop the copies: nothing that was read so far will be undone."""
        self._kept.clear()

    def _present(self) -> Iterator[torch.Tensor]:
        for layer in self._layers:
            yield from (state for state in layer.recurrent_states.values() if state is not None)
