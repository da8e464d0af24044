"""The KV cache of one call: transformers' ``DynamicCache``, with full-attention layers that never move what they hold.

``DynamicCache`` joins old and new states into a fresh tensor at every pass. On a CPU that copying pushes the weights
out of the processor's cache, the draft's above all, which are small enough to stay there.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):
    """A full-attention layer with room for ``capacity`` tokens: a pass writes into it, a crop forgets the end.

    ``keys`` and ``values`` (1, heads, length, head size) are views of the filled part, as ``update`` left them.
    """

    def __init__(self, capacity: int):
        super().__init__()
        self._capacity = capacity
        self._length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._keys, self._values = (
            torch.empty((*states.shape[:-2], self._capacity, states.shape[-1]), dtype=self.dtype, device=self.device)
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, count = self._length, key_states.shape[-2]
        self._keys.narrow(-2, start, count).copy_(key_states)
        self._values.narrow(-2, start, count).copy_(value_states)
        self._length += count
        self.keys = self._keys.narrow(-2, 0, self._length)
        self.values = self._values.narrow(-2, 0, self._length)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self._length

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens (transformers counts them as a negative number)."""
        self._length += tokens_to_remove


def new_cache(model: PreTrainedModel, capacity: int) -> DynamicCache:
    """An empty cache for at most ``capacity`` tokens of ``model``; other kinds of layers stay transformers' own."""
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    # Sliding windows and convolutions drop old states as they go, and then nothing can be rolled back. Recording
    # keeps them until the next crop, so it must be on before the first pass and a crop must follow each round.
    cache.activate_past_recording()
    cache.layers = [RoomyLayer(capacity) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
