"""The door's rules, each on a bare app that records its requests, then all of them on a served Gradio page."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
import pytest
from asking import DATA, JOIN, OWNER, PEER, RUN, WIDE, Bare, ask, ask_soon, door, eventually, post, request_of, send
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from specdec.ui.assets import routes
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.server import launch, rate_limits, request_checks
from specdec.ui.server.gateway import in_front
from specdec.ui.server.launch import SPACE_FRAMES
from specdec.ui.server.rate_limits import OpenStreams, Rate
from specdec.ui.visitor import address_of

pytestmark = pytest.mark.xdist_group("door")  # one server

# Paths

OPEN = [
    "/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/gradio_api/info",
    "/gradio_api/app_id", "/gradio_api/startup-events", "/gradio_api/heartbeat/s1", "/assets/index-Dph_gB.js",
    "/static/img/logo.svg", "/static/fonts/Inter/Inter-Bold.woff2", "/specdec-assets/styles/page.css",
]  # fmt: skip
CLOSED = [
    "/logout",
    "/gradio_api/upload", "/gradio_api/upload_progress", "/gradio_api/file=/etc/passwd", "/gradio_api/file=app.py",
    "/gradio_api/file/app.py", "/file=app.py", "/gradio_api/proxy=https://x.hf.space/", "/gradio_api/stream/x",
    "/gradio_api/stream/s/1/2/playlist.m3u8", "/gradio_api/call/run", "/gradio_api/call/run/1",
    "/gradio_api/call/v2/run",
    "/gradio_api/api/predict", "/gradio_api/api/predict/", "/gradio_api/run/run", "/gradio_api/run/predict/",
    "/gradio_api/component_server", "/gradio_api/process_recording", "/gradio_api/vibe-edit", "/gradio_api/vibe-code",
    "/gradio_api/undo-vibe-edit", "/monitoring", "/monitoring/summary", "/gradio_api/dev/reload",
    "/gradio_api/deep_link", "/gradio_api/openapi.json", "/gradio_api/custom_component/x/client/y/z", "/svelte/a.js",
    "/gradio_api/runs", "/gradio_api/run-history/connect", "/gradio_api/mcp", "/gradio_api/mcp/sse", "/pwa_icon",
    "/gradio_api/token", "/gradio_api/user", "/gradio_api/login_check", "/docs", "/openapi.json", "/nothing",
    "/gradio_api/profiling/traces", "/gradio_api/heartbeat/", "/gradio_api/heartbeat/a b", "/gradio_api/heartbeat/a/b",
    f"/gradio_api/heartbeat/{'s' * 65}",
]  # fmt: skip
ODD = [
    "/static/../config", "/assets/../../routes.py", "/specdec-assets/..", "/assets/./x.js", "/assets//x.js", "/assets/",
    "//config", "/config/", "/static/.env", "/static/img/..\\x", "/static/a\x00", "/static/a\n", "http://x/config",
    "config", "/static/é.js", "/gradio_api//info", "/./config", "/Config",
]  # fmt: skip


@pytest.mark.parametrize("path", OPEN)
def test_what_the_page_needs_is_let_in(path):
    app = Bare()
    assert ask(door(app), path).status == 200
    assert app.paths == [path]


@pytest.mark.parametrize("path", [*CLOSED, *ODD])
def test_other_paths_are_not_found(path):
    app = Bare()
    for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"):
        reply = ask(door(app), path, method, b"{}")
        assert (reply.status, app.paths) == (404, [])
        assert reply.sentence == "This page has nothing at this address."


@pytest.mark.parametrize("path", [JOIN, RUN, "/gradio_api/cancel", "/gradio_api/reset"])
def test_a_path_takes_only_its_own_method(path):
    app = Bare()
    assert [ask(door(app), path, method, b"{}").status for method in ("GET", "HEAD", "PUT", "OPTIONS")] == [404] * 4
    assert ask(door(app), path, "POST", b"{}").status == 200


def test_an_encoded_path_is_not_found():
    """An encoded path is not found, whatever it means: the page's own paths need no encoding."""
    for raw in ("/%63onfig", "/static/%2e%2e/config", "/static%2fx.js", "/config%00"):
        assert ask(door(), "/config", raw=raw).status == 404
    assert ask(door(), "/config", raw="/config?a=%20").status == 200


def test_paths_under_a_prefix_are_checked_alike():
    """Paths under a prefix have the same rules, whether or not the proxy removes the prefix."""
    app = Bare()
    for path in ("/demo/config", "/config", "/demo/", "/"):
        assert ask(door(app), path, root="/demo").status == 200
    assert app.paths == ["/config", "/config", "/", "/"]  # Gradio sees no difference
    for path in ("/demo/gradio_api/upload", "/demoX/config", "/demo/demo/config", "/demo/../config"):
        assert ask(door(), path, root="/demo").status == 404


