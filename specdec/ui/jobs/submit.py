"""Connects Gradio's listeners with the queue of jobs: asks for a job and follows it on the web server's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import gradio as gr

from specdec.ui.jobs.context import Job, QueuePosition
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.visitor import Visitor, address_of

T = TypeVar("T")

INTERNAL: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
}  # options of a listener for the page only
UNLIMITED: dict[str, Any] = {"concurrency_limit": None}  # Gradio's queue passes all jobs on to the queue of jobs

TICK = 1.0  # seconds between two checks of the jobs ahead


async def followed(jobs: JobQueue, request: gr.Request, job: Job) -> AsyncGenerator[Any, None]:
    """Ask for a job. Yield what is ahead of it (``QueuePosition``) when that changes, then the values of its work.

    Raises what the job raises, and ``Refused`` if it does not run. A caller that leaves before the end must close the
    generator, which tells the job to end and does not wait for that.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

    def tell(kind: str, value: Any) -> None:
        with suppress(RuntimeError):  # the server and its loop are closed
            loop.call_soon_threadsafe(news.put_nowait, (kind, value))

    visitor = Visitor(request.session_hash or "", address_of(request, jobs.proxies))
    place = jobs.join(visitor, job, tell)
    told = None
    try:
        while True:
            if (ahead := jobs.ahead(place)) is not None and ahead.jobs and ahead != told:
                told = ahead
                yield ahead
            try:
                kind, value = await asyncio.wait_for(news.get(), TICK if place.began is None else None)
            except TimeoutError:
                continue
            if kind == "end":
                return
            if kind == "error":
                try:
                    raise value
                finally:
                    del value  # else its traceback and this frame would hold each other
            yield value
    finally:
        jobs.leave(place)


def short_job(kind: str, work: Callable[[], Any]) -> Job:
    """A job that yields what ``work`` returns, and does not need the device."""
    return Job(kind, 0, lambda context: iter([work()]), device=False)


async def done(jobs: JobQueue, request: gr.Request, kind: str, work: Callable[[], T]) -> T:
    """What ``work`` returns, in its turn among the short jobs. Raises what it raises, and ``Refused``."""
    async with aclosing(followed(jobs, request, short_job(kind, work))) as steps:
        found: list[T] = [step async for step in steps if not isinstance(step, QueuePosition)]
    return found[-1]
