"""Slots and ids at fixed addresses, which a captured graph reads and writes when it is replayed.

A CUDA graph repeats the kernels of its capture on the same addresses. So the number of committed tokens must be a value
on the device, not a slice in Python. Positions are that value plus an offset. Keys and values are written by index.
Every pass reads all slots up to a bound, with a mask that hides the slots after each row. The same code runs on a CPU
without a capture, where it can be compared with the other buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specdec.events import MAX_GAMMA
from specdec.forward.attention import attend_fixed, attend_folded
from specdec.forward.kv_buffer import KVBuffer, PassView, angles, as_numbers
from specdec.runtime.tokens import TokenBuffer

SMALLEST = 256  # slots; the bound doubles from here, so a long text needs few captures
WIDEST = 32  # rows of a pass by index; a longer pass, the prompt's, uses slices and is never captured


def bound_of(tokens: int) -> int:
    """The smallest bound that holds ``tokens`` tokens."""
    bound = SMALLEST
    while bound < tokens:
        bound *= 2
    return bound


class StaticPositions:
    """The number of committed tokens, on the host and on the device, and how many slots a pass reads."""

    def __init__(self, device: torch.device, room: int):
        self.length = 0
        self.at = torch.zeros((), dtype=torch.long, device=device)
        self.numbers = torch.arange(room, device=device)
        self.bound = SMALLEST

    def set(self, length: int) -> None:
        """Note that ``length`` tokens are committed."""
        self.length = length
        self.at.fill_(length)
        self.bound = min(bound_of(length + MAX_GAMMA), len(self.numbers))

    def rows(self, start: int, end: int) -> torch.Tensor:
        """The positions from ``start`` to ``end``, (end - start,), by their distance from the committed length."""
        return self.numbers[: end - start] + (self.at + (start - self.length))


class StaticKVBuffer(KVBuffer):
    """A fixed number of slots. They start as zeros, because NaN in a slot would survive a mask."""

    by_slices = False

    def __init__(self, layers: int, shape: tuple[int, ...], like: torch.Tensor, rotary: Any, place: StaticPositions):
        room = len(place.numbers)
        self.held = [like.new_zeros((room, *shape)) for _ in range(layers)]
        self.angles = angles(rotary, room, like)
        self._rotary, self._place = rotary, place

    def renew_angles(self) -> None:
        """Compute the angles anew, where graphs read them: somebody may have changed the module that makes them."""
        for table, values in zip(self.angles, angles(self._rotary, len(self.angles[0]), self.held[0]), strict=True):
            table.copy_(values)

    def span(self, start: int, count: int) -> PassView:
        if count > WIDEST:
            return PassView(start, start + count, self.angles, self.held[0])
        return StaticPassView(self._place, start, start + count, self.angles, self.held[0])


class StaticPassView(PassView):
    """The rows of one pass by index, over all slots up to the bound."""

    def __init__(
        self, place: StaticPositions, start: int, end: int, table: tuple[torch.Tensor, torch.Tensor], like: torch.Tensor
    ):
        self._place, self._like, self._rows = place, like, place.rows(start, end)
        if table[0].numel():
            self.cos, self.sin = (values.index_select(0, self._rows) for values in table)
        else:
            self.cos, self.sin = table
        self._flags: dict[int | None, torch.Tensor] = {}

    @property
    def positions(self) -> torch.Tensor:
        return self._rows

    def write(self, held: torch.Tensor, states: torch.Tensor) -> None:
        held.index_copy_(0, self._rows, states)

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
    ) -> torch.Tensor:
        return (attend_fixed if q.is_cuda else attend_folded)(q, k, v, mask, scale)

    def seen(self, held: torch.Tensor, window: int | None) -> tuple[torch.Tensor, torch.Tensor | None, bool]:
        if window not in self._flags:
            slots, rows = self._place.numbers[: self._place.bound], self._rows[:, None]
            seen = slots <= rows
            if window is not None:
                seen = seen & (slots > rows - window)
            self._flags[window] = as_numbers(seen, self._like)
        return held[: self._place.bound], self._flags[window], False


class StaticTokenBuffer(TokenBuffer):
    """A ``TokenBuffer`` over buffers that outlive the call. Ids are read and written by index."""

    def __init__(self, prompt_ids: torch.Tensor, buffers: torch.Tensor, place: StaticPositions):
        """``buffers`` (2, room): one row for the ids, one for the values of ``keep``."""
        self.tokens = prompt_ids.tolist()
        self.device = buffers.device
        (self._ids, self._kept), self._place = buffers, place
        self._ids[: len(prompt_ids)].copy_(prompt_ids)
        place.set(self.length)

    @property
    def blocks_host(self) -> bool:
        """True, because a captured step must be the same in every round, whatever the values are."""
        return True

    def keep(self, values: torch.Tensor) -> torch.Tensor:
        values = values[: len(self._kept)]  # values beyond the room are never read
        self._kept[: len(values)].copy_(values)
        return self._kept

    def part(self, row: torch.Tensor, start: int, end: int) -> torch.Tensor:
        if end - start > WIDEST:
            return row[start:end]
        return row.index_select(0, self._place.rows(start, end))

    def ids_before(self, end: int) -> torch.Tensor:
        slots = self._place.numbers[: self._place.bound]
        before = slots < self._place.at + (end - self._place.length)
        return torch.where(before, self._ids[: self._place.bound], self._ids[0])

    def write(self, offset: int, ids: torch.Tensor) -> None:
        start = self.length + offset
        self._ids.index_copy_(0, self._place.rows(start, start + len(ids)), ids)

    def commit(self, block: Sequence[int]) -> None:
        super().commit(block)
        self._place.set(self.length)
