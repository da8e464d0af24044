"""A stand-in for the package ``spaces`` without ZeroGPU: it runs a generator as version 0.51.3 does, without a GPU.

It does the same as ``generator_function_wrapper`` in ``zero/wrappers.py``:

- a worker is forked from the page's process and kept for further tasks;
- arguments and steps are pickled;
- the stop flag is checked after each step;
- closing the caller's generator waits until the worker has ended the task;
- of an error other than ``gr.Error`` the caller gets only the class name, and the worker is not used again.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from typing import Any

import gradio as gr

fork = multiprocessing.get_context("fork")
asked: list[int] = []  # the seconds of each task
forks: list[int] = []  # the process ids of the workers
refusal: gr.Error | None = None  # what the API answers to the next task
_idle: list[Worker] = []


class Worker:
    def __init__(self, target: Callable[..., None]):
        self.tasks, self.results = fork.SimpleQueue(), fork.SimpleQueue()
        self.stop = fork.Event()
        self.process = fork.Process(target=target, args=(self.tasks, self.results, self.stop), daemon=True)
        self.process.start()
        forks.append(self.process.pid)
        threading.Thread(target=self._tell_the_end, daemon=True).start()

    def _tell_the_end(self) -> None:
        self.process.join()
        self.results.put(("aborted", None))


def GPU(task: Any = None, *, duration: Any = 60) -> Any:
    return (lambda task: _wrapped(task, duration)) if task is None else _wrapped(task, duration)


def _error(title: str, message: str) -> gr.Error:
    return gr.Error(message, title=title, print_exception=False)


def _wrapped(task: Callable[..., Iterator[Any]], duration: Any) -> Callable[..., Iterator[Any]]:
    @wraps(task)
    def handler(*args: Any) -> Iterator[Any]:
        global refusal
        asked.append(duration(*args) if callable(duration) else duration)
        if refusal is not None:
            error, refusal = refusal, None
            raise error
        worker = _idle.pop() if _idle else None
        if worker is None or not worker.process.is_alive():
            worker = Worker(work)
        worker.tasks.put(args)
        steps: queue.Queue[tuple[str, Any]] = queue.Queue()

        def fill() -> None:
            while True:
                kind, value = worker.results.get()
                if kind == "end":
                    _idle.append(worker)
                steps.put((kind, value))
                if kind != "step":
                    return

        with ThreadPoolExecutor(1) as executor:
            executor.submit(copy_context().run, fill)
            while True:
                kind, value = steps.get(timeout=120)
                if kind == "end":
                    return
                if kind == "aborted":
                    raise _error("ZeroGPU worker error", "GPU task aborted")
                if kind == "error":
                    raise value if isinstance(value, gr.Error) else _error("ZeroGPU worker error", value)
                try:
                    yield value
                except GeneratorExit:
                    worker.stop.set()
                    raise

    def work(tasks: Any, results: Any, stop: Any) -> None:
        while True:
            args = tasks.get()
            stop.clear()
            with ThreadPoolExecutor() as executor:  # each task has a thread of its own
                executor.submit(copy_context().run, iterate, args, results, stop)
            results.put(("end", None))

    def iterate(args: Any, results: Any, stop: Any) -> None:
        generator = task(*args)
        while True:
            try:
                step = next(generator)
            except StopIteration:
                break
            except Exception as error:
                results.put(("error", error if isinstance(error, gr.Error) else type(error).__name__))
                break
            if stop.is_set():
                generator.close()
                break
            try:
                results.put(("step", step))
            except Exception as error:
                results.put(("error", type(error).__name__))
                break

    return handler


def idle() -> list[int]:
    """The process ids of the workers that wait for a task."""
    return [worker.process.pid for worker in _idle if worker.process.is_alive() and worker.process.pid != os.getpid()]
