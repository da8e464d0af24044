"""A pass of a lean model over a few rows in one call of C (``pass.c``).

torch's product of 6 rows takes 2.3 to 4 times as long as that of one row, although it reads the same weights, and a
pass of a small model is mostly the time around its operators. In C a pass over 6 rows takes little longer than one over
a single row, so a check of several draft tokens costs little more than a plain pass. A row's logits are the same to the
last bit, alone and beside others, and with any number of threads.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, addressof, byref, c_double, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import activations

from specdec.forward.native.availability import PASS, why_torch
from specdec.forward.native.build import library

if TYPE_CHECKING:
    from specdec.forward.kv_buffer import KVBuffer
    from specdec.forward.weights import Layer, Matrix, Weights

MOST = 17  # rows; for more of them torch is as fast
MOST_THREADS = 64  # as in pool.h
# By the class of a module, its number in vectors.h.
_ACTIVATIONS: dict[type, int] = {
    nn.SiLU: 0,
    activations.SiLUActivation: 0,
    activations.GELUActivation: 1,
    activations.NewGELUActivation: 2,
    activations.GELUTanh: 2,
    nn.ReLU: 3,
}


def _whole(names: str) -> list[tuple[str, Any]]:
    return [(name, c_int64) for name in names.split()]


class _Matrix(Structure):
    _fields_ = [("w", c_void_p), ("bias", c_void_p), *_whole("out in_")]


class _Norm(Structure):
    _fields_ = [("weight", c_void_p), ("bias", c_void_p), ("eps", c_double), *_whole("centred")]


class _Layer(Structure):
    _fields_ = [
        *[(name, _Norm) for name in ("attention_norm", "query_norm", "key_norm", "mlp_norm")],
        *[(name, _Matrix) for name in ("qkv", "out", "up", "down")],
        ("scale", c_double),
        *_whole("rotated window"),
    ]


class _Model(Structure):
    _fields_ = [
        *_whole("width heads kv_heads size rotary qkv_width inner up_width vocabulary places"),
        *_whole("query_step key_at key_step value_at slot_step slot_value gated activation parallel"),
        *[("embedding", c_void_p), ("positions", c_void_p), ("norm", _Norm), ("head", _Matrix)],
        ("layers", POINTER(_Layer)),
    ]


class _Pass(Structure):
    _fields_ = [("ids", c_void_p), *_whole("rows start keep layers threads"), ("logits", c_void_p), ("taps", c_void_p)]


class _Space(Structure):
    _fields_ = [*_whole("room"), *[(name, c_void_p) for name in ("held", "cos", "sin", "scratch")]]


class NotNative(Exception):
    """A model has no native pass, for the reason given."""


class NativePass:
    """The weights of a lean model as C structures, and its pass over at most ``MOST`` rows.

    Raises ``NotNative`` for a model that ``pass.c`` does not describe.
    """

    def __init__(self, lean: Weights):
        if (reason := why_torch(lean.embedding.dtype, lean.embedding.device)) is not None:
            raise NotNative(reason)
        found = library(PASS)
        assert isinstance(found, ctypes.CDLL)
        self._run = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)(("run", found))
        self._run_greedy = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int64, c_void_p)(
            ("run_greedy", found)
        )
        self._scratch_of = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_int64, c_int64, c_int64)(("scratch_of", found))
        self._weights: list[torch.Tensor] = []  # they live as long as their addresses are used
        self._vocabulary = len(lean.head.weight)
        self._layers = (_Layer * len(lean.layers))(*map(self._layer, lean.layers))
        self._model = self._described(lean)
        self._address = addressof(self._model)

    def logits(
        self,
        ids: torch.Tensor,
        buffer: KVBuffer,
        start: int,
        keep: int | None,
        layers: int,
        taps: dict[int, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """``LeanModel.forward`` by the first ``layers`` layers. Raises ``IndexError`` for an id or a place too many."""
        rows, threads, space = len(ids), _threads(), self._space(buffer, start + len(ids))
        keep = rows if keep is None else min(keep, rows)
        ids, logits, places = ids.contiguous(), torch.empty(keep, self._vocabulary), None
        if taps:
            places = (c_void_p * (layers + 1))()
            for number in taps:
                if 0 <= number <= layers:
                    taps[number] = torch.empty(rows, self._model.width)
                    places[number] = taps[number].data_ptr()
        tapped = None if places is None else addressof(places)
        asked = _Pass(ids.data_ptr(), rows, start, keep, layers, threads, logits.data_ptr(), tapped)
        if self._run(self._address, byref(asked), space):
            raise self._out_of_range(start + rows)
        return logits

    def greedy(
        self, ids: torch.Tensor, buffer: KVBuffer, start: int, count: int, layers: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``LeanModel.greedy`` by the first ``layers`` layers. Raises ``IndexError`` as ``logits`` does."""
        rows, end = len(ids), start + len(ids) + count - 1
        space = self._space(buffer, end)
        ids, logits, chosen = ids.contiguous(), torch.empty(rows + count - 1, self._vocabulary), ids.new_empty(count)
        asked = _Pass(ids.data_ptr(), rows, start, rows, layers, _threads(), logits.data_ptr(), None)
        if self._run_greedy(self._address, byref(asked), space, count, chosen.data_ptr()):
            raise self._out_of_range(end)
        return logits, chosen

    def _space(self, buffer: KVBuffer, end: int) -> int:
        """The address of what passes over a buffer share, with room for ``end`` tokens."""
        buffer.reserve(end)
        if buffer.workspace is None or buffer.workspace.threads < _threads():
            buffer.workspace = _Workspace(buffer, _threads(), self._scratch_of, self._address)
        return buffer.workspace.address

    def _out_of_range(self, end: int) -> IndexError:
        return IndexError(f"an id is not below {self._model.vocabulary}, or there is no position {end - 1}")

    def _described(self, lean: Weights) -> _Model:
        first, size, heads, kv_heads = lean.layers[0], lean.size, lean.heads, lean.kv_heads
        inner = first.down.weight.shape[1]
        where = (3 * size, size, 3 * size, 2 * size) if lean.head_major else (size, heads * size, size, 0)
        query_step, key_at, key_step, value_at = where
        return _Model(
            width=lean.embedding.shape[1],
            heads=heads,
            kv_heads=kv_heads,
            size=size,
            rotary=max(layer.rotary_dim for layer in lean.layers),
            qkv_width=len(first.qkv.weight),
            inner=inner,
            up_width=len(first.up.weight),
            vocabulary=len(lean.embedding),
            places=0 if lean.positions is None else len(lean.positions),
            query_step=query_step,
            key_at=key_at,
            key_step=key_step,
            value_at=value_at or (heads + kv_heads) * size,
            slot_step=2 * size if lean.head_major else size,
            slot_value=size if lean.head_major else kv_heads * size,
            gated=lean.gated,
            activation=_activation(first.activation),
            parallel=lean.parallel,
            embedding=self._at(lean.embedding),
            positions=self._at(lean.positions),
            norm=self._norm(lean.norm),
            head=self._matrix(lean.head),
            layers=self._layers,
        )

    def _layer(self, layer: Layer) -> _Layer:
        query_norm, key_norm = map(self._norm, layer.head_norms or (None, None))
        return _Layer(
            attention_norm=self._norm(layer.attention_norm),
            query_norm=query_norm,
            key_norm=key_norm,
            mlp_norm=self._norm(layer.mlp_norm),
            **{name: self._matrix(getattr(layer, name)) for name in ("qkv", "out", "up", "down")},
            scale=layer.scale,
            rotated=layer.rotary_dim > 0,
            window=layer.window or 0,
        )

    def _norm(self, norm: Any) -> _Norm:
        """A norm of ``lean``: a function with its weights as named arguments; all zero for none."""
        if norm is None:
            return _Norm()
        given = norm.keywords
        return _Norm(self._at(given["weight"]), self._at(given.get("bias")), given["eps"], norm.func is F.layer_norm)

    def _matrix(self, matrix: Matrix) -> _Matrix:
        out, size = matrix.weight.shape
        return _Matrix(self._at(matrix.weight), self._at(matrix.bias), out, size)

    def _at(self, weight: torch.Tensor | None) -> int | None:
        if weight is None:
            return None
        if not weight.is_contiguous() or weight.dtype != torch.float32:
            raise NotNative("Native passes are for weights whose rows lie side by side in memory.")
        self._weights.append(weight)
        return weight.data_ptr()


def _threads() -> int:
    return min(torch.get_num_threads(), MOST_THREADS)


class _Workspace:
    """What the passes over one buffer use again: the addresses of its slots, and scratch."""

    def __init__(self, buffer: KVBuffer, threads: int, scratch_of: Any, model: int):
        room, held = len(buffer.held[0]), buffer.held
        self.threads = threads
        self._angles = [table.contiguous() for table in buffer.angles]
        self._scratch = torch.empty(scratch_of(model, MOST, room, threads))
        self._held = (c_void_p * len(held))(*(slots.data_ptr() for slots in held))
        cos, sin = (table.data_ptr() for table in self._angles)
        self._space = _Space(room, addressof(self._held), cos, sin, self._scratch.data_ptr())
        self.address = addressof(self._space)


def _activation(function: Any) -> int:
    """The number of a module's activation in ``vectors.h``."""
    module = getattr(function, "__self__", None)
    if (number := _ACTIVATIONS.get(type(module))) is not None:
        return number
    raise NotNative(f"Native passes do not know the activation {type(module).__name__}.")
