"""The lean forward: one function over the weights of a plain decoder stack, in few operators.

A small pass through transformers is mostly Python: it looks up defaults in the config, builds a general attention mask
and calls many modules in each layer. Here one function goes over the model's own weights (``weights``). Rotary angles
come from a table. Keys and values are in one buffer for each layer. On a CPU, a pass over few rows runs in C
(``native``).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from specdec.forward.kv_buffer import KVBuffer, PassView
from specdec.forward.native.passes import MOST, NativePass, NotNative, Read, worth_halving
from specdec.forward.weights import Layer, Weights
from specdec.runtime.stopping import DraftStop


class LeanModel(Weights):
    """A decoder's weights and the pass over them."""

    def __init__(self, model: PreTrainedModel):
        super().__init__(model)
        self._native: NativePass | None = None
        self._read: Read = "float32"  # in which numbers native passes read the matrices
        self._variants: dict[Read, LeanModel | None] = {}  # None: it is of no use
        self.why_torch: str | None = None
        self.use_native()

    def use_native(self) -> None:
        """Run passes over few rows in C, if there are such for this model; else ``why_torch`` says why not."""
        self._native = None
        try:
            self._native, self.why_torch = NativePass(self, self._read), None
        except NotNative as error:
            self.why_torch = str(error)

    def use_torch(self, why: str) -> None:
        """Run all passes by torch's operators from now on; ``why`` is a sentence."""
        self._native, self.why_torch = None, why

    def rounded(self) -> LeanModel:
        """The same model, whose native passes read its matrices in 8 bits: for drafts, which may be wrong.

        Passes over many rows read the matrices as they are. Without native passes it is this model itself. A change of
        ``weight.data``, which torch does not count, is not seen: the guesses are then worse, and the text is right.
        """
        return self._variant("int8")

    def halved(self) -> LeanModel:
        """The same model, whose native passes read each matrix of bfloat16 numbers in 16 bits; logits stay bit-equal.

        Checkpoints mostly have such numbers, which are kept here as float32. A pass over few rows of a large model
        waits for memory, so it takes less time. Where that would not help, or memory is short, it is this model itself.
        """
        if "bfloat16" not in self._variants and not worth_halving(self):
            self._variants["bfloat16"] = None  # asked once, because the copies themselves take memory
        return self._variant("bfloat16")

    def _variant(self, read: Read) -> LeanModel:
        if self._native is None:
            return self
        if read not in self._variants:
            found = copy.copy(self)
            found._read = read
            found.use_native()
            useful = found._native is not None and found._native.has_copies
            self._variants[read] = found if useful else None
        return self._variants[read] or self

    def bytes_of(self, weight: torch.Tensor) -> int:
        """How many bytes of one of its weights a pass over few rows reads."""
        return weight.nbytes if self._native is None else self._native.bytes_of(weight)

    def first(self, count: int) -> LeanModel:
        """The first ``count`` layers with the same embedding, norm and head."""
        early = copy.copy(self)
        early.layers = self.layers[:count]
        return early

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the keys and values of one token in one layer."""
        return (self.kv_heads, 2, self.size) if self.head_major else (2, self.kv_heads, self.size)

    def new_buffer(self) -> KVBuffer:
        """Room for one call's keys and values."""
        if self._native and self._native.outdated:
            self.use_native()
        return KVBuffer(len(self.layers), self.shape, self.embedding, self.rotary)

    def forward(
        self,
        ids: torch.Tensor,
        buffer: KVBuffer,
        start: int,
        keep: int | None,
        taps: dict[int, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Feed ``ids`` (n,) after ``start`` tokens. Returns logits (keep or n, V), in the weights' type.

        ``taps`` gets the inputs (n, H) of the layers whose numbers are its keys; the number of layers stands for the
        output of the last.
        """
        if native := self._native_for(ids, buffer):
            return native.logits(ids, buffer, start, keep, len(self.layers), taps)
        span = buffer.span(start, len(ids))
        hidden = F.embedding(ids, self.embedding)
        if self.positions is not None:
            hidden = hidden + F.embedding(span.positions, self.positions)
        # An early exit has fewer layers than the buffer.
        for number, (layer, held) in enumerate(zip(self.layers, buffer.held, strict=False)):
            if taps and number in taps:
                taps[number] = hidden
            attended = self._attend(layer, layer.attention_norm(hidden), held, span)
            if self.parallel:
                hidden = self._mlp(layer, layer.mlp_norm(hidden)) + attended + hidden
            else:
                hidden = hidden + attended
                hidden = hidden + self._mlp(layer, layer.mlp_norm(hidden))
        if taps and len(self.layers) in taps:
            taps[len(self.layers)] = hidden
        last = hidden if keep is None else hidden[-keep:]
        return self.head(self.norm(last))

    def greedy(
        self, ids: torch.Tensor, buffer: KVBuffer, start: int, count: int, stop: DraftStop | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Feed ``ids`` (n,) after ``start`` tokens and then the most likely token, up to ``count`` times (1 or more).

        ``stop`` may end it earlier. Returns logits (n + m - 1, V) and the m chosen ids, of which the last is not fed;
        None where torch runs such passes.
        """
        native = self._native_for(ids, buffer)
        return native.greedy(ids, buffer, start, count, len(self.layers), stop) if native else None

    def _native_for(self, ids: torch.Tensor, buffer: KVBuffer) -> NativePass | None:
        """What runs a pass over ``ids`` in C; None where torch does."""
        # Under autocast torch computes with other numbers than the weights' own.
        if self._native is None or not buffer.by_slices or len(ids) > MOST or torch.is_autocast_enabled("cpu"):
            return None
        if self._native.moved:  # ``share_memory`` moves weights while a text is written
            self.use_native()
        return self._native

    def _attend(self, layer: Layer, x: torch.Tensor, held: torch.Tensor, span: PassView) -> torch.Tensor:
        """Attention of rows ``x`` (n, H) over the slots that they see. Writes their keys and values."""
        count = x.shape[0]
        qkv = layer.qkv(x)
        if self.head_major:
            states = qkv.view(count, self.heads, 3, self.size)
            q, rotated, kv = states[:, :, 0], states[:, :, :2], states[:, :, 1:]
            cos, sin = span.cos[:, None, None], span.sin[:, None, None]
        else:
            states = qkv.view(count, self.heads + 2 * self.kv_heads, self.size)
            q, rotated = states[:, : self.heads], states[:, : self.heads + self.kv_heads]
            kv = states[:, self.heads :].view(count, 2, self.kv_heads, self.size)
            cos, sin = span.cos[:, None], span.sin[:, None]
        if layer.head_norms:
            k = states[:, self.heads : self.heads + self.kv_heads]
            for part, norm in zip((q, k), layer.head_norms, strict=True):
                part.copy_(norm(part))
        if layer.rotary_dim:
            rotated = rotated[..., : layer.rotary_dim]
            torch.add(rotated * cos, rotated.roll(layer.rotary_dim // 2, -1) * sin, out=rotated)
        span.write(held, kv)
        seen, mask, causal = span.seen(held, layer.window)
        q, k, v = (states.transpose(0, 1) for states in (q, *seen.unbind(2 if self.head_major else 1)))
        attended = span.attend(q, k, v, mask, causal, layer.scale)
        return layer.out(attended.transpose(0, 1).reshape(count, -1))

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        up = layer.up(x)
        if self.gated:
            gate, up = up.chunk(2, -1)
            return layer.down(layer.activation(gate) * up)
        return layer.down(layer.activation(up))


class LeanForward:
    """Passes by the lean forward; see ``Passes``."""

    def __init__(self, lean: LeanModel, buffer: KVBuffer | None = None):
        self._lean = lean
        self._buffer = lean.new_buffer() if buffer is None else buffer
        self._tapped: Sequence[int] = ()
        self._taps: dict[int, torch.Tensor] = {}

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        return self._lean.forward(ids, self._buffer, start, keep, self._taps)

    def greedy(
        self, ids: torch.Tensor, start: int, count: int, stop: DraftStop | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        return self._lean.greedy(ids, self._buffer, start, count, stop)

    def tap(self, layers: Sequence[int]) -> None:
        self._tapped, self._taps = layers, dict.fromkeys(layers, self._lean.embedding[:0])

    def features(self) -> torch.Tensor:
        return torch.cat([self._taps[number] for number in self._tapped], -1)

    def keys_values(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self._lean.layers[layer].window
        low = 0 if window is None else max(0, length - window + 1)
        keys, values = self._buffer.held[layer][low:length].unbind(2 if self._lean.head_major else 1)
        return keys.transpose(0, 1), values.transpose(0, 1)

    stateful = False

    def remember(self, start: int) -> None:
        """Nothing to do: no pass changes the slots before it."""

    def forget(self, count: int) -> int:
        """Nothing to do: the next pass overwrites the slots."""
        return count

    def first_layers(self, early: PreTrainedModel, count: int) -> LeanForward:
        return LeanForward(self._lean.first(count), self._buffer)

    def require_cache(self, length: int) -> None:
        """Nothing to do: slots can always be rolled back."""
