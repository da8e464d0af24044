"""How much memory a call needs beside the weights, and how much a device has left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import torch

from specdec.events import MAX_GAMMA
from specdec.passes.facts import context_length

_CGROUP = Path("/sys/fs/cgroup")

# What a call is planned with. These are assumptions, not measurements.
PLANNED_TOKENS = 4096  # prompt and new tokens of a call; twice the most new tokens that the page takes
WORKSPACE = 512 * 2**20  # bytes on a GPU for the libraries' scratch memory, their kernels and a pass's own values


def cache_bytes(config: Any, dtype: torch.dtype) -> int:
    """Keys and values of one call of ``PLANNED_TOKENS``, or of as many as the model's context holds.

    Every layer is taken to keep all tokens, so this is more than a model with windows or convolutions needs.
    """
    text = config.get_text_config(decoder=True)
    tokens = min(context_length(config) or PLANNED_TOKENS, PLANNED_TOKENS)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * size * tokens * dtype.itemsize


def row_bytes(config: Any) -> int:
    """Logits and probabilities of a round of the longest draft, in float32."""
    return 2 * (MAX_GAMMA + 1) * config.get_text_config(decoder=True).vocab_size * torch.float32.itemsize


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be had on ``device``; on a CPU within the limit of the container it runs in."""
    if device.type == "cuda":  # what torch keeps of earlier calls and does not use counts as free
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    free = psutil.virtual_memory().available
    try:
        limit, used, facts = (
            (_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:
        return free
    if limit == "max":
        return free
    # Files read lately count as used, though they make way.
    files = dict(line.split() for line in facts.splitlines()).get("inactive_file", 0)
    return max(0, min(free, int(limit) - int(used) + int(files)))


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
