"""Keys and values of one call in one buffer a layer, and the rotary angles of its positions."""

from __future__ import annotations

from typing import Any

import torch

ROOM = 256  # free slots after the prompt, at least


class Slots:
    """One slot for each token and layer. A pass overwrites what lies behind its start; a full buffer grows.

    held    a tensor (room, *shape) for each layer; ``shape`` holds the keys and values of one token
    angles  cosines and sines (room, rotary dimensions) by position; the first half of the sines is negated
    """

    def __init__(self, layers: int, shape: tuple[int, ...], like: torch.Tensor):
        self.held = [like.new_empty((0, *shape)) for _ in range(layers)]
        self.angles: tuple[torch.Tensor, torch.Tensor] = (like.new_empty(0, 0), like.new_empty(0, 0))
        self._room = 0

    def reserve(self, end: int, rotary: Any) -> None:
        """Make room for ``end`` tokens; ``rotary`` is the model's module of rotary angles, if it has one."""
        if end <= self._room:
            return
        self._room = end + max(ROOM, end // 8)
        for place, old in enumerate(self.held):
            self.held[place] = old.new_empty((self._room, *old.shape[1:]))
            self.held[place][: len(old)] = old
        if rotary is not None:
            like = self.held[0]
            cos, sin = rotary(like, torch.arange(self._room, device=like.device)[None])
            half = sin.shape[-1] // 2
            self.angles = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
