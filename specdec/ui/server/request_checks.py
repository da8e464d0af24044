"""Says which requests the page accepts: their paths, their size, and the content of their JSON."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import Message, Receive

BODY_SECONDS = 10.0  # for a client to send a whole request
THROWN, THROWN_SECONDS = 64_000_000, 5.0  # the most that is read of a refused request: bytes, and time
STRINGS, BARE = 5000, 100_000  # the most strings of a request, and bytes outside of strings
DEPTH = 50  # levels of nested JSON; Gradio uses few, and reading them here is recursive

_API = "/gradio_api"
STREAM, STARTUP, _HEARTBEAT = f"{_API}/queue/data", f"{_API}/startup-events", f"{_API}/heartbeat/{{session_hash}}"
LOGIN, HEALTH = "/login", "/healthz"
# The page's own routes, and those that Gradio's frontend, gradio_client and launch need, as Gradio writes them. No
# other route answers, and none that a later Gradio adds. None of these reads or writes files or fetches addresses.
_LOGIN_PAGE = (
    "/", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/static/{path:path}", "/assets/{path:path}",
)  # fmt: skip
ROUTES = {
    "HEAD": ("/", HEALTH),
    "GET": (
        *_LOGIN_PAGE, "/specdec-assets/{path:path}", "/config", f"{_API}/info", f"{_API}/app_id", STARTUP, STREAM,
        _HEARTBEAT, HEALTH,
    ),
    "POST": (LOGIN, f"{_API}/queue/join", f"{_API}/run/{{api_name}}", f"{_API}/cancel", f"{_API}/reset"),
}  # fmt: skip
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STRING = re.compile(
    rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL
)  # a string without an end goes on to the end of the body
_PARTS = {
    "/{path:path}": r"(?:/[\w@+-][\w.@+-]*)+",  # no name begins with a dot
    "{session_hash}": _SESSION.pattern,
    "{api_name}": "predict",  # as Gradio calls a function by its number
}


def _pattern(*routes: str) -> re.Pattern[str]:
    """A pattern of the paths that the page needs, of these routes."""
    pattern = "|".join(map(re.escape, routes))
    for part, paths in _PARTS.items():
        pattern = pattern.replace(re.escape(part), paths)
    return re.compile(pattern, re.ASCII)


HEARTBEAT = _pattern(_HEARTBEAT)
FILES = _pattern("/static/{path:path}", "/assets/{path:path}", "/specdec-assets/{path:path}")
_KNOWN = {method: _pattern(*routes) for method, routes in ROUTES.items()}
_BEFORE_LOGIN = _pattern(*_LOGIN_PAGE, LOGIN, STARTUP, HEALTH)


class Refusal(Exception):
    """A refused request: an HTTP status and a sentence, which repeats nothing of the request."""

    def __init__(self, status: int, sentence: str, **headers: str):
        super().__init__(sentence)
        # Gradio's frontend shows "detail". The connection is closed, as the client may still be sending.
        self.response = JSONResponse({"detail": sentence}, status, headers={"Connection": "close", **headers})


def known(method: str, path: str) -> bool:
    """Whether the page needs requests of this method and path."""
    return method in _KNOWN and _KNOWN[method].fullmatch(path) is not None


def needs_login(path: str) -> bool:
    """Whether the page, if it has a password, answers at this known path only after a login."""
    return _BEFORE_LOGIN.fullmatch(path) is None


class Upload:
    """Receives a request, and knows whether all of it has arrived."""

    def __init__(self, headers: Headers, receive: Receive):
        self._headers, self._receive, self._ended = headers, receive, False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def throw_away(self) -> None:
        """Read the rest of a refused request, within bounds.

        A connection that is closed before is reset, and then the client may lose the answer. Nothing is read that the
        client sends only if it is asked to, or that is too large to be read to its end.
        """
        length = self._headers.get("content-length", "0")
        if "expect" in self._headers or not (length.isdecimal() and len(length) < 12 and int(length) <= THROWN):
            return
        left = THROWN
        try:
            async with asyncio.timeout(THROWN_SECONDS):
                while not self._ended and left > 0:
                    left -= len((await self()).get("body", b""))
        except TimeoutError:
            pass


async def read_body(connection: HTTPConnection, receive: Receive, most: int) -> bytes | None:
    """The whole body; None if the client left early. Raises ``Refusal`` above ``most`` bytes, or if it is late."""
    too_large = f"The request is larger than {most:,} bytes."
    try:
        length = int(connection.headers.get("content-length", 0))
    except ValueError:
        raise Refusal(400, "The length of the request is not a number.") from None
    if length > most:
        raise Refusal(413, too_large)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > most:
                    raise Refusal(413, too_large)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(408, f"The request did not arrive within {BODY_SECONDS:g} seconds.") from None


def check_session(name: Any) -> None:
    """Raise ``Refusal`` for a session name that no page uses."""
    if not (isinstance(name, str) and _SESSION.fullmatch(name)):
        raise Refusal(400, "This page did not create a session of this name.")


def check_json(content_type: str, body: bytes, most: int) -> None:
    """Raise ``Refusal`` for JSON at which Gradio would fail, unknown session names, and references to files."""
    if not content_type.startswith("application/json"):  # browsers let other sites send other types without asking
        raise Refusal(415, "The request does not say that it is JSON.")
    if not _is_small(body):
        raise Refusal(413, "The request has more values than this page takes.")
    try:
        value = from_json(body, allow_inf_nan=False)  # refuses lone surrogates, and more than 200 levels
    except ValueError:
        raise Refusal(400, "The request is not JSON, or has text in it that is not Unicode.") from None
    if not isinstance(value, dict):
        raise Refusal(400, "The request is not a JSON object.")
    if value.get("session_hash") is not None:
        check_session(value["session_hash"])
    level: list[Any] = [value]
    characters = 0
    for _ in range(DEPTH + 1):
        characters += sum(len(item) for item in level if isinstance(item, str))
        if characters > most:
            raise Refusal(413, f"The request has more than {most:,} characters besides its files.")
        groups = [item for item in level if isinstance(item, (dict, list))]
        if not groups:
            return
        # Gradio would read such a file or fetch its address, whatever the field means.
        if any(isinstance(group, dict) and "path" in group and "meta" in group for group in groups):
            raise Refusal(400, "This page takes no files.")
        groups = [group for group in groups if not _is_file(group)]
        level = [child for group in groups for child in (group.values() if isinstance(group, dict) else group)]
    raise Refusal(400, f"The JSON of the request is nested deeper than {DEPTH} levels.")


def _is_small(body: bytes) -> bool:
    """Whether JSON has few values, without parsing it: parsing 3 MB of empty lists takes 2 s."""
    bare = len(body)
    for number, found in enumerate(_STRING.finditer(body)):
        bare -= len(found[0])
        if number == STRINGS:
            return False
    return bare <= BARE


def _is_file(group: Any) -> bool:
    """Whether this is a file that the browser has read. Its size has its own limit."""
    return isinstance(group, dict) and group.keys() == {"name", "text"} and isinstance(group["text"], str)
