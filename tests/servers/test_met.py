"""Servers and proxies as people meet them: each is read right, by a race and under load, or refused with what to do."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from specdec.errors import ServerFailed
from specdec.events import SamplingParams
from specdec.servers import answer as answers
from specdec.servers import lane
from specdec.servers.answer import Answer, Asked, Piece
from specdec.servers.lane import Server, connect, server_lane
from specdec.servers.load import under_load
from specdec.servers.race import race_on_servers
from specdec.servers.tokens import ServerTokens
from tests.servers.test_hostile import Handler, Part, hostile, page, sent, start

WORDS = [" a", " little", " caf\u00e9", " named", " Lily", " had", " one", " red", " ball", "."]
TEXT = "".join(WORDS)
ASKED = Asked("Once", SamplingParams(max_new_tokens=20), 20.0)
MODELS = {"data": [{"id": "m", "owned_by": "somebody"}]}


def records(finish: Any = None, name: str = "text") -> list[dict]:
    """The events of a text; ``finish``: what stands in those before the last."""
    made = [{"choices": [{"index": 0, name: word, "finish_reason": finish}]} for word in WORDS]
    return [*made, {"choices": [{"index": 0, name: "", "finish_reason": "length"}]}]


def body(
    lines: list[dict], end: str = "\n", data: str = "data: ", done: str = "data: [DONE]", between: str = ""
) -> bytes:
    texts = [data + json.dumps(each, ensure_ascii=False) for each in lines] + [done]
    return "".join(between + text + end * 2 for text in texts).encode()


def flushed(pieces: list[bytes], pause: float = 0.002, **headers: str) -> Part:
    """An answer whose pieces go out one by one."""

    def part(handler: Handler) -> None:
        start(handler, **headers)
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            time.sleep(pause)

    return part


def http_1_0(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body(records()))
    handler.close_connection = True


def chunked(handler: Handler) -> None:
    """Chunks that end in the middle of events and of characters."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    whole = body(records())
    for at in range(0, len(whole), 7):
        piece = whole[at : at + 7]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


HELD_SECONDS = answers.HELD_SECONDS  # other tests have a longer one, because this machine may be busy


def held(seconds: float) -> Part:
    def part(handler: Handler) -> None:
        time.sleep(seconds)
        sent(body(records()))(handler)

    return part


