"""Run a real Chromium on the real page.

One server serves the tests that change neither its pair nor its limits; each test loads the page in an empty profile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from fakes import random_table, table_pair  # noqa: E402
from needed import missing_chromium, require  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT = 90_000  # milliseconds; a busy machine is no reason to fail, where whole tests have taken 30 seconds
FOUND = {"Best gamma": "gamma", "Benchmark": "bench", "Lossless?": "lossless"}  # tabs that open with a result
SHORT = 20  # entries of a tab's history; a browser keeps 50, and a test adds up to ten and counts them
QUIET = 120  # milliseconds without a change of the page; see settle()
SKIP = '[aria-label="Skip to the end"]'
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--js-flags=--no-enable-lazy-source-positions",  # an error of Plotly made V8 parse it twice
]  # fmt: skip


def load_page_slot():
    """The pair the page shows by default, or the one named by the environment."""
    from specdec.models.loading import plan_pair
    from specdec.models.pair_slot import Slot

    torch.set_num_threads(1)  # one core is left to the browser, so that it answers clicks at once
    return Slot(plan_pair(os.environ.get("SPECDEC_TARGET"), os.environ.get("SPECDEC_DRAFT")))


def launch(slot, *limits) -> tuple[object, str]:
    """Serve the page on a free port. Returns the page, which the caller closes, and its address."""
    from specdec.ui.page import build
    from specdec.ui.server.launch import serve

    page = build(slot, *limits)
    return page, serve(page, quiet=True)


@pytest.fixture(scope="package")
def browser() -> Iterator[object]:
    require(missing_chromium())
    from playwright.sync_api import sync_playwright

    from specdec.ui.jobs import queue, startup

    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "TOKENS", 32)  # a short start-up race: tests wait for its end and look at its origin
        patch.setattr(startup, "SECONDS", 600.0)  # a busy machine must not stop it
        patch.setattr(queue, "GRACE", 60.0)  # nor give up a browser that is slow to listen
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        IDLE.clear()
        chromium.close()


@pytest.fixture(scope="package")
def slot(browser, tmp_path_factory) -> object:
    """A pair whose passes take a tenth of the default pair's, loaded once for all servers that do not change it.

    Its target is the embedded draft, and its draft a copy of that with noise, so most guesses are right.
    """
    from specdec.models.loading import EMBEDDED, plan_pair
    from specdec.models.pair_slot import Slot

    folder, source = tmp_path_factory.mktemp("quick"), EMBEDDED / "draft"
    rng = torch.Generator().manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight += torch.randn(weight.shape, generator=rng) * 0.2 * weight.std()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    torch.set_num_threads(1)
    return Slot(plan_pair(source, folder))


@pytest.fixture(scope="package")
def address(slot) -> Iterator[str]:
    """The address of a page with that pair."""
    demo, address = launch(slot)
    yield address
    demo.close()


@pytest.fixture
def outside(page) -> list[str]:
    """The addresses of other hosts that the page asked for. The browser can reach none of them."""
    return page.outside


@pytest.fixture
def unhurried(monkeypatch) -> None:
    """Slow our lane down, so that a click during it is answered during it, however busy the machine is."""
    from specdec.forward.runner import Runner

    forward = Runner.forward

    def slow(self, *args, **kwargs):
        time.sleep(0.1)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Runner, "forward", slow)


class Gate(threading.Event):
    """While it is clear, our lane waits before its next pass; ``reached`` says that it does."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()


@pytest.fixture
def passes_go_on(monkeypatch) -> Iterator[Gate]:
    """A race cannot end while others look at it."""
    from specdec.forward.runner import Runner

    forward, go_on = Runner.forward, Gate()

    def held(self, *args, **kwargs):
        if not go_on.is_set():
            go_on.reached.set()
            go_on.wait()
        return forward(self, *args, **kwargs)

    go_on.set()
    monkeypatch.setattr(Runner, "forward", held)
    yield go_on
    go_on.set()


@pytest.fixture(scope="module")
def motion() -> str:
    """What the visitor of ``page`` has asked for. Races play in the tests that look at that; it takes much drawing."""
    return "reduce"


