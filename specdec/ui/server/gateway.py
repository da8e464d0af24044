"""The gateway: checks every request before Gradio sees it, and refuses what the page does not need."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdec.ui.server.logins import BODY, Logins
from specdec.ui.server.origins import check_owner, check_site
from specdec.ui.server.rate_limits import Buckets, OpenStreams, Rate
from specdec.ui.server.request_checks import (
    FILES,
    HEALTH,
    HEARTBEAT,
    LOGIN,
    STARTUP,
    STREAM,
    Refusal,
    Upload,
    check_json,
    check_session,
    known,
    needs_login,
    read_body,
)
from specdec.ui.server.static_cache import PackedFiles
from specdec.ui.visitor import address_of
from specdec.ui.web_private import get_route_path, has_password, put_in_front

# Gradio's frontend has inline scripts and compiles text to functions.
_POLICY = (
    "default-src 'self'{hosts}; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:{hosts}; "
    "style-src 'self' 'unsafe-inline'{hosts}; img-src 'self' data: blob:{hosts}; font-src 'self' data:{hosts}; "
    "connect-src 'self' data: blob:{hosts}; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'{frames}"
)

# With these headers Gradio would let any web site read its answers, even with a visitor's login. The page needs none.
_CROSS_SITE = ("access-control-allow-origin", "access-control-allow-credentials")

TEXT = 200_000  # characters of a stranger's request without files; a public page's longest prompt has fewer
log = logging.getLogger(__name__)


class Gateway:
    """ASGI middleware around Gradio's app; ``in_front`` puts it there.

    - ``streams`` counts the open streams.
    - ``logins``: those of a page with a password. Without one it answers nothing but the login page.
    - ``launched``: whether launch has returned. From then on nobody needs the route that runs startup events.
    - ``joined`` says whether a session has asked for something that its stream can carry.
    - ``health`` gives the answer of /healthz, with status 200 if its "ok" is true, else 503. It runs on the event loop.
    - ``proxies``: those in front of the page that name the visitors' addresses; see ``address_of``.
    - ``requests`` limits the requests of an address, ``posts`` its POST requests among them, ``sent`` their bytes, and
      ``checks`` its checks of the health, which are answered even if its requests were too many; ``max_body`` is in
      bytes.
    - ``hosts``: other hosts from which the page loads scripts, for a page with a share link.
    - ``frames``: other hosts that may show the page in a frame.
    - ``names``: the names of this machine, if only its owner may use the page. Then a request with another host name,
      or through a proxy, is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        streams: OpenStreams,
        health: Callable[[], dict[str, Any]],
        logins: Logins | None = None,
        launched: Callable[[], bool] = lambda: False,
        joined: Callable[[str], bool] = lambda session: True,
        proxies: int | None = 0,
        requests: Rate = Rate(600, 30),
        posts: Rate = Rate(100, 4),
        sent: Rate = Rate(10_000_000, 500_000),
        checks: Rate = Rate(600, 30),
        max_body: int = 3_000_000,
        hosts: tuple[str, ...] = (),
        frames: tuple[str, ...] = (),
        names: frozenset[str] | None = None,
    ):
        self._app, self._streams, self._health, self._joined = app, streams, health, joined
        self._logins, self._launched = logins, launched
        self._proxies, self._max_body = proxies, max_body
        self._requests, self._posts, self._monitors = Buckets(requests), Buckets(posts), Buckets(checks)
        self._sent = Buckets(sent)
        self._names = names
        self._most_text = TEXT if names is None else max_body  # an owner's prompt may be as long as the model allows
        self._files = None if names else PackedFiles()  # an owner's visits are few
        self._headers = {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Content-Security-Policy": _POLICY.format(hosts=_listed(hosts), frames=_listed(frames)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # the page uses no websockets
            return
        send = self._with_headers(send)
        upload, started, held_back = Upload(Headers(scope=scope), receive), False, 0

        async def answer(message: Message) -> None:
            nonlocal started, held_back
            if message["type"] == "http.response.start":
                held_back = _unfit(message)
                started = not held_back
                if message["status"] == 500:  # Gradio's own answer in JSON: a listener failed at its inputs
                    message = {**message, "status": 400}
            if started:
                await send(message)

        try:
            await self._admit(scope, upload, answer)
            if not held_back:
                return
            response = Refusal(held_back, "The page does not understand this request.").response
        except Refusal as refusal:
            response = refusal.response
        except Exception:
            if started:
                raise  # the server logs it and closes the connection
            log.exception("A request failed.")
            response = Refusal(500, "The page failed on this request.").response
        if response.status_code != 408:  # to a client that was too slow
            await upload.throw_away()
        await response(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise a Refusal."""
        path, method, connection = get_route_path(scope), scope["method"], HTTPConnection(scope)
        if self._names is not None:
            check_owner(connection, self._names)
        address = address_of(connection, self._proxies)
        self._meter(self._monitors if path == HEALTH else self._requests, address)
        if method == "POST":
            self._meter(self._posts, address)
        if not path and method == "GET":  # the page's own path without its last slash, which relative addresses need
            await RedirectResponse(_with_slash(scope))(scope, receive, send)
            return
        encoded = b"%" in scope.get("raw_path", b"").partition(b"?")[0]
        closed = {LOGIN: self._logins is None, STARTUP: self._launched()}
        if encoded or closed.get(path) or not known(method, path):
            raise Refusal(404, "This page has nothing at this address.")
        check_site(connection, self._names is not None, self._proxies != 0)
        stranger = self._logins is not None and not self._logins.has(connection)
        if path == HEALTH:
            await self._say_health(stranger)(scope, receive, send)
            return
        if stranger and needs_login(path):
            raise Refusal(401, "This page asks for a name and a password. Log in first.")
        # A proxy may have taken the path of the page off or not. Gradio and the files see no difference.
        scope = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        with ExitStack() as streams:
            if path == STREAM:
                sessions = connection.query_params.getlist("session_hash")
                check_session(sessions[0] if len(sessions) == 1 else None)
                if not self._joined(sessions[0]):  # Gradio would begin an answer and fail in it
                    raise Refusal(404, "This session has asked for nothing. Load the page again.")
                await self._streams.closed(sessions[0])
                streams.enter_context(self._streams.opened(address, sessions[0]))
            elif HEARTBEAT.fullmatch(path):
                streams.enter_context(self._streams.opened(address))
            most = BODY if path == LOGIN else self._max_body
            body = await read_body(connection, receive, most if method == "POST" else 0)
            if body is None:
                return  # the client left
            if path == LOGIN and self._logins is not None:
                send = self._logins.watched(address, send)
            elif method == "POST":
                self._meter(self._sent, address, len(body))
                check_json(connection.headers.get("content-type", ""), body, self._most_text)
            waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def replay() -> Message:
                message = waiting.pop() if waiting else await receive()
                if message["type"] == "http.disconnect":
                    streams.close()  # at once, and not when the app has cleaned up
                return message

            if self._files is not None and method == "GET" and FILES.fullmatch(path):
                await self._files.answer(self._app, path, scope, replay, send)
            else:
                await self._app(scope, replay, send)

    def _with_headers(self, send: Send) -> Send:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in _CROSS_SITE:
                    del headers[name]
                headers.update(self._headers)
            await send(message)

        return with_headers

    def _say_health(self, stranger: bool) -> JSONResponse:
        try:
            health = self._health()
        except Exception:
            log.exception("The check of health failed.")
            health = {"ok": False}
        return JSONResponse({"ok": health["ok"]} if stranger else health, 200 if health["ok"] else 503)

    def _meter(self, buckets: Buckets, address: str, amount: int = 1) -> None:
        if wait := buckets.take(address, amount):
            what = "requests" if amount == 1 else "large requests"
            sentence = f"Too many {what} came from your address. Wait a moment and try again."
            raise Refusal(429, sentence, **{"Retry-After": str(math.ceil(wait))})


def in_front(**options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Put a ``Gateway`` with these options in front of all of Gradio: for ``launch(app_kwargs={"lifespan": ...})``.

    As one of its ``middleware`` it would come after Gradio's own, which answers some requests and fails at others.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        logins = Logins(app) if has_password(app) else None
        put_in_front(app, lambda rest: Gateway(rest, logins=logins, **options))
        yield

    return lifespan


def _listed(hosts: tuple[str, ...]) -> str:
    return "".join(f" {host}" for host in hosts)


def _with_slash(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return f"{scope['path']}/" + (f"?{query}" if query else "")


def _unfit(start: Message) -> int:
    """The status of an answer that must not be sent, else 0. FastAPI's 422 repeats the request; its 500 is no JSON."""
    status: int = start["status"]
    plain = Headers(raw=start["headers"]).get("content-type", "").startswith("text/plain")
    return status if status == 422 or (status == 500 and plain) else 0
