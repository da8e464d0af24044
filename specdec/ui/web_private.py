"""The private names of Gradio, Starlette and uvicorn that the page uses. No other module of the package uses one."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import gradio as gr
import uvicorn.config
from gradio import queueing, route_utils, routes
from gradio.queueing import Queue
from jinja2 import FunctionLoader
from starlette.types import ASGIApp

from specdec.private import Package

_GRADIO, _STARLETTE, _UVICORN = Package("gradio"), Package("starlette"), Package("uvicorn")

get_route_path: Callable[[Any], str] = _STARLETTE.function("starlette._utils", "get_route_path")
"""The path of a request as Starlette's router sees it, from its scope."""


def queue_of(demo: gr.Blocks) -> Queue:
    """The queue of a Gradio app."""
    return _GRADIO.get(demo, "_queue")


def is_stopped(queue: Queue) -> bool:
    """Whether a queue has ended, and starts no more jobs."""
    return _GRADIO.get(queue, "stopped")


def messages_of(queue: Queue) -> Any:
    """The messages that wait for each session: a mapping from a session to its ``AsyncQueue``."""
    return _GRADIO.get(queue, "pending_messages_per_session")


def jobs_of(queue: Queue) -> dict[str, set[str]]:
    """The numbers of each session's unfinished jobs, in the dict that Gradio itself keeps."""
    return _GRADIO.get(queue, "pending_event_ids_session")


def replace_messages(queue: Queue, messages: Any) -> None:
    """Let a queue keep what it has to say in ``messages``, which does what ``messages_of`` does."""
    _GRADIO.set(queue, "pending_messages_per_session", messages)


def look_less_often(queue: Queue, seconds: float) -> None:
    """Let a queue look for new events, and for progress, once in so many seconds."""
    for name in ("sleep_when_free", "progress_update_sleep_when_free"):
        _GRADIO.set(queue, name, seconds)


def compute_no_statistics(queue: Queue) -> None:
    """Let a queue keep figures of one job only, and never compute statistics, which nothing shows."""
    _GRADIO.set(queue, "ANALYTICS_MAX_EVENTS", 1)
    _GRADIO.set(queue, "ANAYLTICS_CACHE_FREQUENCY", 10**9)


def put_in_front(app: Any, wrap: Callable[[ASGIApp], ASGIApp]) -> None:
    """Put ``wrap(rest)`` before all of a started Gradio app, where ``rest`` is the app with its own middleware."""
    _STARLETTE.set(app, "middleware_stack", wrap(_STARLETTE.get(app, "middleware_stack")))


def has_password(app: Any) -> bool:
    """Whether a Gradio app asks for a login."""
    return _GRADIO.get(app, "auth") is not None


def is_logged_in(app: Any, cookies: Mapping[str, str]) -> bool:
    """Whether one of the two cookies that a Gradio app sets at a login has the token of one."""
    identity, tokens = _GRADIO.get(app, "cookie_id"), _GRADIO.get(app, "tokens")
    return any(cookies.get(f"{name}-{identity}") in tokens for name in ("access-token", "access-token-unsecure"))


@functools.cache  # once for each ``change``, whatever is launched
def change_templates(change: Callable[[str], str]) -> None:
    """Let ``change`` rewrite the text of every template of Gradio's HTML."""
    environment = _GRADIO.get(routes.templates, "env")
    whole = _GRADIO.get(environment, "loader")

    def changed(name: str) -> tuple[str, str | None, Callable[[], bool] | None]:
        source, file, is_current = whole.get_source(environment, name)
        return change(source), file, is_current

    _GRADIO.set(environment, "loader", FunctionLoader(changed))


def replace_tracebacks(say: Callable[[], None]) -> None:
    """Let Gradio call ``say`` where it would print the traceback of an error of a listener."""
    for module in (queueing, routes, route_utils):
        _GRADIO.set(module, "traceback", SimpleNamespace(print_exc=say))


def replace_log(formatter: type[logging.Formatter]) -> None:
    """Let uvicorn log errors only, each as ``formatter`` writes it."""
    settings: dict[str, Any] = _UVICORN.get(uvicorn.config, "LOGGING_CONFIG")
    for part in ("handlers", "formatters"):
        if "default" not in settings.get(part, ()):
            raise _UVICORN.changed(f'"default" among the {part} of uvicorn.config.LOGGING_CONFIG')
    settings["handlers"]["default"]["level"] = "ERROR"
    settings["formatters"]["default"] = {"()": formatter}
