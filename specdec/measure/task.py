"""A piece of work for the device, as a value that can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from specdec.models.pair import Pair

Step = TypeVar("Step")


@dataclass(frozen=True, slots=True)
class Task(Generic[Step]):
    """``run(pair)`` yields steps: batches of events, trials, progress. Empty steps let the consumer act.

    ``run`` and its steps can be pickled. ``run`` is a function of a module, or ``functools.partial`` of one. ``tokens``
    is how many new tokens it writes at most, over all lanes and runs; the task's time is estimated from it.
    """

    run: Callable[[Pair], Generator[Step, None, None]]
    tokens: int


TaskRunner = Callable[[Task[Any]], Generator[Any, None, None]]
"""What runs a task with the loaded pair. Closing the generator ends the task."""
