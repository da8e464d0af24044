"""Connections that end at a fixed time, however slowly the other side sends, and soon after a stop.

An ordinary timeout bounds the wait for the next bytes. A server that sends one byte a second, in its headers or in its
answer, never meets it. Here every timeout that ``httpcore2`` passes on is the time on the clock (``perf_counter``) at
which a call ends, and each wait is as long as is left until then.

Somebody may stop a call while the server is silent. A wait for bytes is therefore a row of short ones, and the stop is
looked at before each of them, and before each part of a request. Three steps of a connection are not cut: finding the
addresses of a name, reaching one of them, and the handshake of TLS. Each takes ``CONNECT`` at most.

Whatever has come is read at once, and ``came`` is when. A program that reads slowly would otherwise take the time in
which it reads for the time in which a server writes.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import httpcore2

CONNECT = 10.0  # seconds of each step of a connection
AHEAD = 1_000_000  # bytes that are read at once
CAME = "came"  # the extra information of a stream: when its last bytes came, on the clock
SENT = 65_536  # bytes of a request that are sent between two looks at the deadline
LOOK = 0.2  # seconds between two looks at the stop
MOMENT = 0.001  # seconds for the rest of a part of TLS, of which some has come


class Stopped(Exception):
    """The call was stopped while the server was silent."""


class Network(httpcore2.NetworkBackend):
    """``stopped``: looked at while a connection waits for bytes; where it is true, ``Stopped`` is raised."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._network = httpcore2.SyncBackend()
        self._stopped = stopped

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        addresses = _addresses(host, port, min(CONNECT, _left(timeout, httpcore2.ConnectTimeout)))
        end = min(timeout or 0.0, time.perf_counter() + CONNECT)
        failed: Exception = httpcore2.ConnectError("no address")
        for tried, address in enumerate(addresses):
            if self._stopped():
                raise Stopped
            wait = _left(end, httpcore2.ConnectTimeout) / (len(addresses) - tried)
            try:
                stream = self._network.connect_tcp(address, port, wait, local_address, socket_options)
                return _Stream(stream, self._stopped)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, stopped: Callable[[], bool]) -> None:
        self._stream = stream
        self._stopped = stopped
        self._ahead = memoryview(b"")  # read and not handed out
        self._came = 0.0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._ahead:
            found = self._waited_for(timeout)
            self._came = time.perf_counter()
            self._ahead = memoryview(self._with_more(bytearray(found)) if found else found)
        part, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
        return bytes(part)

    def _waited_for(self, timeout: float | None) -> bytes:
        while not self._stopped():
            try:
                return self._stream.read(AHEAD, min(LOOK, _left(timeout, httpcore2.ReadTimeout)))
            except httpcore2.ReadTimeout:
                _left(timeout, httpcore2.ReadTimeout)  # raises at the deadline
        raise Stopped

    def _with_more(self, found: bytearray) -> bytearray:
        """``found`` and what has come as well. An end and a failure show at the next read."""
        with suppress(httpcore2.NetworkError, httpcore2.TimeoutException):
            while len(found) < AHEAD and self._stream.get_extra_info("is_readable"):
                more = self._stream.read(AHEAD, MOMENT)
                if not more:
                    break
                found += more
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), SENT):  # a slow reader begins a new wait with each part
            if self._stopped():
                raise Stopped
            self._stream.write(buffer[start : start + SENT], _left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        if self._stopped():
            raise Stopped
        wait = min(CONNECT, _left(timeout, httpcore2.ConnectTimeout))
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, wait), self._stopped)

    def get_extra_info(self, info: str) -> Any:
        return self._came if info == CAME else self._stream.get_extra_info(info)


def _addresses(host: str, port: int, seconds: float) -> list[str]:
    """The addresses of a name, each once. Raises ``httpcore2.ConnectError`` for a name without any.

    The system looks for them as long as it likes, so that a thread of its own waits for it.
    """
    answer: SimpleQueue[Any] = SimpleQueue()

    def look() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:
            answer.put(error)

    threading.Thread(target=look, daemon=True).start()
    try:
        found = answer.get(timeout=seconds)
    except Empty:
        raise httpcore2.ConnectTimeout from None
    if isinstance(found, Exception):
        raise httpcore2.ConnectError(str(found)) from found
    # A link-local address of IPv6 is one together with its interface.
    scoped = (f"{at[0]}%{at[3]}" if len(at) == 4 and at[3] else str(at[0]) for *_, at in found)
    return list(dict.fromkeys(scoped))


def _left(end: float | None, late: type[httpcore2.TimeoutException]) -> float:
    """Seconds until ``end``. Raises ``late`` if it has passed."""
    assert end is not None  # the client sets each of them
    left = end - time.perf_counter()
    if left <= 0:
        raise late()
    return left
