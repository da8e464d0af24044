"""Recorded races as a page without a server: from a disk, from a strict host, in a frame, and saved by a visitor."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.conftest import WAIT
from browser.test_share import HOSTILE
from specdec.report.figure_table import FigureTable
from specdec.report.load import LoadGain
from specdec.report.recording import line
from specdec.ui.charts.chart_page import chart_page
from specdec.ui.charts.load_gains import gains_figure
from specdec.ui.static_page import Recording, shipped_recordings, single_page, write_page

pytestmark = pytest.mark.xdist_group("browser")
STRICT = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:"
POST = '<link rel="icon" href="data:,"><iframe src="index.html" width="900" height="700"></iframe>'
SENTENCE = ".sd-headline"


def hostile() -> Recording:
    """A shipped race whose every text is a stranger's."""
    source = shipped_recordings()[0].text.splitlines()
    begin, *records, verdict = map(json.loads, source)
    begin |= {"pair": HOSTILE, "settings": begin["settings"] | {"prompt": HOSTILE}}
    for record in records:
        if "tokens" in record:
            record["tokens"] = {token: HOSTILE.encode().decode("latin-1") for token in record["tokens"]}
    verdict |= {"sentence": HOSTILE, "notes": [{"kind": "other", "text": HOSTILE}]}
    verdict["figures"][0]["value"] = HOSTILE
    return Recording(f"a/b?#&{HOSTILE}", "".join(map(line, [begin, *records, verdict])))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A page of the shipped races and a hostile one, as a folder."""
    folder = tmp_path_factory.mktemp("static")
    write_page(folder, [*shipped_recordings(), hostile()])
    return folder


@pytest.fixture(scope="module")
def host(folder) -> Iterator[str]:
    """A plain file server with a strict content security policy, and a post that shows the page in a frame."""
    (folder / "post.html").write_text(POST, encoding="utf-8")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            if "post" not in self.path:
                self.send_header("Content-Security-Policy", STRICT)
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def alone(browser, address: str, width: int = 1440) -> Iterator[object]:
    """The page at an address, in a profile of its own. An error, a refusal or a request to elsewhere fails the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    page, wrong, asked = context.new_page(), [], []
    page.set_default_timeout(WAIT)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    context.close()
    names = {"index.html", "page.js", "page.css", "post.html", "saved.html", ""}
    assert not wrong and {url.split("#")[0].rsplit("/", 1)[1] for url in asked if "blob:" not in url} <= names, asked


@pytest.mark.parametrize("at", [pytest.param("disk", marks=pytest.mark.full), "host"])
def test_a_gallery_opens_its_races(at: str, folder, host, browser) -> None:
    """Every view of a race is there, its draft length can be dragged, and Back and a link go where they should."""
    address = (folder / "index.html").as_uri() if at == "disk" else f"{host}/"
    with alone(browser, address) as page:
        cards = page.locator(".sd-recordingCard")
        assert cards.count() == 5 and not page.locator("#sd-tabs").is_visible()
        first = " ".join(cards.first.inner_text().split())
        assert "7.5x the speed of plain generate 2.28x our loop vs generate() 3.30x speculation on top" in first
        mark = ".sd-frontMark:has-text('Synthetic: random weights')"
        page.click(".sd-recordingCard:has-text('Synthetic: random weights')")
        page.wait_for_selector(f"{mark}:visible")
        page.click("text=All recordings")
        name = "h200-embedded"
        page.click(f'.sd-recordingCard[href="#recording={name}"]')
        page.wait_for_selector(mark, state="hidden")
        page.wait_for_function("() => window.specdec.verdicts === 2")
        assert "17 times as fast" in page.inner_text(SENTENCE)
        origin = "A recording, not measured here · NVIDIA H200 · median of 3 runs · 27 November 2026"
        assert origin in page.inner_text(".sd-verdictOrigin")
        assert page.locator(".sd-ribbon .sd-token").count() > 100 and page.locator(".sd-again:visible").count() == 0
        page.locator("#sd-line-gamma").fill("3")
        page.wait_for_function("() => document.querySelector('.sd-verdictOrigin').textContent.includes('omputed')")
        page.locator("[role=tab] >> nth=0").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#sd-how h2:has-text('One round in three steps')")
        assert page.url.endswith(f"#recording={name}&tab=how-it-works")
        page.go_back()
        page.wait_for_selector(f"{SENTENCE}:visible")
        page.click("text=All recordings")
        page.wait_for_selector(".sd-recordingCard:visible")
        page.go_back()
        page.wait_for_selector(f"{SENTENCE}:visible")


