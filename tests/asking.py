"""Requests to the door of a page: to a bare one without a server, and unchanged to a served one."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers

from specdec.ui.server.gateway import Gateway
from specdec.ui.server.rate_limits import OpenStreams, Rate

JOIN, RUN, DATA = "/gradio_api/queue/join", "/gradio_api/run/predict", "/gradio_api/queue/data"
WIDE = {"requests": Rate(1e6, 1e6), "posts": Rate(1e6, 1e6)}
PEER = "203.0.113.7"
OWNER = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass
class Reply:
    status: int = 0
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    unread: int = 0  # chunks of the request that nobody read before the answer

    @property
    def sentence(self) -> str:
        (sentence,) = json.loads(self.body).values()
        assert sentence[0].isupper() and sentence.endswith(".")
        return sentence


@dataclass
class Bare:
    """An app that answers 200 to everything and records its requests."""

    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope, receive, send) -> None:
        message = await receive()
        assert not message["more_body"]
        self.paths.append(scope["path"])
        self.bodies.append(message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"ok"})


def door(app=None, streams=None, health=lambda: {"ok": True}, **options) -> Gateway:
    return Gateway(app or Bare(), streams=streams or OpenStreams(), health=health, **WIDE | options)


def ask(
    door,
    path="/",
    method="GET",
    body: bytes | list = b"",
    headers=(),
    peer: str = PEER,
    query="",
    root="",
    raw=None,
    version="1.1",
) -> Reply:
    return asyncio.run(ask_soon(door, path, method, body, headers, peer, query, root, raw, version))


async def ask_soon(door, path, method, body, headers, peer, query, root, raw, version="1.1") -> Reply:
    """A request in the form a server passes it on.

    ``body`` may be several chunks, with seconds to wait between them.
    """
    chunks, reply = body if isinstance(body, list) else [body], Reply()
    parts = iter(chunks)
    left = len([chunk for chunk in chunks if isinstance(chunk, bytes)])

    async def receive():
        nonlocal left
        for part in parts:
            if isinstance(part, bytes):
                left -= 1
                return {"type": "http.request", "body": part, "more_body": left > 0}
            await asyncio.sleep(part)
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            assert not reply.status
            reply.status, reply.headers, reply.unread = message["status"], Headers(raw=message["headers"]), left
        else:
            reply.body += message["body"]

    given = [(name.lower().encode(), value.encode()) for name, value in headers]
    if method == "POST" and not any(name == b"content-type" for name, _ in given):
        given.append((b"content-type", b"application/json"))
    scope = {"type": "http", "method": method, "path": path, "raw_path": (raw or path).encode(), "root_path": root}
    scope |= {"query_string": query.encode(), "headers": given, "client": (peer, 1), "scheme": "http"}
    scope["http_version"] = version
    await door(scope, receive, send)
    return reply


def post(door, value: Any = None, body: bytes | list = b"", path=JOIN, **options) -> Reply:
    return ask(door, path, "POST", json.dumps(value).encode() if value is not None else body, **options)


def send(demo, method: str, path: str, body: Any = None, headers=()) -> Reply:
    """Send a request with JSON."""
    content = json.dumps(body).encode() if body is not None else None
    return request_of(demo, method, path, content, [("Content-Type", "application/json"), *headers])


def request_of(demo, method: str, path: str, body: bytes | None = None, headers=(), read: bool = True) -> Reply:
    """Send a request unchanged, without normalizing its path, and read the answer unless it is a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", demo.server_port, timeout=30)
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    given = [(name.lower().encode(), value.encode()) for name, value in answer.getheaders()]
    reply = Reply(answer.status, Headers(raw=given), answer.read() if read else b"")
    connection.close()
    return reply


def eventually(condition) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