def test_the_path_of_the_page_ends_with_a_slash():
    """Else its files would be looked for beside it. A proxy that removes the path sees to that itself."""
    app = Bare()
    for query in ("", "__theme=dark&x=%20"):
        reply = ask(door(app), "/demo", root="/demo", query=query)
        assert (reply.status, reply.headers["location"]) == (307, "/demo/" + (query and f"?{query}"))
    assert ask(door(app), "/demo", "POST", b"{}", root="/demo").status == 404 and not app.paths


def test_a_websocket_is_closed():
    app, sent = Bare(), []

    async def connect():
        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            sent.append(message["type"])

        await door(app)({"type": "websocket", "path": "/config"}, receive, send)

    asyncio.run(connect())
    assert (sent, app.paths) == (["websocket.close"], [])


# Bodies


def test_a_body_reaches_the_app_whole():
    app = Bare()
    assert post(door(app), body=[b'{"session_hash": ', b'"s1"}']).status == 200
    assert app.bodies == [b'{"session_hash": "s1"}']


def test_a_large_body_is_refused_by_what_it_says_and_by_what_it_is():
    app = Bare()
    small = door(app, max_body=100)
    for reply in (
        post(small, body=[9e9], headers=[("content-length", "101"), ("expect", "100-continue")]),  # at once
        post(small, body=[b'"' + b"x" * 60, b"x" * 60 + b'"']),
        post(small, body=[b"x" * 60, b"x" * 60], headers=[("content-length", "5")]),
    ):
        assert reply.status == 413 and reply.sentence == "The request is larger than 100 bytes."
        assert reply.headers["connection"] == "close"
    assert post(small, body=b"{}", headers=[("content-length", "9" * 5000)]).status == 400
    assert not app.paths
    assert post(small, body=b'{"data": "%s"}' % (b"x" * 80)).status == 200
    assert post(door(app), {"data": [{"name": "a", "text": "x" * 2_999_900}]}).status == 200
    assert ask(door(app), "/config", body=b"x").status == 413  # no GET has a body


def test_a_refused_body_is_read_before_the_answer(monkeypatch):
    """A refused body is read and thrown away, so that the client can send it and read the answer, but within bounds."""
    monkeypatch.setattr(request_checks, "THROWN", 400)
    monkeypatch.setattr(request_checks, "THROWN_SECONDS", 0.2)
    app = Bare()
    small = door(app, max_body=100)

    def left_over(body, path=JOIN, method="POST", headers=()) -> int:
        reply = ask(small, path, method, body, headers)
        assert reply.status in (404, 413, 415) and reply.sentence
        return reply.unread

    chunks = [b"x" * 100] * 4
    assert left_over(chunks) == left_over(chunks, headers=[("content-length", "400")]) == 0
    assert left_over(chunks, "/nothing") == left_over(chunks, headers=[("content-type", "text/plain")]) == 0
    assert left_over(chunks, "/", "GET") == 0
    assert left_over([b"x" * 100] * 9) == 3  # 200 bytes until it is refused, then 400
    assert left_over(chunks, headers=[("content-length", "401")]) == 4  # too much to read all of it
    assert left_over(chunks, headers=[("content-length", "400"), ("expect", "100-continue")]) == 4  # not sent yet
    assert left_over([b"x" * 100] * 2 + [9e9] + [b"x"] * 2) == 2
    assert not app.paths


def test_a_slow_body_is_refused(monkeypatch):
    monkeypatch.setattr(request_checks, "BODY_SECONDS", 0.3)
    app = Bare()
    began = time.monotonic()
    reply = post(door(app), body=[b"{", *[0.05, b" "] * 100, b"}"])
    assert reply.status == 408 and "did not arrive" in reply.sentence
    assert time.monotonic() - began < 2 and not app.paths


def test_a_client_who_leaves_amid_a_body_is_no_request():
    app = Bare()

    async def leave():
        async def receive():
            return messages.pop()

        async def send(message):
            raise AssertionError("nobody is there")

        scope = {"type": "http", "method": "POST", "path": JOIN, "headers": [], "client": (PEER, 1)}
        await door(app)(scope, receive, send)

    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{}", "more_body": True}]
    asyncio.run(leave())
    assert not app.paths


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b"[]", b'"text"', b"NaN", b'{"data": [NaN]}', b'{"data": ["\\ud800"]}', b"\xff{}",
        b'{"\\udfff": 1}', '{"data": []}'.encode("utf-16"), b'{"data": %s}' % (b"9" * 6000), b"[" * 100_000,
        b'{"a":' * 60 + b"1" + b"}" * 60, b'{"data": ' + b"[" * 50 + b"]" * 50 + b"}",
    ],
)  # fmt: skip
def test_what_gradio_would_fail_on_is_refused(body):
    app = Bare()
    for path in (JOIN, RUN, "/gradio_api/cancel", "/gradio_api/reset"):
        reply = post(door(app), body=body, path=path)
        assert reply.status == 400 and "JSON" in reply.sentence
    assert not app.paths


