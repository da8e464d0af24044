"""A real Chromium on the real page: one server a session, a fresh browser page a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT = 60_000  # milliseconds; a busy machine is no reason to fail
SKIP = '[aria-label="Skip to the end"]'
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--js-flags=--no-enable-lazy-source-positions",  # Plotly throws as it is read, and was read twice for line numbers
]  # fmt: skip


def load_page_slot():
    """The pair the page shows by default, or the one named by the environment."""
    import torch

    from specdec.models.loading import plan_pair
    from specdec.models.slot import Slot

    torch.set_num_threads(1)  # a core is left to the browser, so that what the tests press is answered at once
    return Slot(plan_pair(os.environ.get("SPECDEC_TARGET"), os.environ.get("SPECDEC_DRAFT")))


def launch(slot, *limits) -> tuple[object, str]:
    """Serve the page on a free port; the app, to be closed, and its address."""
    from specdec.ui import build, serve

    demo = build(slot, *limits)
    _, address, _ = serve(demo, prevent_thread_lock=True, quiet=True)
    return demo, address


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    missing = None if CHROMIUM else "chromium is not installed"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "playwright is not installed"
    if missing:
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def address(browser) -> Iterator[str]:
    """The page's address."""
    demo, address = launch(load_page_slot())
    yield address
    demo.close()


@pytest.fixture
def outside(page) -> list[str]:
    """Addresses of other hosts that the page asked for; the browser finds none of them."""
    return page.outside


@pytest.fixture
def unhurried(monkeypatch) -> None:
    """Our lane takes its time, so that what is pressed in its midst is answered there, however busy the machine is."""
    from specdec.passes.runner import Runner

    forward = Runner.forward

    def slow(self, *args, **kwargs):
        time.sleep(0.1)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "forward", slow)


@pytest.fixture(scope="module")
def scripts(browser, address) -> Iterator[object]:
    """The page, for tests of its modules alone: they press nothing and share it."""
    with visit(browser, address) as page:
        open_page(page, address)
        yield page


@pytest.fixture
def page(browser, address) -> Iterator[object]:
    """The page, opened, its live view ready and its start-up race shown. Script errors fail the test."""
    with visit(browser, address) as page:
        open_page(page, address)
        yield page


@contextlib.contextmanager
def visit(browser, address: str, **settings) -> Iterator[object]:
    """A browser profile of its own that reaches the page's host only; script errors fail the test."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | settings)
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.outside, errors = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    home = urlsplit(address).netloc

    def note(request):
        asked = urlsplit(request.url)
        if asked.scheme not in {"data", "blob"} and asked.netloc != home:
            page.outside.append(request.url)

    page.on("request", note)
    try:
        yield page
    finally:
        context.close()
    assert not errors, errors


def open_page(page, address: str, query: str = "") -> None:
    """Go to the page and wait until its start-up race is on it."""
    page.goto(address + query)
    page.wait_for_function("window.specdec && window.specdec.mounted && window.specdec.verdicts === 1")


def run(page) -> None:
    """Press Run and wait for what ends a race: a verdict or an error."""
    before = page.evaluate("window.specdec.verdicts + window.specdec.errors")
    page.click("#sd-run")
    page.wait_for_function(f"window.specdec.verdicts + window.specdec.errors > {before} && !window.specdec.running")
    if page.locator(SKIP).is_visible():
        page.click(SKIP)


def ask(page, prompt: str | None = None, tokens: int | None = None, temperature: float | None = None) -> None:
    """Fill in what is given, as a person does."""
    if prompt is not None:
        page.fill("#sd-prompt textarea", prompt)
    for name, value in (("tokens", tokens), ("temperature", temperature)):
        if value is not None:
            page.fill(f"#sd-{name} input[type=number]", str(value))
            page.locator(f"#sd-{name} input[type=number]").blur()


def go_to(page, name: str) -> None:
    """Open a tab."""
    page.click(f'button[role=tab]:has-text("{name}")')


def text(page, selector: str) -> str:
    """What a person reads there."""
    return page.locator(selector).inner_text()
