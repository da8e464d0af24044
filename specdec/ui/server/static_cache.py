"""Keeps the page's own files compressed for strangers.

Gradio compresses a file again for each request, on the event loop. For Plotly this takes 0.2 s, even if the client
leaves at once.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEFT_OUT = ("accept-encoding", "range", "if-range", "if-none-match", "if-modified-since")


class _File(NamedTuple):
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def etag(self) -> str | None:
        return Headers(raw=self.headers).get("etag")


class PackedFiles:
    """Answers requests for files from memory after the first one. For files that do not change while the page runs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _File] = {}

    async def answer(self, app: ASGIApp, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET request for the file at ``path``. The first time, ``app`` gives the file."""
        headers = Headers(scope=scope)
        packing = next((name for name in ("br", "gzip") if name in headers.get("accept-encoding", "")), None)
        if packing is None:  # cheap, and hardly anybody asks for it
            await app(scope, receive, send)
            return
        file = self._kept.get((path, packing))
        if file is None:
            file = await _fetched(app, scope, packing, send)
            if file is None:
                return
            self._kept[path, packing] = file
        same = file.etag is not None and headers.get("if-none-match") == file.etag
        kept = [(name, value) for name, value in file.headers if not (same and name.startswith(b"content-"))]
        await send({"type": "http.response.start", "status": 304 if same else 200, "headers": kept})
        await send({"type": "http.response.body", "body": b"" if same else file.body})


async def _fetched(app: ASGIApp, scope: Scope, packing: str, send: Send) -> _File | None:
    """The whole file as ``app`` compresses it. Another answer is passed on, and None returned."""
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])
    whole = False

    async def receive() -> Message:
        """A client that never leaves. If it left, ``app`` would stop in the middle of the file."""
        if (message := next(asked, None)) is None:
            await asyncio.Event().wait()
        return message or {}

    headers = MutableHeaders(raw=[pair for pair in scope["headers"] if pair[0].decode("latin-1") not in _LEFT_OUT])
    headers["accept-encoding"] = packing
    start: Message = {}
    parts: list[bytes] = []

    async def collect(message: Message) -> None:
        nonlocal whole
        if message["type"] == "http.response.start":
            start.update(message)
        if start["status"] != 200:
            await send(message)
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            whole = not message.get("more_body", False)

    await app({**scope, "headers": headers.raw}, receive, collect)
    if start.get("status") != 200:
        return None
    if not whole:
        raise RuntimeError(f"The file {scope['path']} was not sent to its end.")
    body = b"".join(parts)
    kept = [(name, value) for name, value in start["headers"] if name not in (b"content-length", b"transfer-encoding")]
    return _File([*kept, (b"content-length", str(len(body)).encode())], body)
