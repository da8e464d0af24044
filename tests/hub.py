"""A small server with the part of the hub's file API that a download needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

SHA = "0" * 39 + "1"


@contextmanager
def hub(
    root: Path, licensed: tuple[str, ...] = (), tokens: list[str | None] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve ``root/owner/name`` as models; yield the address and a list that collects the requested paths.

    ``tokens`` collects the authorization header of each request.
    """
    asked: list[str] = []
    tokens = [] if tokens is None else tokens

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = urlsplit(self.path).path
            asked.append(f"{self.command} {path}")
            tokens.append(self.headers.get("Authorization"))
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                name, what = "/".join(parts[2:4]), parts[4:5]
            else:
                name, what = "/".join(parts[:2]), ["file"]
            folder = root / name
            if not folder.is_dir():
                return self.send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}, body)
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            if what == ["tree"]:
                tree = [
                    {"type": "file", "path": str(f.relative_to(folder)), "size": f.stat().st_size, "oid": "a"}
                    for f in files
                ]
                return self.send(200, tree, {}, body)
            if what != ["file"]:
                siblings = [{"rfilename": str(f.relative_to(folder))} for f in files]
                return self.send(200, {"id": name, "modelId": name, "sha": SHA, "siblings": siblings}, {}, body)
            if name in licensed:
                return self.send(403, {"error": "Access restricted"}, {"X-Error-Code": "GatedRepo"}, body)
            file = folder / "/".join(parts[4:])
            headers = {"X-Repo-Commit": SHA}
            if not file.is_file():
                return self.send(404, {"error": "not found"}, headers | {"X-Error-Code": "EntryNotFound"}, body)
            self.send(200, file.read_bytes(), headers | {"ETag": f'"{file.stat().st_size:040x}"'}, body)

        def send(self, status: int, content: object, headers: dict[str, str], body: bool) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            if status == 200 and (span := self.headers.get("Range")):
                start, end = span.removeprefix("bytes=").split("-")
                size = len(data)
                end = min(int(end), size - 1) if end else size - 1
                status, data = 206, data[int(start) : end + 1]
                headers = headers | {"Content-Range": f"bytes {start}-{end}/{size}"}
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
