"""Connections that end at a fixed time, however slowly the other side sends, and soon after a stop.

An ordinary timeout bounds the wait for the next bytes. A server that sends one byte a second, in its headers or in its
answer, never meets it. Here every timeout that ``httpcore2`` passes on is the time on the clock (``perf_counter``) at
which a call ends, and each wait is as long as is left until then.

Somebody may stop a call while the server is silent. A wait for bytes is therefore a row of short ones, and the stop is
looked at before each of them. Making a connection and sending a request are not cut: they take ``CONNECT`` at most, and
as long as the server takes to read.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2

CONNECT = 10.0  # seconds until a connection stands
LOOK = 0.2  # seconds between two looks at the stop


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
        wait = min(CONNECT, _left(timeout, httpcore2.ConnectTimeout))
        return _Stream(self._network.connect_tcp(host, port, wait, local_address, socket_options), self._stopped)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, stopped: Callable[[], bool]) -> None:
        self._stream = stream
        self._stopped = stopped

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while not self._stopped():
            try:
                return self._stream.read(max_bytes, min(LOOK, _left(timeout, httpcore2.ReadTimeout)))
            except httpcore2.ReadTimeout:
                _left(timeout, httpcore2.ReadTimeout)  # raises at the deadline
        raise Stopped

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        wait = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, wait), self._stopped)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(end: float | None, late: type[httpcore2.TimeoutException]) -> float:
    """Seconds until ``end``. Raises ``late`` if it has passed."""
    assert end is not None  # the client sets each of them
    left = end - time.perf_counter()
    if left <= 0:
        raise late()
    return left
