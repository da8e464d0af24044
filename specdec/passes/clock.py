"""Measures seconds on a device: by the clock on a CPU, by CUDA events on a GPU (read after the round's only wait)."""

from __future__ import annotations

import time
from typing import cast

import torch

Mark = float | torch.cuda.Event  # a point in time on a device


class CallClock:
    """Seconds since the call began, without the time in which the consumer holds an event."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._paused = 0.0

    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def pause(self) -> None:
        self._paused = time.perf_counter()

    def resume(self) -> None:
        self._began += time.perf_counter() - self._paused


def mark(device: torch.device) -> Mark:
    """A point in time on ``device``. It does not wait for the device."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def between(start: Mark, end: Mark) -> float:
    """Seconds between two marks. On a GPU this waits until the device has passed the later one."""
    if isinstance(start, float) or isinstance(end, float):
        return cast(float, end) - cast(float, start)
    end.synchronize()  # passed already, except for work that followed the round's own wait
    return float(start.elapsed_time(end)) / 1000


def taken(marks: list[tuple[Mark, Mark]]) -> float:
    """Add up the seconds between the marks of each pair, and drop the marks."""
    seconds = sum((between(start, end) for start, end in marks), 0.0)
    marks.clear()
    return seconds
