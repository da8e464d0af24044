"""The page under a path of another web site, behind a proxy that removes the path and one that passes it on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import pytest

from browser.conftest import ask, open_page, run, text, visit
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.page import build
from specdec.ui.server.launch import serve

pytestmark = pytest.mark.xdist_group("browser")


class Proxy:
    """A proxy on its own thread that shows what is at ``port`` under /tool, and nothing else.

    ``removes``: it removes this path from requests.
    """

    def __init__(self, port: int):
        self._port, self.removes = port, False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1"), self._loop)
        self.address = f"http://127.0.0.1:{starting.result().sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one request and its answer on."""
        try:
            first, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        except asyncio.IncompleteReadError:
            return writer.close()  # a connection that the browser opened in advance
        method, path, version = first.split(b" ")
        if self.removes and path == b"/tool":  # nginx does so
            return await end(writer, b"HTTP/1.1 301 Moved\r\nLocation: /tool/\r\nConnection: close\r\n\r\n")
        if path != b"/tool" and not path.startswith(b"/tool/"):
            return await end(writer, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        path = path.removeprefix(b"/tool") if self.removes else path
        headers = [header for header in headers if not header.lower().startswith(b"connection:")]
        headers += [b"Connection: close", b"X-Forwarded-For: 127.0.0.1", b"", b""]
        from_page, to_page = await asyncio.open_connection("127.0.0.1", self._port)
        to_page.write(b"\r\n".join([b" ".join([method, path, version]), *headers]))
        both = [asyncio.create_task(pump(reader, to_page)), asyncio.create_task(pump(from_page, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, to_page):
            one.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass  # the other side has closed


async def end(writer: asyncio.StreamWriter, answer: bytes) -> None:
    writer.write(answer)
    await writer.drain()
    writer.close()


@pytest.fixture(scope="module")
def proxy(slot) -> Iterator[Proxy]:
    """A proxy in front of a public page that knows its path."""
    page = build(slot, PUBLIC, proxies=1)
    serve(page, quiet=True, root_path="/tool")
    with Proxy(page.demo.server_port) as proxy:
        yield proxy
    page.close()


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.full), False], ids=["removed", "passed on"])
def site(request, proxy) -> str:
    """The address of the proxy, which removes the path or passes it on."""
    proxy.removes = request.param
    return proxy.address


@pytest.mark.full
def test_the_page_works_under_a_path(browser, site):
    """A race, a chart and a link, with no file missing and no error, also from /tool without a slash."""
    with visit(browser, site) as page:
        bad: list[str] = []
        page.on("response", lambda answer: answer.status >= 400 and bad.append(f"{answer.status} {answer.url}"))
        page.on("console", lambda said: said.type == "error" and bad.append(f"{said.text} {said.location}"))
        open_page(page, f"{site}/tool")
        assert page.url == f"{site}/tool/"
        ask(page, "Once upon a time", tokens=12)
        run(page)
        assert "Measured on this machine · 1 run" in text(page, "#sd-live").replace("\u00a0", " ")
        page.click(".sd-result .sd-why > summary")
        assert page.locator(".sd-why .sd-costRow").count() > 2
        page.click(".sd-shareButton")
        field = page.locator('[aria-label="Link to this run"]')
        page.wait_for_function("(field) => field.value !== ''", arg=field.element_handle())
        assert field.input_value().startswith(f"{site}/tool/#")
        assert not bad and not page.outside


def test_programs_use_the_page_under_a_path(site):
    from gradio_client import Client

    client = Client(f"{site}/tool/", verbose=False)
    lines = client.predict("Once upon a time", max_new_tokens=4, api_name="/decode")
    assert '"finished"' in lines
    client.close()
    front = httpx.get(f"{site}/tool/").text
    assert 'rel="manifest" href="./manifest.json"' in front and 'rel="icon" href="./specdec-assets/icon.svg"' in front
    names = ("healthz", "config", "theme.css", "manifest.json", "favicon.ico")
    for path in (*names, "specdec-assets/styles/page.css"):
        assert httpx.get(f"{site}/tool/{path}", timeout=60).status_code == 200
    assert httpx.get(f"{site}/healthz").status_code == 404
