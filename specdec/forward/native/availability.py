"""Whether passes can be native on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from specdec.forward.native.build import SWITCH, library

PASS = Path(__file__).with_name("pass.c")


def why_torch(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why no model of this type on this device can have native passes; None if nothing speaks against them."""
    if os.environ.get(SWITCH) == "0":
        return f"Native passes are switched off (--no-native, or {SWITCH}=0)."
    if device.type != "cpu" or dtype != torch.float32:
        return "Native passes are for float32 weights on a CPU."
    found = library(PASS)
    return found if isinstance(found, str) else None
