"""One HTTP client for servers that somebody else runs: every answer is bounded in size and in time.

A server may be broken or hostile. Nothing it sends can hold the program longer than the deadline, fill the memory, or
lead to another address: redirects are not followed, and the environment's proxies are not used.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpcore2

from specdec.errors import InvalidInput, ServerFailed, quoted
from specdec.servers.deadlines import CAME, Network, Stopped

LONGEST_LINE = 1_000_000  # bytes of one event of a stream
MOST_PARTS = 1000  # lines of one event
MOST_STREAMED = 64_000_000  # bytes of one stream
MOST_ANSWERED = 4_000_000  # bytes of any other answer
MOST_REFUSED = 100_000  # bytes of what a server says in place of a stream
BOM = b"\xef\xbb\xbf"  # some servers begin a stream with it
QUOTED = 300  # characters of a server's own error message that are shown
PATIENCE = 30.0  # seconds for an answer that is no stream
KEYS = "SPECDEC_KEY_"  # with the server's name in capitals: the environment variable that has its key
SHORTEST_KEY = 6  # characters of a key that is hidden in what a server says
IDLE = 2.0  # seconds for which an unused connection stays open; many servers close it after 5


# What to do about a status. The refusals speak of this client, whatever it asks for.
KEY_ADVICE = "Set its key in the environment variable {variable}, and name the server at the start."
REFUSALS = {
    401: KEY_ADVICE, 403: KEY_ADVICE, 429: "It limits how often it is called; try later, or fewer calls at once.",
    503: "It may still be loading its model; try later.",
}  # fmt: skip
ADVICE = REFUSALS | {
    404: "It may not know this model, or answer chats alone; then send the prompt as a message of a chat.",
}


class Streamed(NamedTuple):
    """One event of a stream. ``seconds``: since the request was sent."""

    seconds: float
    record: dict[str, Any]


def never() -> bool:
    return False


def key_variable(name: str) -> str:
    """The environment variable that has the key of the server of this name."""
    return KEYS + re.sub(r"\W", "_", name).upper()


def base_of(url: str) -> str:
    """The address of a server without the path of its API: ``http://127.0.0.1:8000``. Raises ``InvalidInput``."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{quoted(url)} is no address of a server; give one such as http://127.0.0.1:8000.")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("An address with a user name or a password is refused; put the key into the environment.")
    if parts.query or parts.fragment:
        raise InvalidInput(f"{quoted(url)} has a part after ? or #; give the address alone.")
    try:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname.encode("idna").decode()
    except UnicodeError:
        raise InvalidInput(f"{quoted(url)} has a name of a server that is none.") from None
    path = quote(parts.path.rstrip("/").removesuffix("/v1"), safe="/%:@!$&'()*+,;=~")
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}{'' if port in (None, usual) else f':{port}'}{path}"


class _Unreadable(ServerFailed):
    """An answer that this client does not read."""


