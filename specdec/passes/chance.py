"""All chance in decoding comes from these two functions, so that a test can go through every outcome."""

from __future__ import annotations

import torch


def draw(probabilities: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Draw one token id from each row (n, V), (n,)."""
    return torch.multinomial(probabilities, 1, generator=rng).squeeze(1)


def uniform(count: int, rng: torch.Generator, like: torch.Tensor) -> torch.Tensor:
    """Draw ``count`` numbers on [0, 1), of the device and dtype of ``like``, (count,)."""
    return torch.rand(count, generator=rng, device=like.device, dtype=like.dtype)