@pytest.mark.parametrize(
    "value",
    [
        {"data": [[] for _ in range(50_000)]}, {"data": ["x"] * 5001}, {"data": ["x" * 200_001]},
        {"data": ["x" * 50_001] * 4}, {"data": [{"name": "x" * 200_001}]}, {"x" * 10: "y" * 200_001},
        {"data": [{"name": "a", "text": ["x" * 200_001]}]},
    ],
)  # fmt: skip
def test_more_than_the_page_sends_is_refused_before_gradio_reads_it(value):
    app = Bare()
    assert post(door(app), value).status == 413 and not app.paths


def test_an_owner_s_prompt_is_as_long_as_the_model_takes():
    body = {"data": ["x" * 2_000_000]}
    assert post(door(names=OWNER), body, headers=[("Host", "localhost")]).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"[]," * 900_000 + b"[]]}", b'{"a":[' + b'"",' * 900_000 + b'""]}', b'{"a":"' + b'\\"' * 1_400_000,
        b"\\" * 2_900_000, b'"' * 2_900_001, b'{"a":"' + b"\\" * 2_900_001, b" " * 2_900_000,
    ],
)  # fmt: skip
def test_refusing_a_body_is_fast(body):
    """Refusing a body is fast. Parsing the first of these would block the event loop for 2 s."""
    front, began = door(), time.process_time()
    assert post(front, body=body).status in (400, 413)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("host", ["localhost:7860", "127.0.0.1:7860", "127.0.0.1", "[::1]:7860", "LOCALHOST"])
def test_an_owner_s_page_is_reached_by_its_own_names(host):
    assert ask(door(names=OWNER), headers=[("Host", host)]).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "evil.example:7860")], [("Host", "127.0.0.1.evil.example")], [("Host", "")], [], [("Host", "[")],
        [("Host", "localhost"), ("X-Forwarded-For", "8.8.8.8")], [("Host", "localhost"), ("Forwarded", "for=8.8.8.8")],
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/config", "/healthz", "/specdec-assets/styles/page.css"])
def test_an_owner_s_page_has_nothing_for_others(headers, path):
    """An owner's page answers neither web sites whose name resolves to this machine nor a proxy's guests."""
    app = Bare()
    reply = ask(door(app, names=OWNER), path, headers=headers)
    assert reply.status == 403 and "--behind-proxy" in reply.sentence and not app.paths


@dataclass
class Packing:
    """An app with one file, which it compresses."""

    asked: list[Headers] = field(default_factory=list)

    async def __call__(self, scope, receive, send) -> None:
        self.asked.append(Headers(scope=scope))
        there = scope["path"] == "/assets/a.js"
        packing = self.asked[-1].get("accept-encoding", "")
        headers = [(b"etag", b'"1"'), (b"content-type", b"text/javascript"), (b"content-encoding", packing.encode())]
        await send({"type": "http.response.start", "status": 200 if there else 404, "headers": headers})
        for part in (b"packed by ", packing.encode()):
            await send({"type": "http.response.body", "body": part, "more_body": not part.startswith(packing.encode())})


def test_a_file_is_packed_once():
    app = Packing()
    front = door(app)
    headers = [("Accept-Encoding", "gzip, deflate, br"), ("Range", "bytes=0-1"), ("If-None-Match", '"0"')]
    for _ in range(3):
        reply = ask(front, "/assets/a.js", headers=headers)
        assert (reply.status, reply.body, reply.headers["content-encoding"]) == (200, b"packed by br", "br")
        assert reply.headers["content-length"] == "12" and "content-security-policy" in reply.headers
    assert len(app.asked) == 1 and not {"range", "if-none-match"} & set(app.asked[0].keys())
    same = ask(front, "/assets/a.js", headers=[("Accept-Encoding", "br"), ("If-None-Match", '"1"')])
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", '"1"')
    assert ask(front, "/assets/a.js", headers=[("Accept-Encoding", "gzip")]).body == b"packed by gzip"
    assert len(app.asked) == 2
    for _ in range(2):
        assert ask(front, "/assets/a.js").status == 200  # without compression
        assert ask(front, "/assets/none.js", headers=headers).status == 404  # of which nothing is stored
    assert len(app.asked) == 6


