"""The page over plain HTTP, as a browser uses it, for visitors that Gradio's client cannot imitate."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx
from gradio_client.utils import apply_diff

API = "/gradio_api"
JOIN, DATA = f"{API}/queue/join", f"{API}/queue/data"

_numbers = itertools.count()


@dataclass
class Heard:
    """What a visitor received from one call: each output, and how the call ended."""

    outputs: list[list[Any]] = field(default_factory=list)
    success: bool | None = None  # None: not known
    error: str = ""
    status: int = 200
    first: float | None = None  # when its first output or its end came (time.monotonic)
    raw: list[str] = field(default_factory=list)

    @property
    def last(self) -> list[Any]:
        return self.outputs[-1] if self.outputs else []

    @property
    def text(self) -> str:
        """All text that reached the visitor."""
        return "\n".join(self.raw)


class Functions:
    """The page's functions as listed in its /config: numbers, names, and inputs with their first values."""

    def __init__(self, config: Mapping[str, Any]):
        self.rows = {row["id"]: row for row in config["dependencies"]}
        self._parts = {part["id"]: part for part in config["components"]}
        self.elements = {part["props"].get("elem_id") for part in config["components"]}
        self.ids = {part["props"].get("elem_id"): part["id"] for part in config["components"]}

    def named(self, api_name: str) -> int:
        return next(number for number, row in self.rows.items() if row["api_name"] == api_name)

    def pressed(self, elem_id: str) -> int:
        """The function of a button; raises StopIteration where the page has none."""
        wanted = self.ids.get(elem_id, -1)
        rows = self.rows.items()
        return next(n for n, row in rows if wanted in [target[0] for target in row["targets"]] and row["backend_fn"])

    def values(self, function: int, **by_elem_id: Any) -> list[Any]:
        """What a browser would send: the fields' first values, replaced where named (``sd_tokens=8``)."""
        given = {self.ids[name.replace("_", "-")]: value for name, value in by_elem_id.items()}
        return [given.get(i, self._parts[i]["props"].get("value")) for i in self.rows[function]["inputs"]]


class Web:
    """A client of a page; many visitors share it."""

    def __init__(self, address: str, forwarded: str | None = None):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        headers = {"X-Forwarded-For": forwarded} if forwarded else {}
        self.http = httpx.AsyncClient(base_url=address, timeout=60, limits=limits, headers=headers, trust_env=False)
        self.functions: Functions

    async def __aenter__(self) -> Web:
        answer = await self.http.get("/config")
        self.functions = Functions(answer.json())
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.http.aclose()

    async def health(self, forwarded: str | None = None) -> dict[str, Any]:
        return (await self.http.get("/healthz", headers=_from(forwarded))).json()

    async def join(
        self, session: str, function: Any, data: Any, forwarded: str | None = None, event: Any = None
    ) -> httpx.Response:
        """Ask for a job without listening to it."""
        body = {"data": data, "fn_index": function, "session_hash": session, "event_data": event, "trigger_id": None}
        return await self.post(JOIN, body, forwarded)

    async def post(self, path: str, body: Any, forwarded: str | None = None) -> httpx.Response:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return await self.http.post(path, content=text, headers=_from(forwarded, JSON=True))

    async def messages(self, session: str, forwarded: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The session's stream, until its end. Closing it is what a closed tab does."""
        query = {"session_hash": session}
        async with self.http.stream("GET", DATA, params=query, headers=_from(forwarded), timeout=None) as answer:
            if answer.status_code != 200:
                yield {"msg": "refused", "status": answer.status_code, "text": (await answer.aread()).decode()}
                return
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    async def call(
        self,
        function: int,
        data: Any,
        session: str | None = None,
        forwarded: str | None = None,
        seconds: float = 300,
        event: Any = None,
    ) -> Heard:
        """Ask for one job, in a new session if none is named, and follow it to its end."""
        session, heard = session or new_session(), Heard()
        answer = await self.join(session, function, data, forwarded, event)
        heard.raw.append(answer.text)
        if answer.status_code != 200:
            heard.success, heard.status, heard.error = False, answer.status_code, answer.text
            return heard
        async with asyncio.timeout(seconds), aclosing(self.messages(session, forwarded)) as messages:
            async for message in messages:
                heard.raw.append(json.dumps(message))
                if take(heard, message):
                    break
        return heard


def take(heard: Heard, message: dict[str, Any]) -> bool:
    """Record a message. Returns whether it was the last one of its call."""
    kind, output = message["msg"], message.get("output") or {}
    if heard.first is None and kind not in ("estimation", "process_starts", "heartbeat"):
        heard.first = time.monotonic()
    if kind == "process_generating" and output.get("data") is not None:
        parts = output["data"]
        if heard.outputs:  # later outputs are sent as differences
            parts = [apply_diff(old, part) for old, part in zip(heard.last, parts, strict=True)]
        heard.outputs.append(parts)
    elif kind == "process_completed":
        heard.success = bool(message.get("success"))
        if heard.success and output.get("data") is not None:
            heard.outputs.append(output["data"])
        heard.error = str(output.get("error") or "")
        return True
    elif kind in ("unexpected_error", "server_stopped", "refused", "close_stream"):
        heard.success, heard.error = False, str(message.get("message") or message.get("text") or kind)
        return True
    return False


def new_session() -> str:
    return secrets.token_hex(6)


def an_address() -> str:
    """A public address that no other visitor of this run has."""
    number = next(_numbers)
    return f"81.{number // 65025 % 255}.{number // 255 % 255}.{number % 255}"


def _from(forwarded: str | None, JSON: bool = False) -> dict[str, str]:
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    return headers | ({"Content-Type": "application/json"} if JSON else {})
