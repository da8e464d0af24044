"""Faults of a machine, simulated in the page's own process: each occurs once, in the next pass of a model."""

from __future__ import annotations

from pathlib import Path

import torch

from specdec.passes.runner import Runner

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."
DEVICE_LOST = "CUDA error: device-side assert triggered"


def inject(order: Path) -> None:
    """From now on a pass that finds the file ``order`` deletes it and raises the fault named in it."""
    forward = Runner.forward

    def faulty(self: Runner, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        if not order.exists():
            return forward(self, ids, keep)
        fault = order.read_text()
        order.unlink()
        if fault == "memory":
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if fault == "device":
            raise getattr(torch, "AcceleratorError", RuntimeError)(DEVICE_LOST)
        return forward(self, ids, keep) * float("nan")

    Runner.forward = faulty
