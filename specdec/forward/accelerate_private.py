"""The private names of accelerate that specdec uses. No other module of the package uses one."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import nn

from specdec.private import Package

_ACCELERATE = Package("accelerate")

HOOK, _FORWARD = "_hf_hook", "_old_forward"  # where a module keeps its hook, and the forward that it had before

# A module has these attributes only where accelerate has put a hook. So one is put on a module here, to see them.
_hooked = add_hook_to_module(nn.Identity(), AlignDevicesHook())
_ACCELERATE.require(_hooked, HOOK, _FORWARD)
_ACCELERATE.require(_ACCELERATE.get(_hooked, HOOK), "execution_device")
if not isinstance(_hooked.forward, partial):
    raise _ACCELERATE.changed("forward of a hooked module that is a functools.partial")


def is_spread(model: nn.Module) -> bool:
    """Whether accelerate moves weights or inputs of ``model`` between devices."""
    return any(HOOK in vars(module) for module in model.modules())


def execution_device(model: nn.Module) -> torch.device | None:
    """The device of the first module for which a hook names one; None if none does."""
    for module in model.modules():
        device = getattr(vars(module).get(HOOK), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return None


def move_forward(module: Any, twin: Any) -> None:
    """Let a hook that was copied with ``module`` run ``twin``, the copy, in place of the original."""
    if isinstance(module.forward, partial):
        _ACCELERATE.set(twin, _FORWARD, MethodType(type(module).forward, twin))
        twin.forward = partial(module.forward.func, twin)