@pytest.fixture
def page(browser, address, motion) -> Iterator[object]:
    """The page, opened, its live view ready and its start-up race shown. Script errors fail the test."""
    with visit(browser, address, reduced_motion=motion) as page:
        open_page(page, address)
        yield page


IDLE: list = []  # tabs that no test uses now, each in its own profile


@contextlib.contextmanager
def visit(
    browser,
    address: str,
    viewport: dict[str, int] = MappingProxyType({"width": 1440, "height": 900}),
    color_scheme: str = "light",
    reduced_motion: str = "reduce",
) -> Iterator[object]:
    """A visitor: a profile that reaches the page's host only; script errors fail the test.

    Visitors at the same time have a profile each. A profile is used again after everything but its file cache was
    deleted: most of a first visit is spent on fetching and compiling the page's files.
    """
    page = IDLE.pop() if IDLE else browser.new_context().new_page()
    page.set_default_timeout(WAIT)
    page.set_viewport_size(dict(viewport))
    page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
    page.outside, errors = [], []
    home = urlsplit(address).netloc

    def note(request):
        asked = urlsplit(request.url)
        if asked.scheme not in {"data", "blob", "about"} and asked.netloc != home:
            page.outside.append(request.url)

    def fail(error):
        errors.append(str(error))

    page.on("request", note)
    page.on("pageerror", fail)
    try:
        yield page
    except BaseException:
        page.context.close()  # even if something was still running
        raise
    page.remove_listener("request", note)
    page.remove_listener("pageerror", fail)
    IDLE.append(cleared(page, home))
    assert not errors, errors


def cleared(page, host: str) -> object:
    """A tab of the same profile, which has the file cache and nothing else. Another server may get this address."""
    page.unroute_all()
    # Not while the page is open: a race that ends meanwhile would be kept after the storage was cleared.
    page.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto(f"http://{host}/empty")
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.unroute_all()
    page.context.clear_cookies()
    if page.evaluate("history.length") <= SHORT:
        return page
    page.close()
    return page.context.new_page()


def open_page(page, address: str, query: str = "", greeting: str = "startup") -> None:
    """Load the page and wait until its first race has ended: a start-up race, a recording or a link's run."""
    target = address + query
    if page.url.split("#")[0] == target.split("#")[0]:
        page.goto("about:blank")  # a change after "#" alone would load nothing
    page.goto(target)
    page.wait_for_function("window.specdec && window.specdec.mounted && window.specdec.verdicts === 1")
    skip(page)  # the start-up race waits for a recording's replay
    page.wait_for_function(f"window.specdec.origin === '{greeting}'")
    skip(page)


# Resolves when two frames have been drawn: what waited for one has come.
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

# Resolves when nothing has changed for that long, the race's view apart, which may move for a minute.
UNCHANGED = """(quiet) => new Promise((done) => {
    const end = () => { watch.disconnect(); done(); };
    let timer = setTimeout(end, quiet);
    const moves = '#sd-live, #sd-how';
    const counts = (node) => node.isConnected && !(node.closest ? node : node.parentElement).closest(moves);
    const watch = new MutationObserver((changes) => {
        if (!changes.some(({ target }) => counts(target))) return;
        clearTimeout(timer);
        timer = setTimeout(end, quiet);
    });
    watch.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
})"""


def settle(page) -> None:
    """Wait until the page has come to rest: Gradio sets the fields of a fold or a tab again after its first opening.

    That something never comes is no state to wait for; such a test waits for a time.
    """
    page.evaluate(DRAWN)
    page.evaluate(UNCHANGED, QUIET)


