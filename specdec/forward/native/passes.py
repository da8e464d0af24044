"""A pass of a lean model over a few rows in one call of C (``pass.c``).

torch's product of 6 rows takes 2.3 to 4 times as long as that of one row, although it reads the same weights, and a
pass of a small model is mostly the time around its operators. In C a pass over 6 rows takes little longer than one over
a single row, so a check of several draft tokens costs little more than a plain pass. A row's logits are the same to the
last bit, alone and beside others, and with any number of threads.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, addressof, byref, c_double, c_int, c_int64, c_size_t, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from transformers import activations

from specdec.events import MAX_GAMMA
from specdec.forward.native.availability import PASS, why_torch
from specdec.forward.native.build import library
from specdec.runtime.memory import free_bytes
from specdec.runtime.stopping import FARTHEST, DraftStop

if TYPE_CHECKING:
    from specdec.forward.kv_buffer import KVBuffer
    from specdec.forward.weights import Layer, Matrix, Weights

MOST = 17  # rows; for more of them torch is as fast
MOST_THREADS = 64  # as in pool.h
BLOCK = 1024  # rows of a matrix that are copied at a time, so that little memory is needed
LARGE = 2**27  # bytes of matrices that no cache of a processor holds, so that a pass over one row waits for memory
SEEN = 64  # numbers of a copied matrix that are compared with their copies before each text
Read: TypeAlias = Literal["float32", "bfloat16", "int8"]  # in which numbers matrices are read
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
    _fields_ = [*[(name, c_void_p) for name in ("w", "bias", "half", "small", "factors")], *_whole("out in_")]


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
        *_whole("width heads kv_heads size rotary qkv_width inner up_width vocabulary"),
        *_whole("query_step key_at key_step value_at slot_step slot_value gated activation parallel"),
        *[("embedding", c_void_p), ("norm", _Norm), ("head", _Matrix)],
        ("layers", POINTER(_Layer)),
    ]


class _Pass(Structure):
    _fields_ = [("ids", c_void_p), *_whole("rows start keep layers threads"), ("logits", c_void_p), ("taps", c_void_p)]


class _Stop(Structure):
    _fields_ = [
        *[(name, c_double) for name in ("least_chance", "slope", "bias", "farthest")],
        ("least_survival", c_double * MAX_GAMMA),
    ]


@lru_cache(8)  # γ "auto" uses one for several rounds
def _described(stop: DraftStop) -> _Stop:
    return _Stop(stop.least_chance, stop.slope, stop.bias, FARTHEST, (c_double * MAX_GAMMA)(*stop.least_survival))


class _Space(Structure):
    _fields_ = [*_whole("room"), *[(name, c_void_p) for name in ("held", "cos", "sin", "scratch")]]


OTHER_SHAPE = "Native passes are for layers of one shape, with weights that fill their memory."


class NotNative(Exception):
    """A model has no native pass, for the reason given."""


class NativePass:
    """The weights of a lean model as C structures, and its pass over at most ``MOST`` rows.

    ``read`` "int8": its matrices are read in 8 bits (``in_8_bits``); "bfloat16": those of such numbers are read in 16
    bits (``in_16_bits``). Raises ``NotNative`` for a model that ``pass.c`` does not describe.
    """

    def __init__(self, lean: Weights, read: Read = "float32"):
        if (reason := why_torch(lean.embedding.dtype, lean.embedding.device)) is not None:
            raise NotNative(reason)
        found = library(PASS)
        assert isinstance(found, ctypes.CDLL)
        self._run = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)(("run", found))
        self._run_greedy = ctypes.CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_void_p)(
            ("run_greedy", found)
        )
        self._scratch_of = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_int64, c_int64, c_int64)(("scratch_of", found))
        self._weights: list[tuple[torch.Tensor, int]] = []  # with the addresses that C uses
        self._read = read
        self._copies: dict[int, tuple[torch.Tensor, ...]] = {}  # of matrices, by their address
        self._samples: list[tuple[torch.Tensor, torch.Tensor]] = []  # of exact copies: of the matrix, and of its copy
        self._vocabulary = len(lean.head.weight)
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
        """``LeanModel.forward`` by the first ``layers`` layers. Raises ``IndexError`` for an id that there is not."""
        rows, threads, space = len(ids), _threads(), self._space(buffer, start + len(ids))
        keep = min(keep or rows, rows)
        ids, logits, places = ids.long().contiguous(), _floats(keep, self._vocabulary), None
        if taps:
            places = (c_void_p * (layers + 1))()
            for number in taps:
                if 0 <= number <= layers:
                    taps[number] = _floats(rows, self._model.width)
                    places[number] = taps[number].data_ptr()
        tapped = None if places is None else addressof(places)
        asked = _Pass(ids.data_ptr(), rows, start, keep, layers, threads, logits.data_ptr(), tapped)
        if self._run(self._address, byref(asked), space):
            raise self._out_of_range()
        return logits

    def greedy(
        self, ids: torch.Tensor, buffer: KVBuffer, start: int, count: int, layers: int, stop: DraftStop | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``LeanModel.greedy`` by the first ``layers`` layers. Raises ``IndexError`` as ``logits`` does."""
        rows, space = len(ids), self._space(buffer, start + len(ids) + count - 1)
        ids, logits = ids.long().contiguous(), _floats(rows + count - 1, self._vocabulary)
        chosen = torch.empty(count, dtype=torch.long, device="cpu")
        asked = _Pass(ids.data_ptr(), rows, start, rows, layers, _threads(), logits.data_ptr(), None)
        ends = None if stop is None else byref(_described(stop))
        made = self._run_greedy(self._address, byref(asked), space, count, chosen.data_ptr(), ends)
        if not made:
            raise self._out_of_range()
        return logits[: rows + made - 1], chosen[:made]

    def _space(self, buffer: KVBuffer, end: int) -> int:
        """The address of what passes over a buffer share, with room for ``end`` tokens."""
        buffer.reserve(end)
        if buffer.workspace is None or buffer.workspace.threads < _threads():
            buffer.workspace = _Workspace(buffer, _threads(), self._scratch_of, self._address, self._model.rotary)
        return buffer.workspace.address

    def _out_of_range(self) -> IndexError:
        return IndexError(f"an id is not in 0 to {self._model.vocabulary - 1}")

    @property
    def moved(self) -> bool:
        """Whether a weight has another address than when this pass was made."""
        return any(weight.data_ptr() != address for weight, address in self._weights)

    @property
    def outdated(self) -> bool:
        """Whether matrices differ from their exact copies where they are compared.

        A change in place that torch counts makes a new lean model. This is for one of ``weight.data``, which it does
        not count. A change of a few numbers only may be missed.
        """
        return not all(torch.equal(matrix, half.float()) for matrix, half in self._samples)

    @property
    def has_copies(self) -> bool:
        """Whether it reads copies of matrices."""
        return bool(self._copies)

    def bytes_of(self, weight: torch.Tensor) -> int:
        """How many bytes of a weight a pass reads."""
        copies = self._copies.get(weight.data_ptr(), ())
        return sum(copy.nbytes for copy in copies) or weight.nbytes

    def _described(self, lean: Weights) -> _Model:
        size, heads, kv_heads, gated = lean.size, lean.heads, lean.kv_heads, lean.gated
        if lean.positions is not None:  # as in GPT-2, whose other weights are transposed, so torch is as fast
            raise NotNative("Native passes are for models with rotary angles.")
        if kv_heads < 1 or heads % kv_heads:
            raise NotNative(OTHER_SHAPE)
        shapes = _Shapes(lean.embedding.shape[1], heads, kv_heads, size, lean.layers[0].down.weight.shape[1], gated)
        activations = {_activation(layer.activation) for layer in lean.layers}
        if len(activations) > 1:
            raise NotNative("Native passes are for layers with one activation.")
        self._layers = (_Layer * len(lean.layers))(*(self._layer(layer, shapes) for layer in lean.layers))
        by_head = lean.head_major
        return _Model(
            width=shapes.width,
            heads=heads,
            kv_heads=kv_heads,
            size=size,
            rotary=max(layer.rotary_dim for layer in lean.layers),
            qkv_width=shapes.qkv,
            inner=shapes.inner,
            up_width=shapes.up,
            vocabulary=len(lean.embedding),
            query_step=3 * size if by_head else size,
            key_at=size if by_head else heads * size,
            key_step=3 * size if by_head else size,
            value_at=2 * size if by_head else (heads + kv_heads) * size,
            slot_step=2 * size if by_head else size,
            slot_value=size if by_head else kv_heads * size,
            gated=gated,
            activation=activations.pop(),
            parallel=lean.parallel,
            embedding=self._at(lean.embedding, (len(lean.embedding), shapes.width)),
            norm=self._norm(lean.norm, shapes.width),
            head=self._matrix(lean.head, self._vocabulary, shapes.width),
            layers=self._layers,
        )

    def _layer(self, layer: Layer, shapes: _Shapes) -> _Layer:
        query_norm, key_norm = layer.head_norms or (None, None)
        attended = shapes.heads * shapes.size
        return _Layer(
            attention_norm=self._norm(layer.attention_norm, shapes.width),
            query_norm=self._norm(query_norm, shapes.size),
            key_norm=self._norm(key_norm, shapes.size),
            mlp_norm=self._norm(layer.mlp_norm, shapes.width),
            qkv=self._matrix(layer.qkv, shapes.qkv, shapes.width),
            out=self._matrix(layer.out, shapes.width, attended),
            up=self._matrix(layer.up, shapes.up, shapes.width),
            down=self._matrix(layer.down, shapes.width, shapes.inner),
            scale=layer.scale,
            rotated=layer.rotary_dim > 0,
            window=layer.window or 0,
        )

    def _norm(self, norm: Any, size: int) -> _Norm:
        """A norm of ``weights``: a function with its parameters as named arguments; all zero for none."""
        if norm is None:
            return _Norm()
        weight, bias = norm.keywords["weight"], norm.keywords.get("bias")
        added = None if bias is None else self._at(bias, (size,))
        return _Norm(self._at(weight, (size,)), added, norm.keywords["eps"], norm.func is F.layer_norm)

    def _matrix(self, matrix: Matrix, out: int, size: int) -> _Matrix:
        bias = None if matrix.bias is None else self._at(matrix.bias, (out,))
        weight = self._at(matrix.weight, (out, size))
        half = small = factors = None
        if self._read == "int8" and matrix.weight.numel():
            self._copies[weight] = small, factors = in_8_bits(matrix.weight)
        elif self._read == "bfloat16" and (half := in_16_bits(matrix.weight)) is not None:
            self._copies[weight] = (half,)
            step = max(1, half.numel() // SEEN)
            self._samples.append((matrix.weight.view(-1)[::step], half.view(-1)[::step]))
        copies = (None if copy is None else copy.data_ptr() for copy in (half, small, factors))
        return _Matrix(weight, bias, *copies, out, size)

    def _at(self, weight: torch.Tensor, shape: tuple[int, ...]) -> int:
        """The address of a weight, whose shape C relies on."""
        if weight.shape != shape or not weight.is_contiguous() or weight.dtype != torch.float32:
            raise NotNative(OTHER_SHAPE)
        self._weights.append((weight, weight.data_ptr()))
        return weight.data_ptr()


class _Shapes:
    """What the shapes of all layers follow from."""

    def __init__(self, width: int, heads: int, kv_heads: int, size: int, inner: int, gated: bool):
        self.width, self.heads, self.size, self.inner = width, heads, size, inner
        self.qkv, self.up = (heads + 2 * kv_heads) * size, (1 + gated) * inner


def in_8_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers from -127 to 127 (out, in) and a factor for each row (out,), whose product is nearly ``weight``."""
    small, factors = torch.empty(weight.shape, dtype=torch.int8, device="cpu"), _floats(len(weight))
    for rows, found, factor in zip(*(tensor.split(BLOCK) for tensor in (weight, small, factors)), strict=True):
        torch.div(rows.abs().amax(1), 127, out=factor)
        found.copy_((rows / factor.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round_())
    return small, factors


def in_16_bits(weight: torch.Tensor) -> torch.Tensor | None:
    """``weight`` (out, in) in bfloat16; None if it has another number, which is rarely found late."""
    half = torch.empty(weight.shape, dtype=torch.bfloat16, device="cpu")
    for rows, found in zip(weight.split(BLOCK), half.split(BLOCK), strict=True):
        if not torch.equal(found.copy_(rows).float(), rows):
            return None
    return half


def worth_halving(lean: Weights) -> bool:
    """Whether the matrices of a model are too large for a cache, and memory has room for copies of half their size."""
    size = sum(matrix.weight.nbytes for matrix in lean.matrices)
    return size > LARGE and free_bytes(torch.device("cpu")) > size  # the copies, and as much for everything else


def _floats(*shape: int) -> torch.Tensor:
    """Room for numbers, whatever type torch takes by default: transformers changes that while it loads a model."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _threads() -> int:
    return min(torch.get_num_threads(), MOST_THREADS)


class _Workspace:
    """What the passes over one buffer use again: the addresses of its slots, and scratch."""

    def __init__(self, buffer: KVBuffer, threads: int, scratch_of: Any, model: int, rotary: int):
        room, held = len(buffer.held[0]), buffer.held
        self.threads = threads
        self._angles = [table.to(torch.float32).contiguous() for table in buffer.angles]
        self._scratch = _floats(scratch_of(model, MOST, room, threads))
        self._held = (c_void_p * len(held))(*(slots.data_ptr() for slots in held))
        if self._angles[0].shape[-1] != rotary:
            raise RuntimeError(f"The rotary angles have {self._angles[0].shape[-1]} dimensions instead of {rotary}.")
        cos, sin = (table.data_ptr() for table in self._angles)
        self._space = _Space(room, addressof(self._held), cos, sin, self._scratch.data_ptr())
        self.address = addressof(self._space)


def _activation(function: Any) -> int:
    """The number of a module's activation in ``vectors.h``."""
    module = getattr(function, "__self__", None)
    if (number := _ACTIVATIONS.get(type(module))) is not None:
        return number
    raise NotNative(f"Native passes do not know the activation {type(module).__name__}.")
