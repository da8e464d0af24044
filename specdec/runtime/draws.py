"""The only two functions that draw random numbers in decoding, so that a test can go through every outcome."""

from __future__ import annotations

import torch


def draw(probabilities: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Draw one token id from each row (n, V), (n,).

    Of independent exponential times with rates p, the shortest is that of token i with probability p[i].
    ``multinomial`` draws one token in the same way, but asserts first that p holds no NaN, and on a GPU a failed
    assertion ends all work of the process. Here NaN passes, and ``observe`` refuses it.
    """
    return (probabilities / torch.empty_like(probabilities).exponential_(generator=rng)).argmax(-1)


def uniform(count: int, rng: torch.Generator, like: torch.Tensor) -> torch.Tensor:
    """Draw ``count`` numbers on [0, 1), of the device and dtype of ``like``, (count,)."""
    return torch.rand(count, generator=rng, device=like.device, dtype=like.dtype)
