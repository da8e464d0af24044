"""How much memory a device has left."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be had on ``device``; on a CPU within the limit of the container it runs in."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
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
