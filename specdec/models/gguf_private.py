"""The private names of transformers and gguf that specdec needs for GGUF files. No other module uses one of them."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers.integrations.gguf import kernels, reader

from specdec.private import Package

_HF, _GGUF = Package("transformers"), Package("gguf")


def metadata_in(data: np.ndarray, name: str, texts: tuple[str, ...]) -> tuple[dict[str, Any], int, int]:
    """The metadata at the beginning of a GGUF file, the number of its tensors, and the position of their list.

    ``texts`` are the keys whose lists of texts are read; others are skipped. ``name`` is for transformers' messages.
    """
    return _HF.get(reader, "_read_metadata")(data, name, texts)


def tensors_in(data: np.ndarray, count: int, position: int) -> tuple[list[tuple[str, tuple[int, ...], int, int]], int]:
    """Names, shapes, types and offsets of ``count`` tensors listed at ``position``, and the position after the list."""
    return _HF.get(reader, "_read_tensor_table")(data, count, position)


def plain_dtypes() -> dict[int, torch.dtype]:
    """The numbers of GGUF's types that are not packed, and torch's types for them."""
    return _HF.get(reader, "_TORCH_DTYPE")


@contextmanager
def guarded() -> Iterator[None]:
    """While this lasts, transformers fetches no code for GGUF layers from the hub, and finds names of tensors soon."""
    with ExitStack() as stack:
        _HF.require(kernels, "is_kernels_available")
        stack.enter_context(mock.patch.object(kernels, "is_kernels_available", lambda: False))
        if importlib.util.find_spec("gguf") is not None:
            import gguf

            # transformers makes the same table for each module of a model.
            once = functools.cache(_GGUF.get(gguf, "get_tensor_name_map"))
            stack.enter_context(mock.patch.object(gguf, "get_tensor_name_map", once))
        yield