def deltas(name: str) -> list[dict]:
    made = [{"choices": [{"index": 0, "delta": {name: word}}]} for word in WORDS]
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}
    return [first, *made, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": len(WORDS)}}
MERGED = [
    {"choices": [{"index": 0, "text": TEXT[at : at + 20], "finish_reason": None}]} for at in range(0, len(TEXT), 20)
]
LAST = records()[-1]
READ: dict[str, Part] = {
    "carriage returns and comments": sent(body(records(), "\r\n", between=": OPENROUTER PROCESSING\r\n\r\n")),
    "no space after data": sent(body(records(), data="data:", done="data:[DONE]")),
    "no end mark": sent(body(records(), done="")),
    "a byte order mark": sent(b"\xef\xbb\xbf" + body(records())),
    "names and numbers of events": sent(body(records(), between="event: completion\nid: 7\nretry: 10\n")),
    "HTTP/1.0 without a length": http_1_0,
    "chunks cut inside events and characters": chunked,
    "bytes one by one": flushed([bytes([each]) for each in body(records())], 0.0),
    "empty reasons": sent(body(records(finish=""))),
    "usage alone at the end": sent(body([*records(), USAGE])),
    "empty usage in each event": sent(body([each | {"usage": None} for each in records()])),
    "tokens merged into few chunks": sent(body([*MERGED, LAST, USAGE])),
    "a short wait": held(0.05),
}
REFUSED: dict[str, tuple[dict[str, Part], str]] = {
    "chats alone": (
        {"/v1/completions": sent(b'{"error": {"message": "Not Found"}}', 404)},
        r"status 404: Not Found\. It may not know this model, or answer chats alone; then send the prompt as a message",
    ),
    "too many calls": (
        {"/v1/completions": sent(b'{"error": {"message": "Slow down."}}', 429, **{"Retry-After": "20"})},
        r"status 429: Slow down\. It asks to wait 20 s\.$",
    ),
    "too many calls, without a time": (
        {"/v1/completions": sent(b"", 429)}, r"status 429\. It limits how often .* at once\.$"
    ),
    "a key is missing": (
        {"/v1/completions": sent(b'{"error": "no key"}', 401)}, r"status 401: no key\. Set its key .* SPECDEC_KEY_ONE"
    ),
    "two events in a line": ({"/v1/completions": sent(b'data: {"choices": []} data: {"choices": []}\n\n')}, "no JSON"),
    "an error as old servers send it": (
        {"/v1/completions": sent(b'data: {"object": "error", "message": "too long"}\n\n')}, "with an error: too long"
    ),
    "a login page": ({"/v1/completions": sent(b"<html>", 200, "text/html")}, "'text/html' where a stream"),
}  # fmt: skip
CLOSED: dict[str, tuple[Part, str]] = {
    "a key is missing": (
        sent(b'{"detail": "Unauthorized"}', 401), r"status 401: Unauthorized\. Set its key in the environment variable"
    ),
    "a key is wrong": (sent(b"", 403), "status 403. Set its key in the environment variable"),
    "too many calls": (sent(b"", 429, **{"Retry-After": "7"}), r"status 429\. It asks to wait 7 s\.$"),
    "a model that is loading": (
        sent(b'{"error": {"message": "Loading model"}}', 503), "status 503: Loading model. It may still be loading"
    ),
}  # fmt: skip


def used(url: str) -> Iterator[Callable[[], list]]:
    """What people do with two servers: races, a measurement under load. Each gives the texts that were read."""
    servers: list[Server] = [connect(name, url) for name in ("one", "one-more")]
    tokens = ServerTokens()

    def race() -> list[bytes]:
        runs = [events for _, events in race_on_servers(servers, ASKED, tokens)]
        return [b"".join(tokens(i) for each in events[1:-1] for i in each.committed_ids) for events in runs]

    def load() -> list[bytes]:
        found = list(under_load(servers, [ASKED], [2], 1))
        assert all(each.tokens >= 0 and len(each.first_seconds) == 6 for each in found)
        return []

    yield race
    yield load
    for server in servers:
        server.client.close()


@pytest.mark.parametrize("kind", READ)
def test_a_stream_as_people_meet_it_is_read(kind) -> None:
    with hostile({"/v1/models": page(MODELS), "/v1/completions": READ[kind]}) as url:
        for use in used(url):
            assert set(use()) <= {TEXT.encode()}


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_a_chat_as_people_meet_it_is_read(name) -> None:
    asked = Asked(({"role": "user", "content": "Once"},), ASKED.params, 20.0)
    with hostile({"/v1/models": page(MODELS), "/v1/chat/completions": sent(body([*deltas(name), USAGE]))}) as url:
        server = connect("one", url)
        with server.client:
            assert server.ask(asked).text == TEXT and server.ask(asked).tokens == len(WORDS)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_call_that_cannot_be_measured_is_refused_with_what_to_do(kind, monkeypatch) -> None:
    monkeypatch.setattr(answers, "HELD_SECONDS", HELD_SECONDS)
    parts, said = REFUSED[kind]
    with hostile({"/v1/models": page(MODELS)} | parts) as url:
        for use in used(url):
            with pytest.raises(ServerFailed, match=said):
                use()


def test_a_race_through_a_proxy_that_buffers_is_refused_and_a_load_tells_no_seconds_of_tokens(monkeypatch) -> None:
    monkeypatch.setattr(answers, "HELD_SECONDS", HELD_SECONDS)
    monkeypatch.setattr(lane, "AGAIN", 0.5)
    with hostile({"/v1/models": page(MODELS), "/v1/completions": held(0.4)}) as url:
        race, _ = used(url)
        with pytest.raises(
            ServerFailed, match=r"whole text at one moment, \d\.\d\d s after .* such as a proxy; switch"
        ):
            race()
        server = connect("one", url)
        with server.client:
            (found,) = under_load([server], [ASKED], [2], 1)
    assert found.rate > 0 and not found.first_seconds and not found.token_seconds


@pytest.mark.parametrize(("seconds", "step", "back"), [(0.128, 0.0, True), (0.128, 0.001, False), (0.05, 0.0, False)])
def test_a_text_that_came_at_one_moment_tells_no_seconds_of_a_token(seconds, step, back, monkeypatch) -> None:
    """32 tokens 0.128 s after the request were shown as 0.0 ms a token. A short wait is that of a server nearby."""
    monkeypatch.setattr(answers, "HELD_SECONDS", HELD_SECONDS)
    pieces = tuple(Piece(seconds + step * at, "w", None) for at in range(32))
    assert Answer(None, pieces, "length", 0.2).held_back == back


@pytest.mark.parametrize(("again", "late"), [(60.0, 3), (0.0, 1)])
def test_a_stream_that_was_read_at_one_moment_is_asked_for_again(again, late, monkeypatch) -> None:
    """A fast server's stream several times, because it costs little; a slow one's once more."""
    monkeypatch.setattr(answers, "HELD_SECONDS", HELD_SECONDS)
    monkeypatch.setattr(lane, "AGAIN", again)
    parts = iter([*[held(0.2)] * late, sent(body(records()))])
    with hostile({"/v1/models": page(MODELS), "/v1/completions": lambda handler: next(parts)(handler)}) as url:
        server, tokens = connect("one", url), ServerTokens()
        with server.client:
            events = list(server_lane(server, ASKED, tokens, "generate"))
    assert b"".join(tokens(i) for each in events[1:-1] for i in each.committed_ids) == TEXT.encode()  # type: ignore[union-attr]
    assert next(parts, None) is None


@pytest.mark.parametrize(
    ("model", "shown"),
    [("/home/me/models/tiny", "tiny"), ("C:\\models\\tiny", "tiny"), ("./tiny/", "tiny"), ("org/tiny", "org/tiny")],
)
def test_a_recording_has_no_path_to_a_servers_model(model, shown) -> None:
    with hostile({"/v1/models": page(MODELS), "/v1/completions": sent(body(records()))}) as url:
        server = connect("one", url, model=model)
        with server.client:
            facts = server.facts(server.ask(ASKED))
    assert facts["server"]["model"] == facts["target"]["name"] == shown


@pytest.mark.parametrize("kind", CLOSED)
def test_a_server_that_refuses_this_client_is_not_said_to_lack_models(kind) -> None:
    part, said = CLOSED[kind]
    with hostile({"/v1/models": part}) as url, pytest.raises(ServerFailed, match=said):
        connect("one", url)


def test_inner_pages_that_are_forbidden_close_no_server() -> None:
    forbidden = sent(b"", 403)
    parts = {path: forbidden for path in ("/version", "/props", "/slots", "/server_info", "/metrics")}
    with hostile({"/v1/models": page(MODELS), "/v1/completions": sent(body(records()))} | parts) as url:
        server = connect("one", url)
        with server.client:
            assert server.ask(ASKED).text == TEXT


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server with a certificate of its own, and the certificate."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *subject], check=True, capture_output=True)

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page(MODELS)(self) if self.path == "/v1/models" else self.send_error(404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            sent(body(records()))(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that leaves at the handshake
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}", certificate
    server.shutdown()
    server.server_close()


def test_a_certificate_of_its_own_is_refused_until_it_is_named(encrypted, monkeypatch) -> None:
    url, certificate = encrypted
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(ServerFailed, match=r"certificate that is not trusted here \(self.signed .* in SSL_CERT_FILE\."):
        connect("one", url)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = connect("one", url)
    with server.client:
        assert server.ask(ASKED).text == TEXT
        assert list(server_lane(server, ASKED, ServerTokens(), "speculative"))


def test_an_address_with_https_of_a_server_without_it() -> None:
    with hostile({}) as url, pytest.raises(ServerFailed, match="with TLS; try the address with http://"):
        connect("one", url.replace("http:", "https:"))
