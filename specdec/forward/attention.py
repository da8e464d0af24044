"""Attention of the rows of a pass over the slots that they see, where several query heads may share keys and values.

On a GPU two fast kernels of torch take a mask. That of cuDNN also takes heads that share keys. For the other one, heads
that share keys are turned into further rows of one head. Which kernel torch prefers is a setting of the whole process.
So only a pass over fixed buffers asks for cuDNN's: in a round it is captured, asks once, and is replayed many times.
"""

from __future__ import annotations

import threading

import torch
import torch.nn.functional as F
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

# No kernel is left out, because the order holds for all threads of the process.
ORDER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
_ordering = threading.RLock()  # the order becomes what it was, so only one thread at a time may change it


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
) -> torch.Tensor:
    """Attention of ``q`` (heads, n, D) over ``k`` and ``v`` (kv heads, m, D). Returns (heads, n, D).

    ``mask`` (n, m) and ``causal`` are those of torch's ``scaled_dot_product_attention``, which computes it.
    """
    shared = len(k) < len(q)
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=shared
    )[0]


def attend_folded(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """``attend``, with heads that share keys as further rows of one head."""
    groups = len(q) // len(k)
    if groups == 1:
        return attend(q, k, v, mask, False, scale)
    rows = q.reshape(len(k), groups * q.shape[1], q.shape[2])
    found = attend(rows, k, v, None if mask is None else mask.repeat(groups, 1), False, scale)
    return found.reshape(q.shape)


def attend_fixed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """``attend`` in a pass over fixed buffers on a GPU: by cuDNN's kernel where it can be used, else folded."""
    with _ordering, sdpa_kernel(ORDER, set_priority=True):
        if can_use_cudnn_attention(SDPAParams(q[None], k[None], v[None], mask, 0.0, False, True)):
            return attend(q, k, v, mask, False, scale)
    return attend_folded(q, k, v, mask, scale)
