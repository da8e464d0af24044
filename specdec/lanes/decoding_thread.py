"""Runs any lane on the decoding thread without pauses, and yields its events in batches.

Nothing here waits for the consumer, because pausing ``generate`` at every token would make it slower. There is one
decoding thread for the life of the process: CPU kernels keep a team of threads for each thread that calls them.
"""

from __future__ import annotations

import gc
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

import torch

from specdec.errors import DeviceLost, InvalidInput, OutOfMemory, SpecdecError, identified
from specdec.events import Event, Finished, Round, require_number

LONGEST = 3600.0  # seconds between two batches

Emit = Callable[[Event], None]
Batches = Generator[list[Event], None, None]  # close it to leave before the end


class _Cancelled(BaseException):
    """Ends ``generate`` from within its streamer. Not an ``Exception``, so that nothing on the way catches it."""


def _start_decoding_thread() -> None:
    global _decoding_thread
    _decoding_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD_NAME)


_THREAD_NAME = "specdec-decode"
_decoding_thread: ThreadPoolExecutor
_start_decoding_thread()
os.register_at_fork(after_in_child=_start_decoding_thread)  # threads do not survive a fork


class PushedLane(Iterator[Event]):
    """A lane that pushes its events instead of yielding them. Iterating over it runs it on the decoding thread."""

    def __init__(self, run: Callable[[Emit], None]):
        self.run = run
        self._batches: Batches | None = None
        self._events: Iterator[Event] | None = None

    def __next__(self) -> Event:
        if self._events is None:
            # ``driven`` gets a copy. With this object, both would refer to each other, and a lane that nobody reads any
            # more would go on.
            self._batches = driven(PushedLane(self.run))
            self._events = chain.from_iterable(self._batches)
        return next(self._events)

    def close(self) -> None:
        """End the work at once; there are no further events."""
        if self._batches is not None:
            self._batches.close()
        self._batches, self._events = None, iter(())


def driven(lane: Iterator[Event], interval: float = 0.0, max_seconds: float | None = None) -> Batches:
    """Run ``lane`` on the decoding thread without pauses. Yield its events in order, in batches.

    At least ``interval`` seconds lie between two batches. While there is nothing new (the lane waits for its turn, or
    reads a long prompt), an empty batch comes now and then, so that the consumer can act. Closing this generator
    cancels the lane: it ends at its next event, and closing waits for that. After ``max_seconds`` a lane is ended with
    ``Finished("deadline")``.

    Arguments are checked at once: ``InvalidInput``; both are seconds, 0 or more. Raises what the lane raises. Raises
    ``OutOfMemory`` where the device has too little memory, after freeing what the lane held, and ``DeviceLost`` where a
    GPU no longer computes anything.
    """
    require_number("interval", interval, 0, LONGEST)
    if max_seconds is not None:
        require_number("max_seconds", max_seconds, 0, math.inf)
    if not isinstance(lane, Iterator):
        raise InvalidInput(f"The lane is {identified(lane)}; give what speculative() or another lane returns.")
    return _driven(lane, interval, max_seconds)


def _driven(lane: Iterator[Event], interval: float, max_seconds: float | None) -> Batches:
    if _on_decoding_thread():  # it would wait for itself
        raise InvalidInput("The lane is wrapped in a generator; pass the lane itself to driven().")
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    cancelled = threading.Event()
    rounds: list[float] = []  # elapsed seconds of the first and the latest round

    def emit(event: Event) -> None:
        if cancelled.is_set():
            raise _Cancelled
        late = max_seconds is not None and rounds and rounds[-1] > max_seconds
        if late and not isinstance(event, Finished):
            events.put(Finished("deadline", rounds[0], rounds[-1]))
            raise _Cancelled
        events.put(event)
        if isinstance(event, Round):
            rounds[min(1, len(rounds)) :] = [event.elapsed_seconds]

    def work() -> None:
        fault = None
        try:
            lane.run(emit) if isinstance(lane, PushedLane) else _pull(lane, emit)
        except _Cancelled:
            pass
        except (RuntimeError, MemoryError) as error:
            fault = _fault_of(error)
            if fault is None:
                raise
        finally:
            events.put(None)
        if fault is not None:
            # Raised here, without the original error, whose frames hold the tensors of the call.
            if isinstance(fault, OutOfMemory):
                gc.collect()
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
            raise fault

    running: Future[None] = _decoding_thread.submit(work)
    try:
        ended = False
        while not ended:
            drained = _drain(events, interval)
            batch = [event for event in drained if event is not None]
            ended = len(batch) < len(drained)
            if batch or not ended:
                yield batch
        running.result()  # raises an error of the lane, after the events before it
    finally:
        cancelled.set()
        # A consumer may drop this generator without closing it. Then the garbage collector closes it, in any thread: in
        # the decoding thread the lane itself would wait for its own end.
        if not running.cancel() and not _on_decoding_thread():
            running.exception()


def _on_decoding_thread() -> bool:
    return threading.current_thread().name.startswith(_THREAD_NAME)


def _fault_of(error: Exception) -> SpecdecError | None:
    """The error to raise for an error of torch; None where it is no fault of the device."""
    if isinstance(error, SpecdecError):
        return None
    reason = next(iter(str(error).strip().splitlines()), "no reason given").rstrip(".")
    of_gpu = isinstance(error, torch.AcceleratorError) or "CUDA error" in reason
    full = ("can't allocate memory", "not enough memory", *(("out of memory", "ALLOC_FAILED") if of_gpu else ()))
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in reason for words in full):
        return OutOfMemory()
    return DeviceLost(reason) if of_gpu else None


def _drain(events: queue.SimpleQueue[Event | None], interval: float) -> list[Event | None]:
    """Everything in the queue, ``interval`` seconds after its first entry; [] if none comes for a while.

    The entry after the last event of a lane is None.
    """
    try:
        batch = [events.get(timeout=max(interval, 0.1))]
    except queue.Empty:
        return []
    if interval and batch[0] is not None:
        time.sleep(interval)
    while not events.empty():
        batch.append(events.get())
    return batch


def _pull(lane: Iterator[Event], emit: Emit) -> None:
    try:
        for event in lane:
            if not isinstance(event, Event):
                raise InvalidInput(f"The lane yielded {identified(event)}; give a generator of events to driven().")
            emit(event)
    finally:
        if hasattr(lane, "close"):
            lane.close()
