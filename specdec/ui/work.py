"""Between Gradio's listeners and the machine: a job is asked for, waited for and followed on the web server's loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import gradio as gr

from specdec.ui.callers import address_of
from specdec.ui.machine import Job, Machine, Visitor

INTERNAL: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}  # a listener for the page only
UNLIMITED: dict[str, Any] = {"concurrency_limit": None}  # Gradio's queue lets all through to the machine's queue

TICK = 1.0  # seconds between two checks of what is ahead


async def followed(machine: Machine, request: gr.Request, job: Job) -> AsyncGenerator[Any, None]:
    """Ask for a job; yield what is ahead of it (``Ahead``), each time that changes, and then the values of its work.

    Raises what the job raises, and ``Refused`` where it does not run. A caller that leaves before the end must close
    the generator, which tells the job to end and does not wait for it.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()

    def tell(kind: str, value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server is closed, and its loop with it
            loop.call_soon_threadsafe(news.put_nowait, (kind, value))

    visitor = Visitor(request.session_hash or "", address_of(request, machine.trusted_proxy))
    place = machine.join(visitor, job, tell)
    told = None
    try:
        while True:
            if (ahead := machine.ahead(place)) is not None and ahead.jobs and ahead != told:
                told = ahead
                yield ahead
            try:
                kind, value = await asyncio.wait_for(news.get(), TICK if place.began is None else None)
            except TimeoutError:
                continue
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        machine.leave(place)