def resize(page, width: int, height: int) -> None:
    """Resize the window and wait until the page has drawn itself at that size."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("([width, height]) => innerWidth === width && innerHeight === height", arg=[width, height])
    settle(page)


def skip(page) -> None:
    """End the replay if one plays, also on a tab that is not open."""
    if page.evaluate("window.specdec.replaying"):
        page.dispatch_event(SKIP, "click")


# Counts the calls of a function by which the server says that a listener has ended, here the calls until now. Gradio
# drops a click on the same button before that, although all that is shown has come.
ENDED = """(name) => {
    const counts = (window.ended ??= {});
    if (!(name in counts)) {
        const said = window.specdec[name];
        counts[name] = 0;
        window.specdec[name] = (...values) => {
            said(...values);
            counts[name] += 1;
        };
    }
    return counts[name];
}"""


def show_recording(page, folder, lines: str) -> None:
    """Open a recording of these lines, by way of a file in ``folder``, and go to its end."""
    (folder / "race.jsonl").write_text(lines)
    page.set_input_files(".sd-share .sd-file", folder / "race.jsonl")
    page.wait_for_selector(".sd-verdictOrigin:has-text('race.jsonl')")
    skip(page)


def run(page) -> None:
    """Press Run and wait for the verdict or an error, and for the end of the listener."""
    before, ended = page.evaluate("window.specdec.verdicts + window.specdec.errors"), page.evaluate(ENDED, "end")
    page.click("#sd-run")
    page.wait_for_function(f"window.specdec.verdicts + window.specdec.errors > {before} && !window.specdec.running")
    page.wait_for_function(f"window.ended.end > {ended}")
    skip(page)


def edit(page) -> None:
    """Open the form if it is closed."""
    if page.get_attribute("#sd-line .sd-action", "aria-expanded") == "false":
        page.click("#sd-line .sd-action")
        settle(page)


def wait_said(page, words: str) -> None:
    """Wait until the status above the verdict is shown with these words; a failure says what the page shows instead."""
    try:
        page.wait_for_selector(f".sd-status:has-text('{words}')", timeout=30_000)
    except Exception as error:
        shown = page.evaluate(
            "[...document.querySelectorAll('.sd-status, #sd-waiting, .sd-error, .sd-headline, #sd-summary')]"
            ".map((node) => [node.className || node.id, node.hidden, node.textContent.trim()])"
        )
        raise AssertionError(f"{words!r} was not said: {shown}, {page.evaluate('window.specdec')}") from error


def ask(page, prompt: str | None = None, tokens: int | None = None, temperature: float | None = None) -> None:
    """Fill in the given fields as a person does."""
    edit(page)
    if prompt is not None:
        page.fill("#sd-prompt textarea", prompt)
    for name, value in (("tokens", tokens), ("temperature", temperature)):
        if value is not None:
            page.fill(f"#sd-{name} input[type=number]", str(value))
            page.locator(f"#sd-{name} input[type=number]").blur()


def unfold(page, selector: str) -> None:
    """Open a fold, opening the form first if needed, and wait until its fields are there to stay."""
    if selector == "#sd-change":
        page.click(".sd-changePair")
        return
    if page.locator(f"#sd-ask {selector}").count():
        edit(page)
    page.click(f"{selector} button")
    settle(page)


def go_to(page, name: str) -> None:
    """Open a tab, wait for its first result and until its fields are there to stay."""
    tab = page.locator(f'button[role=tab]:has-text("{name}"):visible')
    if not tab.count():  # on a phone the last tabs are in a menu
        page.click(".overflow-menu > button")
        tab = page.locator(f'.overflow-dropdown button:has-text("{name}")')
    tab.first.click()
    if (key := FOUND.get(name)) is not None:
        page.wait_for_selector(f"#sd-{key}-verdict .sd-headline")
        page.wait_for_function("!document.querySelector('[aria-label=\"Empty value\"]')")  # charts arrive after it
    settle(page)


def text(page, selector: str) -> str:
    """The visible text of an element."""
    return page.locator(selector).inner_text()


def notes(page) -> str:
    """All notes beside the verdict's sentence, folded or not."""
    return page.locator(".sd-result .sd-verdictWords").text_content()


def quick_self_test(monkeypatch, seen: threading.Event | None = None, **settings) -> list[tuple]:
    """Run the test of losslessness on table models, which takes a second.

    Returns the draws and seconds that were asked for. After its first report the test waits for ``seen``, if given.
    """
    from specdec.ui.tabs import lossless

    whole, asked = lossless.self_test, []
    target = random_table(3, 3, seed=0)
    pair = table_pair(target, target + random_table(3, 3, seed=1, scale=2.0))

    def quick(_, lane, draws, seconds):
        asked.append((draws, seconds))
        for step in whole(pair, torch.tensor([2, 1, 0, 2]), **{"draws": min(draws, 60), "lane": lane} | settings):
            yield step
            if seen:
                seen.wait(WAIT / 1000)

    monkeypatch.setattr(lossless, "self_test", quick)
    return asked