def test_a_file_is_opened_and_left(folder, host, browser, tmp_path) -> None:
    """Back to the gallery goes from a file too. A page of one race shows it, whatever name the address has."""
    path = tmp_path / "mine.jsonl"
    path.write_text(shipped_recordings()[0].text, encoding="utf-8")
    with alone(browser, f"{host}/") as page:
        for _ in range(2):
            page.set_input_files("#sd-open", path)
            page.wait_for_selector(".sd-verdictOrigin:has-text('From the file mine.jsonl')")
            page.click("text=All recordings")
            page.wait_for_selector(".sd-recordingCard:visible")
        page.set_input_files("#sd-open", folder / "page.css")
        page.wait_for_selector("#sd-said .sd-error:has-text('page.css cannot be shown')")
    (tmp_path / "saved.html").write_text(single_page([shipped_recordings()[0]]), encoding="utf-8")
    with alone(browser, (tmp_path / "saved.html").as_uri() + "#recording=gone") as page:
        page.wait_for_selector(f"{SENTENCE}:has-text('7.5 times as fast'):visible")
        assert not page.locator("text=All recordings").is_visible()


def test_a_page_in_a_frame_and_on_a_phone(folder, host, browser) -> None:
    with alone(browser, f"{host}/post.html", width=1000) as page:
        frame = page.frame_locator("iframe")
        frame.locator(".sd-recordingCard >> nth=2").click()
        frame.locator(f"{SENTENCE}:has-text('times as fast')").wait_for()
    with alone(browser, f"{host}/#recording=smollm2-letter", width=390) as page:
        page.wait_for_function("() => window.specdec.verdicts === 1")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_strangers_texts_stay_texts(folder, host, browser, tmp_path) -> None:
    """In the gallery, in a race, and in a page of one file."""
    (tmp_path / "saved.html").write_text(single_page([hostile()]), encoding="utf-8")
    for address in (f"{host}/", (tmp_path / "saved.html").as_uri()):
        with alone(browser, address) as page:
            if address.startswith("http"):
                page.locator(".sd-recordingCard >> nth=4").click()
            page.wait_for_function("() => window.specdec.verdicts === 1")
            assert HOSTILE.split("\u202e")[0] in page.inner_text(SENTENCE)
            page.click("[role=tab]:has-text('How it works')")
            page.wait_for_selector("#sd-how h2:visible")
            assert page.evaluate("window.bitten") is None and page.locator("img[src=x]").count() == 0


def test_a_page_of_one_chart_draws_and_saves_it(browser, tmp_path) -> None:
    """Its lines and the sign of each stand in both panels, and a click saves it as a file."""
    gains = [LoadGain(context, n, 2, (1.1, 1.2, 1.3), 2.0) for context in (64, 256) for n in (1, 2)]
    table = FigureTable("Gains", ("At once", "gain"), [("1", "1.20x")], range(1, 2))
    page_text = chart_page("Under load", gains_figure(gains), "Computed.", ["It pays."], table)
    (tmp_path / "saved.html").write_text(page_text, encoding="utf-8")
    with alone(browser, (tmp_path / "saved.html").as_uri()) as page:
        page.wait_for_selector("#sd-chart .main-svg >> text=2 at once")
        for text in ("1 at once", "64 tokens", "256 tokens", "Calls at once"):
            assert page.locator(f"#sd-chart .main-svg >> text={text}").count()
        for kind in ("png", "svg"):
            with page.expect_download() as saved:
                page.click(f".sd-saveChart button[value={kind}]")
            assert saved.value.suggested_filename == f"specdec-chart.{kind}"
            assert saved.value.path().stat().st_size > 5000
