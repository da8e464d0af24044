"""Runs tasks on ZeroGPU, which lends a GPU to one task at a time.

There the page's own process has no GPU. The package ``spaces`` forks a process for each GPU and keeps it for further
tasks. A task is pickled to be sent there, and so are its steps on the way back. Other changes in the page's process do
not reach it, so its pair is the one from the launch of the page.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Generator
from contextlib import closing
from typing import Any

import gradio as gr
import spaces

from specdec.errors import SpecdecError
from specdec.events import Round
from specdec.measure.plan import Trial
from specdec.measure.task import Task, TaskRunner
from specdec.models.pair import Pair

LOG = logging.getLogger(__name__)

# Seconds to ask for. A visitor has few of them a day. A task that takes longer than it asked for may be ended.
LEAST, MOST = 10, 60
START = 5.0  # seconds until a new process has the weights on its GPU
RATE = 40.0  # tokens per second, assumed until a task of the kind has ended

_pair: Pair
# Rates of the latest tasks by kind of work. Kinds differ: a test of short texts spends most of its time on prompts.
_rates: dict[str, deque[float]] = defaultdict(lambda: deque([RATE], maxlen=8))


class DeviceFailed(SpecdecError):
    """Work on the GPU did not run to its end."""


def zero_run(pair: Pair) -> TaskRunner:
    """The function that runs tasks with ``pair`` on ZeroGPU. Call this before the page is launched."""
    global _pair
    _pair = pair
    return run


def run(task: Task[Any]) -> Generator[Any, None, None]:
    """Run ``task`` in another process and yield its steps. Raises errors of the task, or ``DeviceFailed``.

    A ``gr.Error`` says why there is no GPU, for example because the visitor's time is used up. ``spaces`` finds the
    visitor in the context of the code that asks for the first step. Closing the generator waits until the task has
    ended, at its next step.
    """
    began, written = None, 0
    try:
        with closing(_steps(task)) as steps:
            for step in steps:
                began = began or time.monotonic()  # the time before was the wait for a GPU
                if isinstance(step, SpecdecError):
                    raise step
                written += _tokens(step)
                yield step
    except gr.Error as error:
        if error.title != "ZeroGPU worker error":
            raise
        asked = seconds_for(task)
        _rates[_kind(task)].append(task.tokens / MOST)  # the next task of this kind asks for the longest time
        raise DeviceFailed(
            f"The process on the GPU ended before the work was done ({error.message}). The work may have taken longer "
            f"than the "
            f"{asked}\u00a0s that the page asked for. Ask for less work, or try again."
        ) from error
    if (
        began is not None and (written or task.tokens) > task.tokens / 4
    ):  # a short task spends most of its time starting
        # A text may end early. If steps have no tokens, the task has written all its tokens.
        _rates[_kind(task)].append((written or task.tokens) / max(1e-3, time.monotonic() - began))


def seconds_for(task: Task[Any]) -> int:
    """The seconds of a GPU to ask for, from the slowest of the latest tasks of this kind."""
    return round(min(MOST, max(LEAST, START + task.tokens / min(_rates[_kind(task)]))))


@spaces.GPU(duration=seconds_for)  # type: ignore[untyped-decorator]
def _steps(task: Task[Any]) -> Generator[Any, None, None]:
    """The steps of ``task``, in the process with the GPU.

    An error is yielded as the last step. If it were raised, only the name of its class would reach the page's process.
    """
    try:
        yield from task.run(_pair)
    except SpecdecError as error:
        yield error
    except Exception:
        LOG.exception("A task on the GPU failed.")
        yield DeviceFailed("It failed on the GPU. The log of the program gives the reason.")


def _tokens(step: Any) -> int:
    """The number of new tokens in a step."""
    if isinstance(step, Trial):
        return len(step.token_ids)
    return sum(len(event.committed_ids) for event in step if isinstance(event, Round)) if isinstance(step, list) else 0


def _kind(task: Task[Any]) -> str:
    return getattr(task.run, "func", task.run).__name__
