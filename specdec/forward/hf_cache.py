"""The KV cache of one call: transformers' ``DynamicCache`` with full-attention layers that seldom copy their states.

``DynamicCache`` joins old and new states into a new tensor at every pass. On a CPU this copying pushes the weights out
of the processor's cache. The draft's weights, which are small enough to stay there, suffer most.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, get_layer_types_and_kwargs

from specdec.errors import IncompatiblePair, quoted
from specdec.forward.hf_private import replace_layers

FIRST_ROOM = 256  # tokens that fit after the prompt at first


class PreallocatedLayer(DynamicLayer):
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
    replace_layers(view, cache.layers[:count])
    return view


def new_cache(model: PreTrainedModel) -> DynamicCache:
    """An empty cache for ``model``. Layers of other kinds are transformers' own."""
    try:
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise IncompatiblePair(
            f"transformers makes no cache from the config of {type(model).__name__} ({type(error).__name__}: {error}); "
            "look at its layer_types and sliding_window."
        ) from error
    sizes = [getattr(layer, "sliding_window", 2) for layer in cache.layers]
    if wrong := [size for size in sizes if type(size) is not int or size < 2]:
        raise IncompatiblePair(
            f"A layer of {type(model).__name__} has a sliding window of {quoted(wrong[0])} tokens; it must be a whole "
            "number, 2 or more."
        )
    # Sliding windows and convolutions drop old states in each pass, and then nothing can be rolled back. Recording
    # keeps them until the next crop. So it must be on before the first pass, and a crop must follow each round.
    cache.activate_past_recording()
    cache.layers = [PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def unmasked_window(model: PreTrainedModel) -> int | None:
    """The shortest window of the cache for which ``model`` makes no mask; None if there is none.

    transformers makes the windows of a cache from the config alone, and the masks in a model's ``forward``. A config
    may name windows that the model's family does not have. Then a pass over one token sees the window that is left in
    the cache, and each further row of a longer pass sees one token more.
    """
    layers = zip(*get_layer_types_and_kwargs(model.config.get_text_config(decoder=True)), strict=True)
    windows = [(kind, settings["sliding_window"]) for kind, settings in layers if "sliding_window" in settings]
    if not windows:
        return None
    called: set[str] = set().union(*(_names(kind) for kind in {type(module) for module in model.modules()}))
    sliding, chunked = "create_sliding_window_causal_mask", "create_chunked_causal_mask"
    lacking = (size for kind, size in windows if (chunked if kind == "chunked_attention" else sliding) not in called)
    return min(lacking, default=None)


def _names(kind: type[torch.nn.Module]) -> set[str]:
    """The names that ``forward`` of ``kind`` uses, those of the functions that it calls among them."""
    return _names_in(getattr(inspect.unwrap(kind.forward), "__code__", None))


def _names_in(code: Any) -> set[str]:
    if not isinstance(code, CodeType):
        return set()
    return set(code.co_names).union(*map(_names_in, code.co_consts))  # functions within functions are constants
