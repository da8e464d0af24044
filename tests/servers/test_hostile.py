"""Servers that are broken or hostile: each ends in one sentence, soon, and in little memory."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import httpcore2
import pytest

from specdec.errors import InvalidInput, ServerFailed
from specdec.events import SamplingParams
from specdec.servers import client as bounds
from specdec.servers import deadlines
from specdec.servers import tokens as learning
from specdec.servers.answer import Asked
from specdec.servers.lane import connect, server_lane
from specdec.servers.probe import metrics_of, probe
from specdec.servers.tokens import ServerTokens
from tests.servers.exchanges import send, serving

DEADLINE = 1.0  # seconds of a call, of all pages of a probe, and of learning what tokens are
SLACK = 20.0  # seconds more, on a busy machine; what hangs here does so for a minute
MEMORY = 60e6  # bytes
TOKENS = 40
Handler = BaseHTTPRequestHandler
Part = Callable[[Handler], None]


def start(handler: Handler, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": kind, "Connection": "close", **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.close_connection = True


def sent(body: bytes | Iterator[bytes], status: int = 200, kind: str = "text/event-stream", **headers: str) -> Part:
    """An answer of these bytes, at once or piece by piece."""

    def part(handler: Handler) -> None:
        start(handler, status, kind, **headers)
        for piece in [body] if isinstance(body, bytes) else body():  # type: ignore[operator]
            handler.wfile.write(piece)

    return part


def page(value: Any) -> Part:
    return sent(json.dumps(value).encode(), kind="application/json")


def events(*records: Any, done: bool = True) -> Part:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return sent("".join(f"data: {line}\n\n" for line in [*lines, *["[DONE]"] * done]).encode())


def choice(text: Any = " a", ids: Any = (7,), finish: Any = None, **more: Any) -> dict:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, "token_ids": ids} | more]}


def guessed(drafted: Any, accepted: Any, **more: Any) -> dict:
    lists = {"num_spec_tokens": 5, "per_step_drafted": drafted, "per_step_accepted": accepted}
    return {"choices": [], "metrics": {"speculative_decoding": lists | more}}


def drip(pieces: bytes, every: float = 0.1) -> Callable[[], Iterator[bytes]]:
    """One byte at a time, for a minute."""

    def slowly() -> Iterator[bytes]:
        end = time.perf_counter() + 60
        for byte in pieces * 1000:
            if time.perf_counter() > end:
                return
            time.sleep(every)
            yield bytes([byte])

    return slowly


def repeated(piece: bytes, times: int) -> Callable[[], Iterator[bytes]]:
    return lambda: (piece for _ in range(times))


def endless_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(100_000):
        handler.wfile.write(b"X-More: " + b"a" * 1000 + b"\r\n")


def slow_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for piece in drip(b"X-More: a\r\n")():
        handler.wfile.write(piece)


def slow_interim(handler: Handler) -> None:
    """Interim answers without an end, each of them a whole one."""
    for _ in range(600):
        handler.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.1)


def cut(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"data: " + json.dumps(choice()).encode() + b"\n\n")
    handler.close_connection = True


def no_answer(handler: Handler) -> None:
    handler.close_connection = True


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"\x00\x01\x02\x03 hello\r\n\r\n")
    handler.close_connection = True


LAST = choice(" b", (8,), "length")
END = choice("", None, "length")
DEEP = "[" * 100_000 + "]" * 100_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e"
# What a stream may be, and what the sentence about it says.
STREAMS: dict[str, tuple[Part, str]] = {
    "endless": (sent(repeated(b"data: " + json.dumps(choice()).encode() + b"\n\n", 10**7)), "more than the 40 tokens"),
    "endless comments": (sent(repeated(b": ping\n\n" * 1000, 10**6)), "more than 64 MB|before the deadline"),
    "endless empty events": (sent(repeated(b'data: {"choices": []}\n\n' * 100, 10**6)), "more than 64 MB|deadline"),
    "endless headers": (endless_headers, "broke the connection"),
    "slow headers": (slow_headers, "before the deadline"),
    "slow interim answers": (slow_interim, "before the deadline"),
    "slow drip": (sent(drip(b"data: {}\n\n")), "before the deadline"),
    "slow drip without a line": (sent(drip(b"a")), "before the deadline"),
    "no answer": (no_answer, "broke the connection"),
    "no http": (no_http, "broke the connection"),
    "wrong ids": (events(choice(ids=["a"]), LAST), "no count"),
    "ids that are no list": (events(choice(ids={"a": 1}), LAST), "no list"),
    "ids out of range": (events(choice(ids=[-1]), LAST), "no count"),
    "ids far out of range": (events(choice(ids=[10**9]), LAST), "no count"),
    "ids that are true": (events(choice(ids=[True]), LAST), "no count"),
    "many ids": (events(choice(ids=[7] * 41), LAST), "more than the 40 tokens"),
    "NaN": (events('{"choices": [], "usage": {"completion_tokens": NaN}}'), "no JSON"),
    "infinity by digits": (events('{"choices": [], "usage": {"completion_tokens": 1e999}}'), "no JSON"),
    "huge integers": (events('{"choices": [], "usage": {"completion_tokens": ' + "9" * 9000 + "}}"), "no JSON"),
    "large integers": (events({"choices": [], "usage": {"completion_tokens": 10**30}}), "no count"),
    "negative counts": (events(choice(), LAST, guessed([5, -5], [1, 1])), "no count"),
    "more kept than made": (events(choice(), LAST, guessed([1], [3])), "contradict"),
    "lists of two lengths": (events(choice(), LAST, guessed([1, 1], [1])), "contradict"),
    "sums that contradict": (
        events(choice(), LAST, guessed(None, None, num_spec_steps=1, num_draft_tokens=2, num_accepted_draft_tokens=9)),
        "contradict",
    ),
    "a million steps": (events(choice(), LAST, guessed([0] * 10**6, [0] * 10**6)), "an event of more than 1 MB"),
    "many guesses": (events(choice(), LAST, guessed([900], [0], num_spec_tokens=900)), "16 are shown at most"),
    "a line of 100 MB": (sent(repeated(b"a" * 100_000, 1000)), "an event of more than 1 MB"),
    "a redirect": (sent(b"", 302, Location="http://127.0.0.1:9/v1/completions"), "redirect to another address"),
    "a packed answer": (
        sent(gzip.compress(b"data: " + b"a" * 10**7), **{"Content-Encoding": "gzip"}), "packed answer"
    ),
    "HTML": (sent(b"<html>", kind="text/html; charset=utf-8"), "'text/html; charset=utf-8' where a stream"),
    "no content type": (sent(b"data: {}\n\n", kind=""), "no content type"),
    "JSON in place of a stream": (page({"choices": [{"text": "a"}]}), "'application/json' where a stream"),
    "half a character": (sent(b'data: {"choices": [{"text": "\xc3"}]}\n\n'), "without a reason"),
    "half a surrogate pair": (events('{"choices": [{"text": "\\ud83d", "finish_reason": "length"}]}'), ""),
    "deep JSON": (events(DEEP), "no JSON"),
    "deep JSON that is never closed": (events("[" * 500_000), "no JSON"),
    "a list": (events([1, 2]), "no JSON object"),
    "no JSON": (events("nonsense"), "no JSON"),
    "an empty stream": (sent(b""), "without a reason"),
    "no text": (events(END), "wrote no text"),
    "no end": (events(choice(), done=False), "without a reason"),
    "an error in mid-stream": (events(choice(), {"error": {"message": f"gone {ESCAPES}"}}), "with an error: gone"),
    "an error that is long": (events({"error": {"message": "a" * 10**5}}), "with an error: aaaa"),
    "an error that is a list": (events({"error": [1, {"a": ESCAPES}]}), "with an error"),
    "cut": (cut, "broke the connection"),
    "status 500 with 10 MB": (sent(repeated(b"a" * 10**5, 100), 500), "status 500"),
    "status 400 with a message": (
        sent(json.dumps({"error": {"message": f"too long {ESCAPES}"}}).encode(), 400), "status 400: too long"
    ),
    "choices of numbers": (events({"choices": [1, 2]}), "choices cannot be read"),
    "choices that are a text": (events({"choices": "a"}), "choices cannot be read"),
    "a number as text": (events(choice(text=5), LAST), "a text that is no text"),
    "a list as text": (events({"choices": [{"delta": {"content": ["a"]}}]}), "a text that is no text"),
    "negative usage": (events(choice(), LAST, {"choices": [], "usage": {"completion_tokens": -5}}), "no count"),
    "prompt ids that are no list": (events({"choices": [], "prompt_token_ids": 5}), "no list"),
    "an unknown end": (events(choice(finish="abort")), "not known here: 'abort'"),
    "an end that is an object": (events(choice(finish={"type": "stop"})), "not known here"),
    "escapes in the text": (events(choice(ESCAPES, finish="length")), ""),
}  # fmt: skip
# What pages may be before any call.
MANY = ",".join(f'{{"id": "{i}"}}' for i in range(100_000))
PROBES: dict[str, tuple[dict[str, Part], str]] = {
    "100 MB": ({"/v1/models": sent(repeated(b"a" * 100_000, 1000))}, "more than 4 MB"),
    "slow models": ({"/v1/models": sent(drip(b" "))}, "before the deadline"),
    "slow metrics": ({"/metrics": sent(drip(b"a 1\n"))}, "before the deadline"),
    "slow version": ({"/version": slow_headers}, "before the deadline"),
    "every page a little slow": (
        {path: sent(lambda: (time.sleep(0.6) or b"{}" for _ in range(1))) for path in ("/version", "/props", "/slots")},
        "before the deadline",
    ),
    "HTML": ({"/v1/models": sent(b"<html>", kind="text/html")}, "does not list its models"),
    "deep JSON": ({"/v1/models": sent(DEEP.encode())}, "does not list its models"),
    "models that are no list": ({"/v1/models": page({"data": 5})}, "does not list its models"),
    "models that are numbers": ({"/v1/models": page({"data": [1, 2]})}, "does not list its models"),
    "control characters": ({"/v1/models": page({"data": [{"id": f"a{ESCAPES}"}]})}, "control characters"),
    "a name of 1 MB": ({"/v1/models": page({"data": [{"id": "a" * 10**6}]})}, "1 to 200 characters"),
    "a name that is a number": ({"/v1/models": page({"data": [{"id": 5}]})}, "1 to 200 characters"),
    "no name": ({"/v1/models": page({"data": [{"id": ""}]})}, "1 to 200 characters"),
    "many models": ({"/v1/models": sent(f'{{"data": [{MANY}]}}'.encode())}, "several models"),
    "models with escapes": ({"/v1/models": page({"data": [{"id": ESCAPES}, {"id": "b" * 9999}]})}, "several models"),
    "a redirect": ({"/v1/models": sent(b"", 307, Location="http://127.0.0.1:9/")}, "redirect"),
    "a packed answer": ({"/v1/models": sent(gzip.compress(b"{}"), **{"Content-Encoding": "gzip"})}, "packed"),
    "no answer": ({"/v1/models": no_answer}, "broke the connection"),
}  # fmt: skip
# What pages may be without being an error.
HARMLESS: dict[str, dict[str, Part]] = {
    "version as an object": {"/version": page({"version": {"a": 1}})},
    "version with escapes": {"/version": page({"version": f"1.0{ESCAPES}"})},
    "a version of 1 MB": {"/version": page({"version": "1" * 10**6})},
    "slots of numbers": {"/slots": page([1, 2])},
    "metrics garbage": {"/metrics": sent(b"\x00\xff{} 1e5 NaN\n" * 1000)},
    "metrics too large for a number": {"/metrics": sent(b"vllm:spec_decode_num_drafts_total 1e999\n" * 3)},
    "metrics with sums that are too large": {"/metrics": sent(b"vllm:spec_decode_num_drafts_total 1e308\n" * 9)},
    "metrics with open quotes": {"/metrics": sent(b'a{b="' * 5 * 10**5)},
    "metrics with open braces": {"/metrics": sent(b"a{\n" * 10**6)},
    "metrics with many names": {"/metrics": sent("".join(f"n{i} 1\n" for i in range(300_000)).encode())},
    "metrics of one line": {"/metrics": sent(b"a" * (4 * 10**6 - 10))},
    "metrics of one number": {"/metrics": sent(b"a " + b"1" * (10**6))},
    "pages that stand elsewhere": dict.fromkeys(("/version", "/metrics"), sent(b"", 301, Location="/version/")),
    "packed pages": dict.fromkeys(("/slots", "/metrics"), sent(b"\x1f", **{"Content-Encoding": "gzip"})),
    "a page of 5 MB": dict.fromkeys(("/props", "/metrics"), sent(b"[" * 5 * 10**6)),
}


@contextlib.contextmanager
def hostile(parts: dict[str, Part]) -> Iterator[str]:
    """A server that looks like vLLM but for these parts, by path."""
    usual = {"/v1/models": page({"data": [{"id": "m", "owned_by": "vllm"}]})}

    def answer(handler: Handler, body: Any) -> None:
        part = (usual | parts).get(handler.path)
        if part is None:
            send(handler, 404, "application/json", b"{}")
        else:
            part(handler)

    with serving(answer) as url:
        yield url


@contextlib.contextmanager
def bounded(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(learning, "PATIENCE", DEADLINE)
    tracemalloc.start()
    began = time.perf_counter()
    try:
        yield
        assert time.perf_counter() - began < DEADLINE + SLACK
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def require_sentence(error: BaseException, said: str) -> None:
    text = str(error)
    assert text.startswith("The server one ") and len(text) < 1500
    assert "\n" not in text and text.isprintable(), text
    assert "127.0.0.1" not in text
    assert re.search(said, text), text


def lane_of(url: str) -> list:
    server = connect("one", url, model="m")
    with server.client:
        asked = Asked("a", SamplingParams(max_new_tokens=TOKENS), DEADLINE)
        return list(server_lane(server, asked, ServerTokens(), "speculative"))


@pytest.mark.parametrize("kind", STREAMS)
def test_a_hostile_stream_ends_in_a_sentence(kind, monkeypatch) -> None:
    part, said = STREAMS[kind]
    with hostile({"/v1/completions": part}) as url, bounded(monkeypatch):
        if not said:  # a text like any other
            assert lane_of(url)
            return
        with pytest.raises((ServerFailed, InvalidInput)) as caught:
            lane_of(url)
    require_sentence(caught.value, said)


@pytest.mark.parametrize("kind", PROBES)
def test_a_hostile_page_ends_in_a_sentence(kind, monkeypatch) -> None:
    parts, said = PROBES[kind]
    with hostile(parts) as url, bounded(monkeypatch), bounds.Client("one", url) as client:
        with pytest.raises((ServerFailed, InvalidInput)) as caught:
            probe(client, seconds=DEADLINE)
    require_sentence(caught.value, said)


@pytest.mark.parametrize("kind", HARMLESS)
def test_a_page_of_nonsense_tells_nothing(kind, monkeypatch) -> None:
    with hostile(HARMLESS[kind]) as url, bounded(monkeypatch):
        server = connect("one", url)
        server.client.close()
    assert server.version is None or (server.version.isprintable() and len(server.version) < 60)


@pytest.mark.parametrize("part", [slow_headers, sent(drip(b" ")), sent(b"{" * 10**6), endless_headers, no_answer])
def test_tokens_that_nobody_spells_lose_the_text_and_not_the_race(part, monkeypatch) -> None:
    """Ids by the hundred, each of which would be asked for."""
    stream = events(*[choice("", [100 + i]) for i in range(TOKENS - 1)], choice("", [99], "length"))
    with hostile({"/v1/completions": stream, "/tokenize": part, "/detokenize": part}) as url, bounded(monkeypatch):
        events_ = lane_of(url)
    assert len(events_) == TOKENS + 2


def silence(go_on: threading.Event, *, after: Part | None = None) -> Part:
    """No byte, or none after ``after``, until ``go_on``."""

    def part(handler: Handler) -> None:
        if after is not None:
            after(handler)
            handler.wfile.flush()
        go_on.wait()

    return part


@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions", "half a stream"])
def test_a_stop_ends_the_wait_for_a_silent_server(path) -> None:
    """The deadline of the call is far away, so only the stop can end it."""
    stop, go_on = threading.Event(), threading.Event()
    half = silence(go_on, after=events(choice(), done=False))
    parts = {"/v1/completions": half} if path == "half a stream" else {path: silence(go_on)}
    with hostile(parts) as url:
        threading.Timer(0.5, stop.set).start()
        try:
            with pytest.raises(ServerFailed, match="The call of the server one was stopped"):
                server = connect("one", url, model="m", stopped=stop.is_set)
                with server.client:
                    server.ask(Asked("a", SamplingParams(max_new_tokens=TOKENS), 30.0))
        finally:
            go_on.set()


def test_data_that_never_becomes_json_is_refused_at_a_bound(monkeypatch) -> None:
    """Thousands of lines of one event, of which none is JSON, take no longer than they are long."""
    for line, said in (("data: [\n", "1000 lines"), ("data: " + "a" * 5000 + "\n", "more than 1 MB")):
        with hostile({"/v1/completions": sent(repeated(line.encode(), 10**6))}) as url, bounded(monkeypatch):
            with pytest.raises(ServerFailed) as caught:
                lane_of(url)
        require_sentence(caught.value, said)


LINES = {
    "an event of several lines": 'data: {"choices": [\ndata: {"index": 0, "text": " a"}]}\n\n',
    "events without an empty line between them": 'data: {"choices": [{"index": 0, "text": " a"}]}\ndata:\n',
    "a mark at the beginning": '\ufeffdata: {"choices": [{"index": 0, "text": " a"}]}\r\n\r\n',
    "an error that is none": 'data: {"error": false, "choices": [{"index": 0, "text": " a"}]}\n\n',
    "a count with a point": 'data: {"choices": [{"text": " a"}], "usage": {"completion_tokens": 2.0}}\n\n',
}


@pytest.mark.parametrize("many", [1, 10**6])
@pytest.mark.parametrize("kind", LINES)
def test_other_forms_of_a_stream_are_read(kind, many) -> None:
    """Byte by byte too, so that a mark or a line comes in two reads."""
    end = 'data: {"choices": [{"index": 0, "text": " b", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'
    body = (LINES[kind] + end).encode()

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(body), many):
            yield body[at : at + many]

    with hostile({"/v1/completions": sent(pieces)}) as url:
        started, *rounds, _ = lane_of(url)
    assert len(rounds) == 2 and started.pair["server"]["ids"] is False


def test_a_text_that_came_at_one_moment_has_one_time() -> None:
    """Each token is a part of its own (a chunk), and reading them all takes longer than nothing."""
    lines = [f"data: {json.dumps(choice())}\n\n".encode() for _ in range(TOKENS - 1)]
    lines += [f"data: {json.dumps(LAST)}\n\n".encode(), b"data: [DONE]\n\n"]
    whole = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines) + b"0\r\n\r\n"
    with hostile({"/v1/completions": sent(whole, **{"Transfer-Encoding": "chunked"})}) as url:
        server = connect("one", url, model="m")
        with server.client:
            found = server.ask(Asked("a", SamplingParams(max_new_tokens=TOKENS), 10.0))
    assert len(found.pieces) == TOKENS and len({piece.seconds for piece in found.pieces}) == 1


def test_a_server_that_closes_after_a_failure_is_asked_on(monkeypatch) -> None:
    """As uvicorn does: the answer says nothing of it, and the connection ends a moment later."""
    connections: list[int] = []

    def failing(handler: Handler) -> None:
        connections.append(handler.client_address[1])
        handler.send_response(500)
        handler.send_header("Content-Length", "5")
        handler.end_headers()
        handler.wfile.write(b"error")
        handler.wfile.flush()
        handler.close_connection = True
        time.sleep(0.1)

    with (
        hostile({"/version": failing, "/props": failing, "/slots": failing}) as url,
        bounds.Client("one", url) as client,
    ):
        assert probe(client, "m").model == "m"
    assert len(set(connections)) == 3


def test_a_silent_name_and_a_silent_handshake_take_the_time_of_a_connection(monkeypatch) -> None:
    go_on, waits, stopped = threading.Event(), [], [False]
    monkeypatch.setattr(deadlines, "CONNECT", 0.2)
    monkeypatch.setattr(deadlines.socket, "getaddrinfo", lambda *_, **__: go_on.wait())
    network = deadlines.Network(lambda: False)
    try:
        with pytest.raises(httpcore2.ConnectTimeout):
            network.connect_tcp("a.example", 80, time.perf_counter() + 60)
    finally:
        go_on.set()
    silent = SimpleNamespace(start_tls=lambda _, __, wait: waits.append(wait))
    stream = deadlines._Stream(silent, lambda: stopped[0])  # type: ignore[arg-type]
    stream.start_tls(None, "a.example", time.perf_counter() + 60)  # type: ignore[arg-type]
    assert waits == [0.2]
    stopped[0] = True
    with pytest.raises(deadlines.Stopped):
        stream.start_tls(None, "a.example", time.perf_counter() + 60)  # type: ignore[arg-type]


def test_a_name_of_many_silent_addresses_takes_one_deadline(monkeypatch) -> None:
    """All addresses of a name share the time in which a connection must stand, and a stop is looked at before each."""
    waits: list[float] = []

    class Silent:
        def connect_tcp(self, host: str, port: int, timeout: float, *_: Any) -> None:
            waits.append(timeout)
            time.sleep(min(timeout, 0.05))
            raise httpcore2.ConnectTimeout

    network = deadlines.Network(lambda: len(waits) == 3)
    monkeypatch.setattr(network, "_network", Silent())
    monkeypatch.setattr(deadlines, "_addresses", lambda *_: [f"10.0.0.{n}" for n in range(6)])
    with pytest.raises(deadlines.Stopped):
        network.connect_tcp("a.example", 80, time.perf_counter() + 3)
    assert len(waits) == 3 and sum(waits) < 3


def test_a_request_is_sent_in_parts_that_a_stop_ends() -> None:
    sent_parts: list[int] = []
    stream = SimpleNamespace(write=lambda part, _: sent_parts.append(len(part)))
    slow = deadlines._Stream(stream, lambda: len(sent_parts) == 2)  # type: ignore[arg-type]
    with pytest.raises(deadlines.Stopped):
        slow.write(b"a" * 10 * deadlines.SENT, time.perf_counter() + 10)
    assert sent_parts == [deadlines.SENT] * 2


def test_counters_that_go_back_are_not_told() -> None:
    counts = iter([b"9", b"9"])  # read by the probe, and before the call
    names = ("drafts", "draft_tokens", "accepted_tokens")

    def metrics(handler: Handler) -> None:
        value = next(counts, b"3")
        lines = (f"vllm:spec_decode_num_{name}_total ".encode() + value + b"\n" for name in names)
        send(handler, 200, "text/plain", b"".join(lines))

    with hostile({"/v1/completions": events(choice(), LAST), "/metrics": metrics}) as url:
        server = connect("one", url)
        with server.client:
            answer = server.ask(Asked("a", SamplingParams(max_new_tokens=TOKENS), DEADLINE))
            assert metrics_of(server.client)
    assert answer.counts is None and answer.exact == "speed"
