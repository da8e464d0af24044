"""Measures seconds on a device: by the clock on a CPU, by CUDA events on a GPU (read after the round's only wait)."""

from __future__ import annotations

import time
from typing import cast

import torch

Mark = float | torch.cuda.Event  # a point in time on a device


class CallClock:
    """Seconds since the call began, and the thread's processor time of them.

    The time between ``pause`` and ``resume`` does not count.
    """

    def __init__(self) -> None:
        self._began = _now()
        self._paused = self._began

    def elapsed(self) -> float:
        return time.perf_counter() - self._began[0]

    def cpu(self, device: torch.device) -> float | None:
        """Processor seconds of this thread; None for a GPU, where the thread mostly waits."""
        return time.thread_time() - self._began[1] if device.type == "cpu" else None

    def pause(self) -> None:
        self._paused = _now()

    def resume(self) -> None:
        now = _now()
        self._began = self._began[0] + now[0] - self._paused[0], self._began[1] + now[1] - self._paused[1]


def _now() -> tuple[float, float]:
    """The time, and the thread's processor time."""
    return time.perf_counter(), time.thread_time()


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