def test_a_client_that_leaves_during_a_file_does_not_damage_it(tmp_path):
    """A client that leaves during a file does not damage it for others, though Starlette stops sending."""
    (tmp_path / "a.js").write_bytes(b"x" * 1_000_000)
    front = door(Mount("/assets", StaticFiles(directory=tmp_path)))

    async def leave():
        async def receive():
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        headers = [(b"accept-encoding", b"br")]
        scope = {"type": "http", "method": "GET", "path": "/assets/a.js", "headers": headers, "client": (PEER, 1)}
        body = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def once():
            return next(body, None) or await receive()

        await front(scope | {"query_string": b"", "root_path": "", "scheme": "http"}, once, send)

    asyncio.run(leave())
    reply = ask(front, "/assets/a.js", headers=[("Accept-Encoding", "br")])
    assert len(reply.body) == 1_000_000 == int(reply.headers["content-length"])


def test_a_file_that_ends_too_soon_is_not_kept():
    async def torn(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    front = door(torn)
    for _ in range(2):
        reply = ask(front, "/assets/a.js", headers=[("Accept-Encoding", "br")])
        assert reply.status == 500 and b"half" not in reply.body


def test_an_owner_s_files_are_fresh():
    app = Packing()
    front = door(app, names=OWNER)
    for _ in range(2):
        ask(front, "/assets/a.js", headers=[("Host", "localhost"), ("Accept-Encoding", "br")])
    assert len(app.asked) == 2


def test_ordinary_json_is_let_in():
    deep = b'{"data": ' + b"[" * 49 + b"]" * 49 + b"}"
    for body in (
        deep,
        '{"data": ["é 👩‍🚀 \\ud83d\\ude00"]}'.encode(),
        b'{"data": [1e5, -2, null], "session_hash": null}',
    ):
        assert post(door(), body=body).status == 200


def test_a_form_of_another_site_is_refused():
    """Another site's form is refused. Browsers send these content types to any host without asking it."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert post(door(), body=b"{}", headers=[("content-type", kind)]).status == 415


@pytest.mark.parametrize("session", ["", "a b", "../x", "s" * 65, "é", "a\n", "a/b", 5, ["a"], {"a": 1}, True])
def test_a_forged_session_is_refused(session):
    app = Bare()
    for path in (JOIN, RUN, "/gradio_api/cancel"):
        reply = post(door(app), {"data": [], "session_hash": session}, path=path)
        assert reply.status == 400 and reply.sentence == "This page did not create a session of this name."
    if isinstance(session, str):
        assert ask(door(app), DATA, query=f"session_hash={session}").status == 400
    assert not app.paths


def test_a_stream_names_one_session():
    assert [ask(door(), DATA, query=query).status for query in ("", "session_hash=a&session_hash=b")] == [400, 400]
    assert ask(door(), DATA, query="session_hash=oh0qhjvfxi8").status == 200


def test_a_file_in_the_json_is_refused():
    """A file record in the JSON is refused, as Gradio would fetch its address in any field."""
    file = {"path": "https://example.com/x", "meta": {"_type": "gradio.FileData"}}
    for data in ([file], [[{"a": file}]], [file | {"meta": []}]):
        assert post(door(), {"data": data}).sentence == "This page takes no files."
    assert post(door(), {"data": [{"path": "a"}, {"meta": 1}]}).status == 200


# Rates


def test_an_address_may_ask_so_often(monkeypatch):
    """An address gets a burst, then requests at a steady rate.

    Others are not affected, and posts have their own rate.
    """
    now = 0.0
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now)
    app = Bare()
    slow = door(app, requests=Rate(4, 0.4), posts=Rate(2, 0.25))
    assert [post(slow, {}).status for _ in range(3)] == [200, 200, 429]
    assert [ask(slow).status for _ in range(2)] == [200, 429]
    assert ask(slow, peer="203.0.113.8").status == 200
    reply = ask(slow)
    assert (reply.status, reply.headers["retry-after"]) == (429, "3") and "Too many requests" in reply.sentence
    now = 2.6
    assert [ask(slow, "/nothing").status, ask(slow).status] == [404, 429]  # refused requests count as well
    now = 1000.0
    assert [post(slow, {}).status for _ in range(3)] == [200, 200, 429]  # no more than the burst was restored


def test_an_address_may_send_so_much(monkeypatch):
    """The bytes of its posts have a burst and a rate. A post that is refused costs nothing of it."""
    now = 0.0
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now)
    size = len(json.dumps({"data": ["x" * 1000]}))
    slow = door(sent=Rate(2.5 * size, size / 10))
    answers = [post(slow, {"data": ["x" * 1000]}) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "5" and "Too many large requests" in answers[2].sentence
    assert post(slow, {}).status == 200
    now = 6.0
    assert post(slow, {"data": ["x" * 1000]}).status == 200


def test_addresses_are_forgotten(monkeypatch):
    monkeypatch.setattr(rate_limits, "ADDRESSES", 3)
    slow = door(requests=Rate(1, 0.001))
    assert [ask(slow, peer=f"8.8.8.{i}").status for i in (1, 1, 2, 3, 1, 4, 5)] == [200, 429, 200, 200, 429, 200, 200]
    assert len(slow._requests._buckets) == 3
    assert [ask(slow, peer=f"8.8.8.{i}").status for i in (1, 2)] == [429, 200]


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "address"),
    [
        ("203.0.113.7", [], 0, "203.0.113.7"),
        ("10.0.0.1", ["1.1.1.1"], 0, "10.0.0.1"),
        ("8.8.8.8", ["1.1.1.1"], 1, "8.8.8.8"),  # not through the proxy
        ("10.0.0.1", ["1.1.1.1"], 1, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, 192.168.1.7"], 1, "192.168.1.7"),  # a visitor in the proxy's network made up the first
        ("127.0.0.1", ["9.9.9.9", "1.1.1.1"], 1, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, 1.1.1.1, 10.1.2.3"], 2, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, 192.168.1.7", "10.1.2.3"], 2, "192.168.1.7"),
        ("127.0.0.1", ["1.1.1.1"], 2, "127.0.0.1"),  # not through the outer proxy
        ("127.0.0.1", ["9.9.9.9, nonsense"], 1, "127.0.0.1"),
        ("127.0.0.1", ["9.9.9.9,"], 1, "127.0.0.1"),
        ("127.0.0.1", [], 1, "127.0.0.1"),
        ("127.0.0.1", ["1.1.1.1:4711"], 1, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, 10.1.2.3:1"], 1, "10.1.2.3"),
        ("127.0.0.1", ["[2a00:1450:4001:82f::9]:4711"], 1, "2a00:1450:4001:82f::/64"),
        ("127.0.0.1", ["[2a00:1450:4001:82f::9]"], 1, "2a00:1450:4001:82f::/64"),
        ("127.0.0.1", ["1.1.1.1:"], 1, "127.0.0.1"),
        ("127.0.0.1", ["[::1]:x"], 1, "127.0.0.1"),
        ("10.0.0.1", ["fe80::7%eth0"], 1, "fe80::/64"),
        # The number of proxies is not known.
        ("8.8.8.8", ["1.1.1.1"], None, "8.8.8.8"),
        ("127.0.0.1", ["9.9.9.9, 1.1.1.1, 10.1.2.3"], None, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, 1.1.1.1:80, 10.1.2.3:80"], None, "1.1.1.1"),
        ("127.0.0.1", ["9.9.9.9, nonsense"], None, "127.0.0.1"),
        ("127.0.0.1", ["10.0.0.5"], None, "127.0.0.1"),
        ("127.0.0.1", [], None, "127.0.0.1"),
        ("2a00:1450:4001:82f:1:2:3:4", [], 0, "2a00:1450:4001:82f::/64"),
        ("::1", ["2a00:1450:4001:82f:9:9:9:9"], 1, "2a00:1450:4001:82f::/64"),
        ("::ffff:8.8.8.8", [], 0, "8.8.8.8"),
        ("::ffff:10.0.0.1", ["::ffff:1.1.1.1"], 1, "1.1.1.1"),
        ("testclient", ["1.1.1.1"], 1, "unknown"),
    ],
)
def test_address(peer, forwarded, proxies, address):
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    request = Request({"type": "http", "headers": headers, "client": (peer, 1)})
    assert address_of(request, proxies) == address
    assert address_of(gr.Request(request), proxies) == address


def test_no_peer_has_no_address():
    assert address_of(Request({"type": "http", "headers": [], "client": None}), 1) == "unknown"


# Streams


class Stream:
    """An app that streams until it is told to stop or its client leaves, and records who listens."""

    def __init__(self, streams, error=None):
        self.streams, self.error, self.end = streams, error, asyncio.Event()
        self.tidying = []

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        leaving = asyncio.create_task(receive())
        ending = asyncio.create_task(self.end.wait())
        await asyncio.wait({leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
        self.tidying.append(self.streams.listening("s1"))
        leaving.cancel()
        ending.cancel()
        if self.error:
            raise self.error


def stream(door, query="session_hash=s1", path=DATA, peer=PEER, leave=20) -> asyncio.Task:
    return asyncio.create_task(ask_soon(door, path, "GET", [b"", leave], (), peer, query, "", None))


def test_sessions_that_listen_and_that_left():
    """A session listens while its stream is open. It has left when that ends or its client goes."""

    async def main():
        left: list[str] = []
        streams = OpenStreams(left.append)
        app = Stream(streams)
        guarded = door(app, streams)
        assert not streams.listening("s1")
        first = stream(guarded)
        await asyncio.sleep(0.01)
        assert streams.listening("s1") and not streams.listening("s2") and not left
        app.end.set()
        await first
        assert not streams.listening("s1") and left == ["s1"]
        app.end.clear()
        await stream(guarded, leave=0.05)
        assert left == ["s1", "s1"] and app.tidying[-1] is False  # reported before the app has cleaned up
        third = stream(guarded)
        await asyncio.sleep(0.01)
        third.cancel()  # as a stopping server does
        await asyncio.wait([third])
        app.error, _ = RuntimeError("broken"), app.end.set()
        with pytest.raises(RuntimeError):
            await stream(guarded)
        assert left == ["s1"] * 4 and not streams._addresses

    asyncio.run(main())


def test_a_session_has_one_stream(monkeypatch):
    """A second stream would get a part of the answers. It is refused, unless the first one closes soon."""
    monkeypatch.setattr(rate_limits, "HANDOVER", 0.2)

    async def main():
        left: list[str] = []
        streams = OpenStreams(left.append)
        app = Stream(streams)
        guarded = door(app, streams)
        first, heartbeat = stream(guarded), stream(guarded, "", "/gradio_api/heartbeat/s1")
        other = stream(guarded, "session_hash=s2")
        await asyncio.sleep(0.01)
        reply = await stream(guarded)
        assert reply.status == 409 and "Another open stream" in reply.sentence
        assert streams.listening("s1") and not left and not first.done()
        next_ones = [stream(guarded), stream(guarded)]
        await asyncio.sleep(0.01)
        app.end.set()
        assert [(await task).status for task in (first, heartbeat, other)] == [200, 200, 200]
        app.end.clear()
        await asyncio.sleep(0.05)
        assert streams.listening("s1") and left.count("s1") == 1
        done, _ = await asyncio.wait(next_ones, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().status for task in done] == [409]
        app.end.set()
        assert sorted([(await task).status for task in next_ones]) == [200, 409]
        assert left.count("s1") == 2 and not streams._addresses

    asyncio.run(main())


def test_a_failing_callback_does_not_keep_a_stream(caplog):
    def fail(session):
        raise RuntimeError("broken")

    async def main():
        streams = OpenStreams(fail)
        assert (await stream(door(Stream(streams), streams), leave=0.01)).status == 200
        assert not streams._addresses

    asyncio.run(main())
    assert "broken" in caplog.text


def test_streams_are_capped():
    """Streams are limited per address and in total, heartbeats too. A closed stream frees its place."""

    async def main():
        streams = OpenStreams(of_address=2, in_all=3)
        app = Stream(streams)
        guarded = door(app, streams)
        held = [stream(guarded), stream(guarded, "", "/gradio_api/heartbeat/s1")]
        await asyncio.sleep(0.01)
        reply = await stream(guarded, "", "/gradio_api/heartbeat/s2")
        assert (reply.status, reply.headers["retry-after"]) == (429, "10") and "Too many pages" in reply.sentence
        held.append(stream(guarded, "session_hash=s2", peer="8.8.8.8"))
        await asyncio.sleep(0.01)
        reply = await stream(guarded, "session_hash=s3", peer="9.9.9.9")
        assert (reply.status, reply.headers["retry-after"]) == (503, "60") and "Too many visitors" in reply.sentence
        app.end.set()
        await asyncio.gather(*held)
        assert (await stream(guarded)).status == 200 and not streams._addresses and not streams._sessions

    asyncio.run(main())


# Health, headers, failures


def test_health():
    """The health check is answered despite too many other requests, and a failing check is not healthy."""

    def broken():
        raise RuntimeError("secret")

    busy = door(requests=Rate(1, 0.001), health=lambda: {"ok": True, "waiting": 3})
    replies = [ask(busy, "/healthz") for _ in range(3)]
    assert [(reply.status, json.loads(reply.body)) for reply in replies] == [(200, {"ok": True, "waiting": 3})] * 3
    reply = ask(door(health=lambda: {"ok": False, "why": "no pair"}), "/healthz")
    assert (reply.status, json.loads(reply.body)) == (503, {"ok": False, "why": "no pair"})
    reply = ask(door(health=broken), "/healthz")
    assert (reply.status, json.loads(reply.body)) == (503, {"ok": False})
    assert ask(busy, "/demo/healthz", root="/demo").status == 200
    assert [ask(busy, "/healthz", method).status for method in ("HEAD", "POST", "PUT")] == [200, 404, 404]


def test_the_health_check_is_metered(monkeypatch):
    """A monitor may ask every second, beside a flood from elsewhere."""
    now = 0.0
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now)
    front = door()
    statuses = [ask(front, "/healthz").status for _ in range(601)]
    assert statuses == [200] * 600 + [429]
    for second in range(100):
        now = float(second)
        assert ask(front, "/healthz", peer="203.0.113.8").status == 200
    assert ask(front).status == 200  # the flood does not count as requests for the page


def test_headers():
    """Accepted and refused requests get the headers, and other sites may read neither."""

    async def open_to_all(scope, receive, send):
        allow = [
            (b"access-control-allow-origin", b"https://evil.example"),
            (b"access-control-allow-credentials", b"true"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": [*allow, (b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b""})

    other = door(open_to_all, hosts=("https://cdn.example",))
    replies = [ask(other), ask(other, "/nothing"), ask(other, "/healthz")]
    assert [reply.status for reply in replies] == [200, 404, 200] and replies[0].headers["x-own"] == "1"
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        policy = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'self' https://cdn.example" and policy["object-src"] == "'none'"
        assert policy["connect-src"] == "'self' data: blob: https://cdn.example"
        for name in ("script-src", "style-src", "img-src", "font-src"):
            assert policy[name].startswith("'self' ") and policy[name].endswith(" https://cdn.example")
        assert policy["frame-ancestors"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == "'self'"
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_space_is_shown_in_a_frame():
    policy = ask(door(frames=SPACE_FRAMES)).headers["content-security-policy"]
    assert policy.endswith("; frame-ancestors 'self' https://huggingface.co https://*.hf.space")


@pytest.mark.parametrize("space", [True, False])
def test_only_a_space_is_served_for_frames(monkeypatch, space):
    given: dict[str, Any] = {}
    monkeypatch.setattr(launch, "in_front", lambda **options: given.update(options))
    monkeypatch.setattr(gr.Blocks, "launch", lambda *args, **options: (None, "http://127.0.0.1:7860/", None))
    monkeypatch.setenv("SPACE_ID", "me/specdec") if space else monkeypatch.delenv("SPACE_ID", raising=False)
    jobs = SimpleNamespace(limits=PUBLIC, left=LEFT.append, proxies=1)
    launch.serve(SimpleNamespace(jobs=jobs, demo=gr.Blocks(), health=dict))
    assert given.get("frames") == (SPACE_FRAMES if space else None) and given["launched"]()


def failing(status=0, kind=b"text/plain", error: Exception | None = None):
    async def app(scope, receive, send):
        if status:
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": b"secret /home/me"})
        if error:
            raise error

    return app


def test_failures_reveal_nothing(caplog):
    """Failures reveal nothing, whether the app raises or answers first. The log has the traceback."""
    for app in (failing(error=KeyError("secret")), failing(500, error=KeyError("secret"))):
        caplog.clear()
        reply = post(door(app), {})
        assert (reply.status, reply.sentence) == (500, "The page failed on this request.")
        assert "KeyError: 'secret'" in caplog.text and "Traceback" in caplog.text
    for status in (422, 500):
        reply = post(door(failing(status)), {})
        assert (reply.status, reply.sentence) == (status, "The page does not understand this request.")
    reply = post(door(failing(500, b"application/json")), {})  # Gradio's own error, which its frontend reads
    assert (reply.status, reply.body) == (400, b"secret /home/me")
    with pytest.raises(KeyError):  # too late for another answer
        post(door(failing(200, error=KeyError())), {})


# A served page

LEFT: list[str] = []
GO = threading.Event()  # the function of the page waits while this is not set
GO.set()


@pytest.fixture(scope="module")
def streams() -> OpenStreams:
    return OpenStreams(LEFT.append)


@pytest.fixture(scope="module")
def demo(streams) -> Iterator[gr.Blocks]:
    def count(most: int):
        for i in range(int(most)):
            GO.wait(20)
            time.sleep(0.05)
            yield i

    with gr.Blocks(analytics_enabled=False) as demo:
        number, out, said = gr.Number(3), gr.Textbox(elem_id="out"), gr.Textbox(elem_id="said")
        gr.Button("Count", elem_id="count").click(count, number, out, api_name="count")
        gr.Button("Say", elem_id="say").click(lambda: "said", None, said, queue=False, api_visibility="private")
        gr.HTML("", html_template="", js_on_load="window.made = new Function('return 1')()")
        demo.unload(lambda: None)
    demo.queue(api_open=False)
    front = in_front(streams=streams, health=lambda: {"ok": True}, max_body=100_000, **WIDE)
    demo.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, app_kwargs={"routes": routes(), "lifespan": front}
    )
    yield demo
    demo.close()


def test_probes_find_nothing(demo):
    for path in [*CLOSED, *ODD]:
        if path.isascii() and path.isprintable() and " " not in path:  # other paths cannot be sent
            for method in ("GET", "POST"):
                reply = send(demo, method, path, {} if method == "POST" else None)
                assert reply.status == 404 and reply.sentence, path


def test_probes_reach_no_queued_function(demo):
    """Probes reach no queued function by name, by number or past the queue. Forged names and files are refused too."""
    by_number = {"data": [1], "fn_index": 0, "session_hash": "s1"}
    assert send(demo, "POST", "/gradio_api/run/count", {"data": [1]}).status == 404
    assert send(demo, "POST", RUN, by_number).status == 404
    assert send(demo, "POST", JOIN, by_number | {"session_hash": "../s"}).status == 400
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    assert send(demo, "POST", JOIN, by_number | {"data": [file]}).status == 400
    assert send(demo, "GET", f"{DATA}?session_hash=%2e%2e").status == 400
    assert send(demo, "GET", "/static/%2e%2e/config").status == 404
    assert send(demo, "POST", RUN, by_number | {"data": ["x" * 100_000]}).status == 413


def test_failures_of_gradio_become_sentences(demo, caplog):
    with caplog.at_level(logging.ERROR):
        reply = send(demo, "POST", RUN, {"data": [], "fn_index": 999, "session_hash": "s1"})
    assert (reply.status, reply.sentence) == (500, "The page failed on this request.")
    assert "KeyError: 999" in caplog.text
    reply = send(demo, "POST", RUN, {"data": "not a list", "fn_index": 1})
    assert reply.status == 422 and b"not a list" not in reply.body and reply.sentence


def test_a_refusal_of_a_large_body_reaches_its_client(demo):
    """Clients that send all of their request before they read the answer read a sentence, and no reset."""
    for path, status in ((JOIN, 413), ("/nothing", 404), ("/config", 404)):
        for chunked in (False, True):
            body = iter([b"x" * 65_536] * 150) if chunked else b"x" * 10_000_000
            reply = request_of(demo, "POST", path, body, [("Content-Type", "application/json")])
            assert reply.status == status and reply.sentence


def test_the_door_stands_before_all_of_gradio(demo):
    """The door comes before Gradio, whose middleware answers preflights and fails on requests without a host."""
    asked = [("origin", "https://evil.example"), ("access-control-request-method", "POST"), ("host", "example.com")]
    assert send(demo, "OPTIONS", RUN, headers=asked).status == 404
    reply = send(demo, "GET", "/config", headers=asked)
    assert reply.status == 200 and "access-control-allow-origin" not in reply.headers
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert json.loads(send(demo, "GET", "/healthz").body) == {"ok": True}


def test_programs_use_the_page(demo, streams):
    """gradio_client can run a generator, read its outputs and cancel, and its leaving is recorded."""
    from gradio_client import Client

    LEFT.clear()
    client = Client(f"http://127.0.0.1:{demo.server_port}", verbose=False)
    assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/count"]
    job = client.submit(3, api_name="/count")
    assert job.result(timeout=20) == "2" and [int(output) for output in job.outputs()] == [0, 1, 2]
    assert eventually(lambda: LEFT == [client.session_hash])
    job = client.submit(1000, api_name="/count")
    assert eventually(lambda: job.outputs()) and streams.listening(client.session_hash)
    job.cancel()
    assert eventually(lambda: LEFT == [client.session_hash] * 2)
    assert len(job.outputs()) < 1000
    client.close()


def test_a_second_stream_does_not_cut_the_first(demo, streams, monkeypatch):
    monkeypatch.setattr(rate_limits, "HANDOVER", 0.05)
    session, heard = "two-streams", []

    def listen():
        with httpx.stream("GET", f"http://127.0.0.1:{demo.server_port}{DATA}?session_hash={session}") as answer:
            heard.extend(json.loads(line[5:]) for line in answer.iter_lines() if line)

    GO.clear()
    assert send(demo, "POST", JOIN, {"data": [10], "fn_index": 0, "session_hash": session}).status == 200
    first = threading.Thread(target=listen, daemon=True)
    first.start()
    assert eventually(lambda: streams.listening(session))
    seconds = [request_of(demo, "GET", f"{DATA}?session_hash={session}", read=False).status for _ in range(3)]
    GO.set()
    first.join(20)
    kinds = [message["msg"] for message in heard]
    assert kinds.count("process_generating") == 10 and kinds[-2:] == ["process_completed", "close_stream"]
    assert seconds == [409] * 3


def test_the_page_works_in_a_browser(demo, streams):
    """The page loads in a browser with nothing refused, runs both kinds of events, and leaving is recorded."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    bad: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on(
            "response", lambda answer: bad.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
        )
        page.on("console", lambda said: bad.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: bad.append(str(error)))
        before = streams._addresses.total()
        page.goto(f"http://127.0.0.1:{demo.server_port}/")
        page.wait_for_selector("#say")
        page.wait_for_function("window.made === 1")
        page.click("#say")
        page.wait_for_function("document.querySelector('#said textarea').value === 'said'")
        page.click("#count")
        page.wait_for_function("document.querySelector('#out textarea').value === '2'")
        assert not bad
        page.evaluate("document.body.append(Object.assign(new Image(), {src: 'https://example.com/x.png'}))")
        page.wait_for_timeout(300)
        assert any("Content Security Policy" in line for line in bad)
        page.fill("input[type=number]", "1000")
        page.click("#count")
        assert eventually(lambda: bool(streams._sessions))
        LEFT.clear()
        page.close()
        assert eventually(lambda: bool(LEFT)) and not streams._sessions
        assert eventually(lambda: streams._addresses.total() <= before)
        browser.close()
