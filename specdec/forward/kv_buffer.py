"""The keys and values of one call in one buffer for each layer, and the places of a pass's rows in them."""

from __future__ import annotations

from typing import Any

import torch

from specdec.forward.attention import attend, attend_folded

SPARE = 256  # free slots after the prompt, at least
FEW = 64  # rows; a mask of up to so many is turned into numbers
READ_AHEAD = 1 << 20  # bytes; a matrix up to here fits in a core's L2 cache


class KVBuffer:
    """One slot for each token and layer. A pass overwrites the slots after its start. A full buffer grows.

    held       a tensor (room, *shape) for each layer; ``shape`` holds the keys and values of one token
    workspace  what native passes keep for these tensors; None before the first
    angles     cosines and sines (room, rotary dimensions) by position; the first half of the sines is negated, because
               rotating two halves is then a roll, two products and a sum
    """

    by_slices = True  # rows are written where their positions say, and not by index

    def __init__(self, layers: int, shape: tuple[int, ...], like: torch.Tensor, rotary: Any):
        self.held = [like.new_empty((0, *shape)) for _ in range(layers)]
        self.angles = angles(None, 0, like)
        self.workspace: Any = None
        self._rotary = rotary
        self._room = 0

    def span(self, start: int, count: int) -> PassView:
        """The places of ``count`` rows after ``start`` tokens."""
        self.reserve(start + count)
        return PassView(start, start + count, self.angles, self.held[0])

    def reserve(self, end: int) -> None:
        """Make room for ``end`` tokens."""
        if end <= self._room:
            return
        self.workspace, room = None, end + max(SPARE, end // 8)
        for place, old in enumerate(self.held):
            self.held[place] = old.new_empty((room, *old.shape[1:]))
            self.held[place][: self._room] = old[: self._room]
        self.angles = angles(self._rotary, room, self.held[0])
        self._room = room  # last, because any of this may be interrupted


class PassView:
    """The rows of one pass, n of them after ``start`` tokens: slices of the slots.

    cos, sin  (n, rotary dimensions): the angles of the rows' positions
    """

    def __init__(self, start: int, end: int, table: tuple[torch.Tensor, torch.Tensor], like: torch.Tensor):
        self.cos, self.sin = table[0][start:end], table[1][start:end]
        self._start, self._end, self._like = start, end, like
        self._masks: dict[int | None, tuple[int, torch.Tensor | None]] = {}

    @property
    def positions(self) -> torch.Tensor:
        """(n,)."""
        return torch.arange(self._start, self._end, device=self._like.device)

    def write(self, held: torch.Tensor, states: torch.Tensor) -> None:
        """Put the rows' ``states`` (n, *shape) into a layer's slots."""
        held[self._start : self._end].copy_(states)

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
    ) -> torch.Tensor:
        """Attention of ``q`` (heads, n, D) over ``k`` and ``v`` (kv heads, m, D); see ``attention.attend``."""
        if q.is_cuda and mask is not None and self._start > 0:
            return attend_folded(q, k, v, mask, scale)
        return attend(q, k, v, mask, causal, scale)

    def seen(self, held: torch.Tensor, window: int | None) -> tuple[torch.Tensor, torch.Tensor | None, bool]:
        """The slots that the rows see (m, *shape), their mask (n, m) or None, and if ``is_causal`` takes its place."""
        if window not in self._masks:
            self._masks[window] = _mask(self._start, self._end, window, self._like)
        low, mask = self._masks[window]
        seen = held[low : self._end]
        if seen.nbytes <= 2 * READ_AHEAD and seen.device.type == "cpu":
            seen.sum()  # reads ahead as ``Matrix`` does, because the kernel reads head by head
        return seen, mask, mask is None and self._end - self._start > 1


def angles(rotary: Any, room: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (room, rotary dimensions) of the positions from 0 on; half of the sines is negated.

    Both are empty for a model without rotary angles.
    """
    if rotary is None:
        return like.new_empty(0, 0), like.new_empty(0, 0)
    cos, sin = rotary(like, torch.arange(room, device=like.device)[None])
    half = sin.shape[-1] // 2
    return cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)


def as_numbers(seen: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Turn a mask of flags into the numbers that are added to the scores, once and not in every layer."""
    return torch.where(seen, like.new_zeros(()), like.new_full((), float("-inf")))


def _mask(start: int, end: int, window: int | None, like: torch.Tensor) -> tuple[int, torch.Tensor | None]:
    """The first slot that any row sees, and the mask of each row from there on, (n, slots) or None.

    None means that a single row sees all slots. With an empty cache it means a causal mask (``is_causal``).
    """
    low = 0 if window is None else max(0, start - window + 1)
    cut = window is not None and end - low > window  # some row does not see all tokens before it
    if end - start == 1 or (start == 0 and not cut):
        return low, None
    seen = torch.ones(end - start, end - low, dtype=torch.bool, device=like.device).tril_(start - low)
    if cut and window is not None:
        seen.triu_(start - low - window + 1)
    return low, seen if end - start > FEW else as_numbers(seen, like)
