"""Copies of a cache's recurrent states, which linear attention keeps instead of keys and values, to undo passes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin


class RecurrentSnapshots:
    """Copies of the recurrent states of a cache, by the number of tokens that were cached when they were made.

    A crop shortens keys, values and convolutions, but cannot take a token out of a recurrent state. So a roll-back goes
    to the start of a pass, and the tokens that were kept of that pass are read again. A copy is as large as the states,
    whatever the length of the text. There is at most one for each pass of a round.
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
            return  # they were restored and have not changed since
        self._kept.append((length, [state.clone() for state in self._present()]))

    def restore(self, length: int) -> int | None:
        """Go back to the last copy of at most ``length`` tokens. Returns its length, or None if there is none."""
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
        """Drop the copies, because nothing that was read so far will be undone."""
        self._kept.clear()

    def _present(self) -> Iterator[torch.Tensor]:
        for layer in self._layers:
            yield from (state for state in layer.recurrent_states.values() if state is not None)
