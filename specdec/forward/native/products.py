"""Products of a few rows with a float32 matrix, in C (``products.c``), on one thread.

torch's product of 6 rows takes 2.3 to 4 times as long as that of one row, although it reads the same weights. This one
takes 1.1 to 1.4 times as long, so a check of several draft tokens costs little more than a pass over one. A row's
result is the same to the last bit, alone and beside others.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

import torch

from specdec.forward.native.build import SWITCH, library

MOST = 17  # rows; for more of them torch's product is as fast
_SOURCE = Path(__file__).with_name("products.c")
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_LINEAR = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int, _POINTER, _POINTER, _POINTER, _SIZE, _SIZE)

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def product_for(dtype: torch.dtype, device: torch.device) -> Product | str:
    """The native product for a model's weights, or a sentence that says why its products are torch's."""
    if os.environ.get(SWITCH) == "0":
        return f"Native products are switched off ({SWITCH}=0)."
    if device.type != "cpu" or dtype != torch.float32:
        return "Native products are for float32 weights on a CPU."
    if (threads := torch.get_num_threads()) > 1:
        return f"Native products use one thread, and torch uses {threads}."
    found = library(_SOURCE)
    if isinstance(found, str):
        return found
    return _product(found)


@functools.cache
def _product(found: ctypes.CDLL) -> Product:
    linear = _LINEAR(("linear", found))

    def product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """``F.linear`` of ``x`` (rows, in), and of contiguous ``weight`` (out, in) and ``bias`` (out,): (rows, out)."""
        x = x.contiguous()
        (rows, width), (out, size) = x.shape, weight.shape
        if width != size:
            raise RuntimeError(f"A matrix for {size} numbers cannot multiply a row of {width}.")
        y = x.new_empty(rows, out)
        added = None if bias is None else bias.data_ptr()
        linear(x.data_ptr(), rows, weight.data_ptr(), added, y.data_ptr(), out, size)
        return y

    return product
