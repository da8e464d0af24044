"""The KV cache of one call: transformers' ``DynamicCache`` with full-attention layers that seldom copy their states.

``DynamicCache`` joins old and new states into a new tensor at every pass. On a CPU this copying pushes the weights out
of the processor's cache. The draft's weights, which are small enough to stay there, suffer most.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

FIRST_ROOM = 256  # tokens that fit after the prompt at first


class RoomyLayer(DynamicLayer):
    """A full-attention layer with spare room. A pass writes into it, a crop forgets its end, and a full layer doubles.

    ``keys`` and ``values`` (1, heads, length, head size) are views of the filled part.
    """

    def __init__(self) -> None:
        super().__init__()
        self._length = self._room = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (states.narrow(-2, 0, 0) for states in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, count = self._length, key_states.shape[-2]
        if start + count > self._room:
            self._room = max(2 * self._room, start + count + FIRST_ROOM)
            self._keys, self._values = (self._moved(states) for states in (self.keys, self.values))
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
        if self.is_initialized:  # a layer that shares another layer's states is never fed
            self._length += tokens_to_remove

    def _moved(self, states: torch.Tensor) -> torch.Tensor:
        """``states`` in a tensor of the present size."""
        moved = states.new_empty((*states.shape[:-2], self._room, states.shape[-1]))
        moved.narrow(-2, 0, self._length).copy_(states.narrow(-2, 0, self._length))
        return moved


def first_layers_of(cache: DynamicCache, count: int) -> DynamicCache:
    """A cache of the first ``count`` layers of ``cache``. They are the same objects, so both caches see all tokens."""
    view = DynamicCache()
    view.layers, view.layer_class_to_replicate = cache.layers[:count], None
    return view


def new_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache for ``model``. Layers of other kinds are transformers' own."""
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    # Sliding windows and convolutions drop old states in each pass, and then nothing can be rolled back. Recording
    # keeps them until the next crop. So it must be on before the first pass, and a crop must follow each round.
    cache.activate_past_recording()
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
