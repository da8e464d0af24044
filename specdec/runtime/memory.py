"""Reads how much memory a device has left."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Free bytes on ``device``; on a CPU within the limit of the container."""
    if device.type == "cuda":  # memory that torch keeps unused counts as free
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
    # Cached files count as used, although their memory can be taken.
    files = dict(line.split() for line in facts.splitlines()).get("inactive_file", 0)
    return max(0, min(free, int(limit) - int(used) + int(files)))
