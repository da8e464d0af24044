"""Faults of a machine, simulated in the page's own process: each occurs once, in the next pass of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from specdec.forward.runner import Runner

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."
DEVICE_LOST = "CUDA error: device-side assert triggered"


def inject(order: Path) -> None:
    """From now on a pass that finds the file ``order`` deletes it and raises the fault named in it."""
    forward = Runner.forward

    def faulty(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not order.exists():
            return forward(*args, **kwargs)
        fault = order.read_text()
        order.unlink()
        if fault == "memory":
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if fault == "device":
            raise getattr(torch, "AcceleratorError", RuntimeError)(DEVICE_LOST)
        return forward(*args, **kwargs) * float("nan")

    Runner.forward = faulty