class Client:
    """Requests to one server. Close it at the end, or use it in a ``with`` statement. Threads may share it.

    - ``name``: what messages call the server; its address stands in none of them.
    - ``url``: its address; a path of its API, such as ``/v1``, is cut off.
    - ``key``: sent as a bearer token, if given.
    - ``stopped``: asked again and again while a request waits; where it is true, every request ends.

    Requests raise ``ServerFailed`` with a sentence where the server does not answer as it should, and where they are
    stopped. ``seconds`` is the deadline of a whole request, from the connection to the last byte of its answer.
    """

    def __init__(self, name: str, url: str, key: str | None = None, stopped: Callable[[], bool] = never) -> None:
        self.name = name
        self._base = base_of(url)
        self._headers: dict[bytes | str, bytes | str] = {
            "Accept": "*/*", "Accept-Encoding": "identity", "Content-Type": "application/json",
        }  # fmt: skip
        self._key = key
        if key:
            if not key.isascii() or not key.isprintable():
                raise InvalidInput(f"The key of the server {name} has characters that no key has; set it again.")
            self._headers["Authorization"] = f"Bearer {key}"
        self._pool = httpcore2.ConnectionPool(
            max_connections=None, keepalive_expiry=IDLE, network_backend=Network(stopped)
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    def text(self, path: str, seconds: float = PATIENCE) -> str | None:
        """The text at ``path``; None where the server has no such page, or sends elsewhere, or what is not read."""
        with suppress(_Unreadable), self._request("GET", path, None, seconds) as response:
            text = self._whole(response)
            return text.decode(errors="replace") if response.status == 200 else None
        return None

    def json(
        self, path: str, body: dict[str, Any] | None = None, seconds: float = PATIENCE, needed: bool = False
    ) -> Any:
        """The JSON at ``path``, or None where ``text`` has none and where it is no JSON; with ``body`` by POST.

        ``needed``: raise ``ServerFailed`` where the server refuses this client (``REFUSALS``), sends elsewhere, or
        sends what is not read, in place of None.
        """
        try:
            with self._request("GET" if body is None else "POST", path, body, seconds) as response:
                if needed and response.status in REFUSALS:
                    raise self._failed(self._refusal(response))
                text = self._whole(response)
        except _Unreadable:
            if needed:
                raise
            return None
        try:
            return _parsed(text) if response.status == 200 else None
        except ValueError:
            return None

    def stream(self, path: str, body: dict[str, Any], seconds: float) -> Generator[Streamed, None, None]:
        """The events of a stream (server-sent events), each as its JSON object, until ``[DONE]`` or the end."""
        began = time.perf_counter()
        with self._request("POST", path, body, seconds) as response:
            if response.status != 200:
                raise self._failed(self._refusal(response))
            kind = _header(response, b"content-type")
            if not kind.startswith("text/event-stream"):
                raise self._failed(f"sent {quoted(kind or 'no content type')} where a stream of events was asked for.")
            for came, record in self._events(self._lines(response, began + seconds)):
                at = came - began
                if not isinstance(record, dict):
                    raise self._failed("sent an event that is no JSON object.")
                error = record if record.get("object") == "error" else record.get("error")
                if error:
                    raise self._failed(f"ended the stream with an error: {self._message(error)}")
                yield Streamed(at, record)

    def _events(self, lines: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, Any]]:
        """The JSON of each event until ``[DONE]``, with the clock when its end came.

        A line that is JSON by itself is an event of its own, because some servers leave out the empty line behind it.
        Other lines of data belong together until an empty line. Raises ``ServerFailed`` where they are no JSON.
        """
        parts: list[bytes] = []
        length, came = 0, 0.0
        for came, line in lines:
            if line.startswith(b"data:"):
                part = line.removeprefix(b"data:").strip()
                if part == b"[DONE]":
                    break
                if not parts:
                    with suppress(ValueError):
                        yield came, _parsed(part)
                        continue
                length += len(part) + 1
                if length > LONGEST_LINE or len(parts) == MOST_PARTS:
                    raise self._failed(f"sent an event of more than {LONGEST_LINE // 10**6} MB or {MOST_PARTS} lines.")
                parts += [part] if part or parts else []
            elif not line and parts:
                yield came, self._joined(parts)
                parts, length = [], 0
        if parts:
            yield came, self._joined(parts)

    def _joined(self, parts: Sequence[bytes]) -> Any:
        try:
            return _parsed(b"\n".join(parts))
        except ValueError:
            raise self._failed("sent an event that is no JSON.") from None

    def _lines(self, response: httpcore2.Response, deadline: float) -> Iterator[tuple[float, bytes]]:
        """The lines of a stream, each with the clock when its end came: lines that came together have one time.

        Raises ``ServerFailed`` at the deadline, and where a bound is passed.
        """
        waiting, total, begun, came = bytearray(), 0, False, 0.0
        connection = response.extensions["network_stream"]
        for piece in response.iter_stream():
            total, came = total + len(piece), connection.get_extra_info(CAME)
            if time.perf_counter() > deadline:  # also where the bytes were there already
                raise self._failed("did not end its stream before the deadline.")
            if total > MOST_STREAMED:
                raise self._failed(f"sent more than {MOST_STREAMED // 10**6} MB in one stream.")
            if b"\n" not in piece:
                waiting += piece
                lines: list[bytearray] = []
            else:
                *lines, waiting = (waiting + piece).split(b"\n")
            if max(map(len, [*lines, waiting])) > LONGEST_LINE:
                raise self._failed(f"sent an event of more than {LONGEST_LINE // 10**6} MB.")
            for line in lines:
                yield came, bytes(line).removeprefix(b"" if begun else BOM).rstrip(b"\r")
                begun = True
        if waiting:
            yield came, bytes(waiting)

    @contextmanager
    def _request(self, method: str, path: str, body: Any, seconds: float) -> Iterator[httpcore2.Response]:
        end = time.perf_counter() + seconds
        # The network takes these as times on the clock. ``pool`` waits for nothing: connections are not counted.
        timeouts = {"timeout": {"connect": end, "read": end, "write": end, "pool": None}}
        content = None if body is None else json.dumps(body).encode()
        try:
            with self._pool.stream(
                method, self._base + path, headers=self._headers, content=content, extensions=timeouts
            ) as response:
                if 300 <= response.status < 400:
                    raise self._unreadable("answered with a redirect to another address; give the final address.")
                if _header(response, b"content-encoding") not in ("", "identity"):
                    raise self._unreadable("sent a packed answer, which was not asked for; switch its compression off.")
                yield response
        except Stopped:
            raise ServerFailed(f"The call of the server {self.name} was stopped.") from None
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            refused = _tls_error(error)
            if isinstance(refused, ssl.SSLCertVerificationError):
                raise self._failed(
                    f"has a certificate that is not trusted here ({refused.verify_message}). Name a file with the "
                    "certificate in SSL_CERT_FILE."
                ) from None
            if refused is not None:
                raise self._failed("does not answer as a server with TLS; try the address with http://.") from None
            raise self._failed("cannot be reached. Check that it runs and that the address is right.") from None
        except httpcore2.TimeoutException:
            raise self._failed("did not answer before the deadline.") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            raise self._failed(f"broke the connection ({type(error).__name__}).") from None

    def _whole(self, response: httpcore2.Response) -> bytes:
        """All of an answer, so that its connection can be used again; nothing of a failure, after which servers close
        theirs."""
        found = bytearray()
        if response.status >= 500:
            return b""
        for piece in response.iter_stream():
            found += piece
            if len(found) > MOST_ANSWERED:
                raise self._unreadable(f"sent an answer of more than {MOST_ANSWERED // 10**6} MB.")
        return bytes(found)

    def _refusal(self, response: httpcore2.Response) -> str:
        """What a server says in place of a stream."""
        text = bytearray()
        for piece in response.iter_stream():
            text += piece
            if len(text) > MOST_REFUSED:
                break
        try:
            record = _parsed(bytes(text))
        except ValueError:
            record = None
        said = self._message(record.get("error", record)) if isinstance(record, dict) else ""
        told = f"refused the request with status {response.status}{f': {said}' if said else '.'}"
        advice = ADVICE.get(response.status, "").format(variable=key_variable(self.name))
        if (wait := _header(response, b"retry-after")).isdecimal() and len(wait) < 6:
            advice = f"It asks to wait {wait} s."
        return f"{told.rstrip('. ')}. {advice}" if advice else told

    def _message(self, error: Any) -> str:
        """A server's own words about an error, in one bounded line without its key."""
        said = str(error.get("message", error.get("detail", error)) if isinstance(error, dict) else error)
        if self._key and len(self._key) >= SHORTEST_KEY:  # a shorter one is part of many words
            said = said.replace(self._key, "\u2026")
        return one_line(said, QUOTED)

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"The server {self.name} {what}")

    def _unreadable(self, what: str) -> ServerFailed:
        return _Unreadable(f"The server {self.name} {what}")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of TLS that led to this one; None if none did."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _parsed(text: bytes) -> Any:
    """JSON without NaN and infinity. Raises ``ValueError`` for anything else, deeply nested lists included."""
    try:
        return json.loads(text.decode(errors="replace"), parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(found := float(digits)):
        raise ValueError(f"{digits} is too large")
    return found


def _header(response: httpcore2.Response, name: bytes) -> str:
    """A header's value in small letters; "" without it."""
    return next((value.decode("latin-1").lower() for key, value in response.headers if key.lower() == name), "")


def one_line(text: str, most: int) -> str:
    """What a server calls something, as one bounded line without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * most]).split())
    return line if len(line) <= most and len(text) <= 2 * most else f"{line[:most]} \u2026"
