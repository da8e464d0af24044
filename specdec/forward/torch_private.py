"""The private names of torch that specdec uses. No other module of the package uses one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from specdec.private import Package

_TORCH = Package("torch")

# The keys under which ``vars`` of a module has its contents. ``lean_check`` looks at every module of a model before
# each call, and a checked access to each would slow that down. So they are checked here, once.
CHILDREN, PARAMETERS, BUFFERS, HOOKS, PRE_HOOKS, COMPILED = (
    "_modules", "_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks", "_compiled_call_impl",
)  # fmt: skip
_TORCH.require(nn.Module(), CHILDREN, PARAMETERS, BUFFERS, HOOKS, PRE_HOOKS, COMPILED)
_TORCH.require(torch.Tensor, "_version")

has_global_hook: Callable[[], bool] = _TORCH.function("torch.nn.modules.module", "_has_any_global_hook")
"""Whether a hook is registered for all modules."""


def children_of(module: nn.Module) -> dict[str, Any]:
    """The modules directly in ``module`` by name, in torch's own dict. A value may be None."""
    return module._modules


def parameters_of(module: nn.Module) -> dict[str, Any]:
    """The parameters directly in ``module`` by name, in torch's own dict. A value may be None."""
    return module._parameters


def copy_with(module: Any, children: dict[str, Any]) -> Any:
    """A shallow copy of ``module`` with these children. It shares its parameters with ``module``."""
    twin = copy.copy(module)
    _TORCH.set(twin, CHILDREN, children)
    return twin


def identity_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Memory, number type, shape, strides and version of a tensor. The version counts its changes in place."""
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), version


def is_compiled(module: nn.Module) -> bool:
    """Whether ``module.compile()`` was called."""
    return _TORCH.get(module, COMPILED) is not None


def copy_compiled(module: nn.Module, twin: nn.Module) -> None:
    """Give a copy of ``module`` its compiled pass, which copying leaves out."""
    _TORCH.set(twin, COMPILED, _TORCH.get(module, COMPILED))


def wrap_pass(module: nn.Module, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put ``wrapped(run)`` in the place of ``run``, which computes a pass of ``module``."""
    name = COMPILED if is_compiled(module) else "forward"
    _TORCH.set(module, name, wrapped(_TORCH.get(module, name)))
