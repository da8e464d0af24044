"""Passes by a model's own ``forward``, for models without a lean one."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.utils import ModelOutput

from specdec.errors import IncompatiblePair
from specdec.forward.accelerate_private import move_forward
from specdec.forward.hf_cache import first_layers_of, new_cache, unmasked_window
from specdec.forward.hf_private import keeps_logits
from specdec.forward.recurrent_state import RecurrentSnapshots
from specdec.forward.torch_private import children_of, copy_with
from specdec.runtime.stopping import DraftStop

NORMED = -1  # in place of a layer's number: the input of the output matrix, which transformers lists last
_UNBOUNDED = (0.0, float("inf"))  # the time steps of a Mamba-2 layer


class HFForward:
    """``forward`` over transformers' ``DynamicCache``; see ``Passes``."""

    def __init__(self, model: PreTrainedModel, cache: DynamicCache | None = None):
        self._model = model
        self._cache = new_cache(model) if cache is None else cache
        self._states = RecurrentSnapshots(self._cache)
        self._length = 0
        self._tapped: Sequence[int] = ()
        self._computes_all = False  # rows whose logits are not asked for, too
        self._hidden: Sequence[torch.Tensor] = ()
        self._keeps_logits = keeps_logits(model)
        self._takes_positions = "position_ids" in inspect.signature(type(model).forward).parameters
        self._window = unmasked_window(model)

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        if self._window is not None and start and len(ids) > 1 and start + len(ids) > self._window:
            return self._one_by_one(ids, start)[-(keep or len(ids)) :]
        return self._pass(ids, start, keep)

    def _one_by_one(self, ids: torch.Tensor, start: int) -> torch.Tensor:
        """Passes over one token each, as ``generate`` makes them: see ``unmasked_window``."""
        logits, hidden = [], []
        for place, token in enumerate(ids.split(1), start):
            logits.append(self._pass(token, place, None))
            hidden.append(self._hidden)
        self._hidden = [torch.cat(rows) for rows in zip(*hidden, strict=True)]
        return torch.cat(logits)

    def _pass(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        kwargs: dict[str, Any] = {}
        if keep and self._keeps_logits:
            # With a number, Gemma 4's layers that read the keys of other layers compute these rows only. Rows by their
            # places leave the states of all rows as they are.
            places = torch.arange(len(ids) - keep, len(ids), device=ids.device) if self._computes_all else keep
            kwargs["logits_to_keep"] = places
        if self._takes_positions:
            # Positions from 0, as in ``generate``. Without this, RoBERTa and its relatives count from their padding id.
            kwargs["position_ids"] = torch.arange(start, start + len(ids), device=ids.device)[None]
        self._length = start + len(ids)
        model = self._later if start else self._model
        with tapped(model, self._tapped) as states:
            out = model(input_ids=ids[None], past_key_values=self._cache, use_cache=True, **kwargs)
        for number in self._tapped:
            if number not in states:
                raise IncompatiblePair(
                    f"The draft reads what enters layer {number} of the target, and the target skips that layer, as "
                    "Mllama skips its cross-attention without a picture. Choose another draft."
                )
        self._hidden = [states[number][0] for number in self._tapped]
        return out.logits[0, -keep:] if keep else out.logits[0]

    @cached_property
    def _later(self) -> PreTrainedModel:
        """The model for passes after that over the prompt.

        transformers 5.23 bounds the time steps of Mamba-2 layers in a pass over several tokens, but not in a pass over
        one token. Nemotron-H has such a bound. ``generate`` reads the prompt with it, and later tokens without.
        """
        return _without_bounds(self._model)

    def tap(self, layers: Sequence[int]) -> None:
        self._tapped = layers
        self._computes_all = bool(getattr(self._model.config.get_text_config(), "num_kv_shared_layers", 0))

    def features(self) -> torch.Tensor:
        first = self._hidden[0].device  # the layers of a target may be on several devices
        return torch.cat([states.to(first) for states in self._hidden], -1)

    def keys_values(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        held = self._cache.layers[layer]
        window = getattr(held, "sliding_window", None)
        if window is None:  # the views of a layer that was cropped may be longer than what it holds
            return held.keys[0, :, :length], held.values[0, :, :length]
        low = max(0, held.keys.shape[-2] - window + 1)
        return held.keys[0, :, low:], held.values[0, :, low:]

    def greedy(self, ids: torch.Tensor, start: int, count: int, stop: DraftStop | None) -> None:
        """None: each pass is a call of the model."""

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
        self._states = RecurrentSnapshots(self._cache)
        return dropped

    def first_layers(self, early: PreTrainedModel, count: int) -> HFForward:
        return HFForward(early, first_layers_of(self._cache, count))

    def require_cache(self, length: int) -> None:
        name = type(self._model).__name__
        held = [layer.get_seq_length() for layer in self._cache.layers if isinstance(layer, DynamicLayer)]
        if max(held, default=0) > length:
            raise IncompatiblePair(
                f"{name} read {length} tokens, and a layer of its cache holds {max(held)}: two of its layers write "
                "into the same one. Give each its own layer_idx."
            )
        if self._cache.get_seq_length() != length:
            raise IncompatiblePair(f"{name} leaves its cache empty, so it cannot go on where it stopped; use another.")


@contextmanager
def tapped(model: PreTrainedModel, numbers: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
    """The states (1, n, H) that ``Passes.tap`` describes, of a pass of ``model`` in this context.

    transformers' ``output_hidden_states`` would keep those of all layers, which takes a lot of memory with a long
    prompt, and has the last layer's output after the final norm only.
    """
    states: dict[int, torch.Tensor] = {}
    layers, ours = decoder_layers(model) if numbers else None, threading.get_ident()

    def keep(number: int, values: Any) -> None:
        if threading.get_ident() == ours:  # the model may be in a pass of another thread too
            states[number] = values[0] if isinstance(values, (tuple, ModelOutput)) else values

    def hooked(number: int) -> Any:
        if number == NORMED:
            return model.get_decoder().register_forward_hook(lambda module, given, output: keep(number, output))
        assert layers is not None  # a pair refuses a head that reads layers of another model
        if number == len(layers):
            return layers[-1].register_forward_hook(lambda module, given, output: keep(number, output))
        return layers[number].register_forward_pre_hook(
            lambda module, given, named: keep(number, given or named["hidden_states"]), with_kwargs=True
        )

    with ExitStack() as hooks:
        for number in numbers:
            hooks.callback(hooked(number).remove)
        yield states


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList | None:
    """The list of the text decoder's layers; None where there is no single one."""
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    # A vision tower may have as many layers as the text model. Of nested lists the outer one holds the layers.
    lists = (m for m in model.get_decoder().modules() if isinstance(m, nn.ModuleList) and len(m) == depth)
    return next(lists, None)


def _without_bounds(module: Any) -> Any:
    """The same weights in a copy whose Mamba-2 layers do not bound time steps; ``module`` itself if none does.

    The model itself must not change: another thread may be in a pass of it.
    """
    parts = {name: part and _without_bounds(part) for name, part in children_of(module).items()}
    bounded = getattr(module, "time_step_limit", None) not in (None, _UNBOUNDED)
    if not bounded and all(part is children_of(module)[name] for name, part in parts.items()):
        return module
    twin = copy_with(module, parts)
    if bounded:
        twin.time_step_limit = _UNBOUNDED
    move_forward(module, twin)
    return twin
