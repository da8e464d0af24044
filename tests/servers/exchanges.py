"""What a server said, as a file; a local server that says it again; and one that passes on and writes down.

A file is a list of exchanges: ``method``, ``path``, ``body`` (the request's JSON, or None), ``status``, ``type`` and
``text``. Its head says where it comes from. An exchange is repeated where a request is made again.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RECORDED = Path(__file__).parent / "recorded"
Exchange = dict[str, Any]
Answering = Callable[[BaseHTTPRequestHandler, Any], None]


@contextmanager
def serving(answer: Answering) -> Iterator[str]:
    """The address of a local server that answers every request by this function; its JSON is the second argument."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # pieces leave when they are written

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client has left
                self.close_connection = True

        def do_GET(self) -> None:
            answer(self, None)

        def do_POST(self) -> None:
            answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def replayed(exchanges: list[Exchange]) -> Iterator[str]:
    """A server that gives these answers again, in their order where a request is made several times."""
    waiting: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        waiting.setdefault(_key(exchange["method"], exchange["path"], exchange["body"]), []).append(exchange)

    def answer(handler: BaseHTTPRequestHandler, body: Any) -> None:
        left = waiting.get(_key(handler.command, handler.path, body), [])
        if not left:
            send(handler, 404, "application/json", b'{"error": "not recorded"}')
            return
        found = left.pop(0) if len(left) > 1 else left[0]
        send(handler, found["status"], found["type"], found["text"].encode())

    with serving(answer) as url:
        yield url


@contextmanager
def written_down(url: str, exchanges: list[Exchange]) -> Iterator[str]:
    """A server that passes requests on to ``url``, and writes the answers down at their end."""
    address = urlsplit(url).netloc

    def answer(handler: BaseHTTPRequestHandler, body: Any) -> None:
        connection = http.client.HTTPConnection(address)
        content = None if body is None else json.dumps(body)
        connection.request(handler.command, handler.path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        kind = response.headers.get("content-type", "")
        handler.send_response(response.status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Connection", "close")
        handler.end_headers()
        found = b""
        while piece := response.read1():
            found += piece
            handler.wfile.write(piece)
        handler.close_connection = True
        connection.close()
        text = found.decode()
        if handler.path == "/metrics":  # a page of 50 kB
            text = "".join(
                line for line in text.splitlines(True) if re.match(r"vllm:(spec_decode\w+_total|num_req)", line)
            )
        exchanges.append(
            {"method": handler.command, "path": handler.path, "body": body, "status": response.status, "type": kind}
            | {"text": text}
        )

    with serving(answer) as there:
        yield there


def _key(method: str, path: str, body: Any) -> str:
    return f"{method} {path} {json.dumps(body, sort_keys=True)}"


def read(name: str) -> list[Exchange]:
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["exchanges"]


def write(name: str, made: str, exchanges: list[Exchange]) -> None:
    """``made``: where the exchanges come from."""
    found = json.dumps({"made": made, "exchanges": exchanges}, ensure_ascii=False, indent=1)
    (RECORDED / f"{name}.json").write_text(found + "\n", encoding="utf-8")
