"""Lean passes over several sequences of one length, which are timed under load; a call of this package has one.

A pass reads n tokens of each of B sequences as n x B rows: the first token of every sequence, then the second one of
each, and so on. Attention treats B sequences as B times as many heads. So the lean forward itself has no batch.
"""

from __future__ import annotations

from typing import Self

import torch

from specdec.forward.kv_buffer import KVBuffer, PassView, angles
from specdec.forward.lean import LeanModel


class BatchedKVBuffer(KVBuffer):
    """A fixed number of slots, each for one token of every sequence; ``held`` has (room, *shape) for each layer.

    ``shape`` is ``LeanModel.shape`` with B times as many heads. In memory the slots of a head lie side by side.
    """

    by_slices = False  # native passes read one sequence

    def __init__(self, lean: LeanModel, batch: int, room: int):
        self._batch, self._heads = batch, 1 if lean.head_major else 2  # which axis of ``held`` has the heads
        memory = (2, batch * lean.kv_heads, room, lean.size)
        order = (2, 1, 0, 3) if lean.head_major else (2, 0, 1, 3)
        self.held = [lean.embedding.new_empty(memory).permute(order) for _ in lean.layers]
        self.angles = angles(lean.rotary, room, lean.embedding)

    def span(self, start: int, count: int) -> PassView:
        """The places of ``count`` rows, those of count / B tokens of each sequence after ``start`` tokens."""
        end = start + count // self._batch
        return BatchedPassView(start, end, self.angles, self.held[0]).over(self._batch, self._heads)


class BatchedPassView(PassView):
    """The n x B rows of one pass, after ``over``; see ``BatchedKVBuffer``."""

    _batch: int
    _heads: int

    def over(self, batch: int, heads: int) -> Self:
        """This view, with each of its n places for ``batch`` sequences. ``heads``: which axis of the slots has them."""
        self.cos, self.sin = (values.repeat_interleave(batch, 0) for values in (self.cos, self.sin))
        self._batch, self._heads = batch, heads
        return self

    @property
    def positions(self) -> torch.Tensor:
        return super().positions.repeat_interleave(self._batch)

    def write(self, held: torch.Tensor, states: torch.Tensor) -> None:
        """Put the rows' ``states`` (n x B, *shape of one sequence) into a layer's slots."""
        slots = held[self._start : self._end].unflatten(self._heads, (self._batch, -1))
        slots.copy_(self.by_head(states))

    def by_head(self, states: torch.Tensor) -> torch.Tensor:
        """The ``states`` (n x B, *shape of one sequence) with B as an axis of its own before that of the heads."""
        return states.unflatten(0, (-1, self._batch)).movedim(1, self._heads)

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
    ) -> torch.Tensor:
        """Attention of ``q`` (heads, n x B, D) over ``k`` and ``v`` (B x kv heads, m, D)."""
        found = super().attend(_by_sequence(q, self._batch), k, v, mask, causal, scale)
        return _by_row(found, self._batch)


def _by_sequence(q: torch.Tensor, batch: int) -> torch.Tensor:
    """``q`` (heads, n x B, D) as (B x heads, n, D), for attention."""
    return q.unflatten(1, (-1, batch)).permute(2, 0, 1, 3).flatten(0, 1)


def _by_row(found: torch.Tensor, batch: int) -> torch.Tensor:
    """What attention found, (B x heads, n, D), as (heads, n x B, D)."""
    return found.unflatten(0, (batch, -1)).permute(1, 2, 0, 3).flatten(1, 2)
