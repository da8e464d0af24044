"""Attention where heads share keys is the same by every way to compute it."""

from __future__ import annotations

import pytest
import torch

from specdec.forward import attention


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    groups = len(q) // len(k)
    k, v = (states.repeat_interleave(groups, 0) for states in (k, v))
    return torch.softmax(q @ k.transpose(1, 2) * scale + mask, -1) @ v


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("takes", [True, False], ids=["cuDNN", "folded"])
def test_every_way_gives_the_same(kv_heads: int, rows: int, takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch has one kernel. So this compares what is given to it, not the kernels of a GPU."""
    rng = torch.Generator().manual_seed(kv_heads)
    q, k, v = (
        torch.randn(heads, count, 8, generator=rng) for heads, count in ((6, rows), (kv_heads, 9), (kv_heads, 9))
    )
    mask = torch.where(torch.rand(rows, 9, generator=rng) < 0.7, 0.0, float("-inf"))
    mask[:, 0] = 0.0
    expected = by_hand(q, k, v, mask, 0.3)
    monkeypatch.setattr(attention, "can_use_cudnn_attention", lambda params: takes)
    for found in (
        attention.attend(q, k, v, mask, False, 0.3),
        attention.attend_folded(q, k, v, mask, 0.3),
        attention.attend_fixed(q, k, v, mask, 0.3),
    ):
        assert torch.allclose(found, expected, atol=1e-6)


def test_asking_for_a_kernel_leaves_the_process_as_it_was() -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        q = torch.ones(2, 1, 8)
        attention.attend_fixed(q, q, q, torch.zeros(1, 1), 1.0)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
