"""A served page with a password, and strangers without it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from urllib.parse import urlencode

import gradio as gr
import pytest
from asking import DATA, RUN, WIDE, Bare, Reply, ask, door, post, request_of, send
from gradio_client import Client
from gradio_client.exceptions import AuthenticationError

from specdec.ui.server import rate_limits
from specdec.ui.server.gateway import in_front
from specdec.ui.server.logins import Logins
from specdec.ui.server.rate_limits import OpenStreams
from specdec.ui.server.request_checks import ROUTES

pytestmark = pytest.mark.xdist_group("logins")  # one server
NAME, PASSWORD = "reader", "open sesame"
LOGIN_PAGE = {
    "/", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", "/static/{path:path}", "/assets/{path:path}",
    "/login", "/gradio_api/startup-events", "/healthz",
}  # fmt: skip
SAMPLES = {"{path:path}": "none.js", "{session_hash}": "s1", "{api_name}": "predict"}


@pytest.fixture(scope="module")
def demo() -> Iterator[gr.Blocks]:
    def count(most: int):
        yield from range(int(most))

    with gr.Blocks(analytics_enabled=False) as demo:
        number, out = gr.Number(3), gr.Textbox()
        gr.Button("Count").click(count, number, out, api_name="count")
    demo.queue(api_open=False)
    health = {"ok": True, "waiting": 3}
    front = in_front(streams=OpenStreams(), health=lambda: health, proxies=1, **WIDE)
    options = {"prevent_thread_lock": True, "quiet": True, "ssr_mode": False, "app_kwargs": {"lifespan": front}}
    demo.launch(auth=(NAME, PASSWORD), **options)
    yield demo
    demo.close()


def form(password: str, name: str = NAME, address: str = "1.1.1.1", headers=()) -> dict:
    body = urlencode({"username": name, "password": password}).encode()
    kind = [("Content-Type", "application/x-www-form-urlencoded"), ("X-Forwarded-For", address)]
    return {"method": "POST", "path": "/login", "body": body, "headers": [*kind, *headers]}


def cookies(reply: Reply) -> str:
    return "; ".join(line.split(";")[0] for line in reply.headers.getlist("set-cookie"))


def test_without_a_login_only_the_login_page_answers(demo):
    """Gradio itself asks for a login at some routes only: not for /cancel, /reset and /heartbeat."""
    asked = 0
    for method, routes in ROUTES.items():
        for route in routes:
            path = route
            for part, value in SAMPLES.items():
                path = path.replace(part, value)
            path += "?session_hash=s1" if path == DATA else ""
            for cookie in ("", "access-token-unsecure=x", f"access-token-{demo.app.cookie_id}=x"):
                headers = [("Cookie", cookie)] if cookie else []
                reply = request_of(demo, method, path, b"{}" if method == "POST" else b"", headers)
                refused = reply.status == 401
                assert refused == (route not in LOGIN_PAGE), (method, path)
                if refused:
                    assert reply.sentence == "This page asks for a name and a password. Log in first."
                    asked += 1
    assert asked == 3 * 10


def test_a_login_opens_the_page(demo):
    reply = request_of(demo, **form(PASSWORD))
    assert reply.status == 200
    for cookie in cookies(reply).split("; "):  # a browser sends one of them over plain HTTP, and both over TLS
        headers = [("Cookie", cookie)]
        assert request_of(demo, "GET", "/config", headers=headers).status == 200
        assert request_of(demo, "GET", "/gradio_api/heartbeat/s1", headers=headers, read=False).status == 200
        body = {"session_hash": "s1", "fn_index": 0, "event_id": "x"}
        assert send(demo, "POST", "/gradio_api/cancel", body, headers).status == 200


def test_the_health_of_a_page_with_a_password_is_public_but_not_its_load(demo):
    """A monitor has no password."""
    assert request_of(demo, "GET", "/healthz").body == b'{"ok":true}'
    headers = [("Cookie", cookies(request_of(demo, **form(PASSWORD))))]
    assert request_of(demo, "GET", "/healthz", headers=headers).body == b'{"ok":true,"waiting":3}'


def test_programs_log_in(demo):
    address = f"http://127.0.0.1:{demo.server_port}"
    client = Client(address, auth=(NAME, PASSWORD), verbose=False)
    assert client.predict(3, api_name="/count") == "2"
    client.close()
    with pytest.raises(AuthenticationError):
        Client(address, verbose=False)
    with pytest.raises(ValueError, match="Could not login"):
        Client(address, auth=(NAME, "wrong"), verbose=False)


def test_failed_logins_are_few_and_in_the_log(demo, caplog):
    """An address that failed too often must wait, also with the right password. Others need not."""
    with caplog.at_level(logging.INFO):
        for number in range(10):
            reply = request_of(demo, **form(f"guess {number}", "somebody", "2.2.2.2"))
            assert reply.status == 400  # for which Gradio's page says that the password is wrong
    lines = [record.getMessage() for record in caplog.records if "login" in record.getMessage()]
    assert lines == ["A login failed."] * 10
    assert not any(word in caplog.text for word in ("guess", "somebody", "2.2.2.2"))
    reply = request_of(demo, **form(PASSWORD, address="2.2.2.2"))
    assert reply.status == 429 and reply.sentence.startswith("Too many logins from your address failed.")
    assert 0 < int(reply.headers["retry-after"]) <= 30
    assert request_of(demo, **form(PASSWORD, address="3.3.3.3")).status == 200


def test_logins_that_succeed_are_not_limited(demo):
    """Many visitors may share an address."""
    assert {request_of(demo, **form(PASSWORD, address="4.4.4.4")).status for _ in range(15)} == {200}


def test_an_address_gets_a_login_back_in_time(monkeypatch):
    now = 0.0
    monkeypatch.setattr(rate_limits.time, "monotonic", lambda: now)

    async def wrong(scope, receive, send):
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    front = door(wrong, logins=Logins(SimpleNamespace(cookie_id="x", tokens={})))
    assert [post(front, body=b"a=b", path="/login").status for _ in range(12)] == [400] * 10 + [429] * 2
    now = 31.0
    assert [post(front, body=b"a=b", path="/login").status for _ in range(2)] == [400, 429]


def test_a_login_is_small(demo):
    """Gradio would write the parts of a large form to the disk."""
    part = b'--x\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    whole = part % (b"username", b"", NAME.encode()) + part % (b"password", b"", PASSWORD.encode())
    kind = [("Content-Type", "multipart/form-data; boundary=x"), ("X-Forwarded-For", "5.5.5.5")]
    assert request_of(demo, "POST", "/login", whole + b"--x--\r\n", kind).status == 200  # as Gradio's page does it
    file = part % (b"file", b'; filename="f"', b"x" * 4000)
    reply = request_of(demo, "POST", "/login", whole + file + b"--x--\r\n", kind)
    assert reply.status == 413 and reply.sentence == "The request is larger than 4,000 bytes."


@pytest.mark.parametrize(
    "said", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-site"), ("Origin", "null")], ids=str
)
def test_no_other_site_logs_anybody_in(demo, said):
    assert request_of(demo, **form(PASSWORD, headers=[said])).status == 403


def test_a_page_without_a_password_has_no_login():
    app = Bare()
    for method in ("GET", "POST"):
        assert ask(door(app), "/login", method, b"a=b").status == 404
    assert not app.paths
    assert post(door(app), {}).status == post(door(app), {}, path=RUN).status == 200


def test_a_launched_page_runs_no_startup_events():
    """Launch asks for this route once. Gradio answers it without a login."""
    launched = False
    front = door(launched=lambda: launched)
    assert ask(front, "/gradio_api/startup-events").status == 200
    launched = True
    assert ask(front, "/gradio_api/startup-events").status == 404
