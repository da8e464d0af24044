"""During and after a race: more lanes, repeats, the replay, round by round, where the time goes."""

from __future__ import annotations

import re
import time

import pytest

from browser.conftest import SKIP, ask, notes, open_page, resize, run, settle, skip, text, unfold, visit, wait_said

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def motion() -> str:
    return "no-preference"


ENDLESS = "class Stack:\n    def __init__(self):\n        self.items = []"  # 512 tokens and no end of text


def choose_lanes(page, *names: str) -> None:
    unfold(page, "#sd-more")
    for name in names:
        page.check(f'#sd-lanes label:has-text("{name}") input')


@pytest.mark.full
def test_further_lanes_race_and_are_told_apart(page):
    """Our loop and three more lanes each have a text, a name and a row. Only the draft's own text differs."""
    choose_lanes(page, "assisted generation", "prompt lookup", "draft alone")
    ask(page, tokens=24)
    run(page)
    assert not page.locator("#sd-said .sd-error").is_visible()
    names = ["Our loop, no draft", "transformers assisted", "Prompt lookup", "Draft alone"]
    labels = "[...document.querySelectorAll('.sd-chart .sd-label')].map((label) => label.textContent)"
    keys = "[...document.querySelectorAll('.sd-chartKey li')].map((item) => item.textContent)"
    page.wait_for_function(
        f"(names) => names.every((name) => {keys}.some((key) => key.startsWith(name) && key.endsWith('s')))", arg=names
    )
    assert page.locator(".sd-stripRow:not(.near)").count() == 6
    page.click("summary:has-text('Details')")
    rows = page.locator(".sd-more table").first.locator("tbody tr").all_inner_texts()
    assert len(rows) == 6 and all("x" in row for row in rows[1:])
    assert page.locator(".sd-chart .sd-line").count() == 6
    signs = page.locator(".sd-chart .sd-sign").evaluate_all("(signs) => signs.map((sign) => sign.getAttribute('d'))")
    assert len(signs) == len(set(signs)) == 4, "each lane beside the two ends in a sign of its own"
    page.click('[aria-label="Replay from the start"]')
    page.wait_for_function(f"{labels}.includes('Plain') && {labels}.includes('Speculative')")
    page.click(SKIP)


@pytest.mark.full
def test_a_repeated_race_gives_a_median_and_a_spread(page):
    """After five runs the sentence and the lane's row give the median and the range."""
    ask(page, tokens=12)
    run(page)
    ask(page, tokens=99)  # the shown race is repeated
    before = page.evaluate("window.specdec.lanesFinished")
    page.click("text=Repeat ×5")
    page.wait_for_function("window.specdec.verdicts === 3 && !window.specdec.running")
    assert page.evaluate("window.specdec.lanesFinished") == before + 15
    assert page.locator(".sd-figures dd").last.inner_text() == "12 of 12"
    assert "Measured on this machine · median of 5 runs" in notes(page)
    page.click("summary:has-text('Details')")
    row = page.locator(".sd-more tbody tr").nth(1).inner_text()
    if found := re.search(r"([\d.]+)x \(([\d.]+)x–", row):  # there is no range if all runs show the same figure
        assert float(found[2]) <= float(found[1])
    assert re.search(r"median of 5", text(page, ".sd-headline"))
    assert page.locator(".sd-ribbon .sd-token").first.is_visible()


def test_a_double_click_on_run_runs(page):
    """The second click lands on Stop, which has replaced Run, and does not stop the race.

    A long prompt fills its box. It does not hide the text that the race was about.
    """
    ask(page, "The sun was warm. " * 40, tokens=24)
    page.dblclick("#sd-run")
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    assert "Stopped" not in text(page, ".sd-verdict")
    page.wait_for_function("window.specdec.replaying")
    skip(page)
    page.wait_for_function("!window.specdec.running")
    # One call waits and looks, because the texts may be drawn again between two.
    seen = page.wait_for_function(
        """() => {
            const boxes = [...document.querySelectorAll('.sd-boxBody')];
            if (!boxes.every((body) => body.querySelector('.sd-token'))) return null;
            return boxes.map((body) => {
                const token = body.querySelector('.sd-token');
                const [box, first] = [body, token].map((node) => node.getBoundingClientRect());
                return [box.top <= first.top && first.bottom <= box.bottom, body.scrollTop > 0];
            });
        }"""
    ).json_value()
    assert seen == [[True, True]] * 2


BOXES = """() => [...document.querySelectorAll('.sd-boxBody')].map((body) => {
    const text = body.firstElementChild;
    const line = Number.parseFloat(getComputedStyle(text).lineHeight);
    return [body.clientHeight / line, text.offsetHeight / line, body.scrollTop];
})"""


def test_boxes_are_as_high_as_their_texts(page):
    """In every window, with the guesses not kept, and after a replay. Of many lines the beginning and most show."""
    resize(page, 1440, 900)

    def fits(most: int = 99) -> None:
        found = page.evaluate(BOXES)
        needed = min(most, max(3, *(text for _, text, _ in found)))
        assert [height for height, _, _ in found] == [pytest.approx(needed, abs=0.1)] * 2, found

    fits()
    for width, height in ((1024, 768), (1440, 740), (820, 1180), (1440, 900)):
        resize(page, width, height)
        fits()
    page.check("#sd-misses")
    fits()
    page.click(".sd-replay [aria-label='Play']")
    page.wait_for_function("window.specdec.replaying")
    page.uncheck("#sd-misses")
    skip(page)
    settle(page)
    fits()
    ask(page, 'import os\n\ndef read_lines(path):\n    """Return the lines of a file."""\n', tokens=64)
    run(page)
    skip(page)
    fits(most=9)
    assert [scrolled for *_, scrolled in page.evaluate(BOXES)] == [0, 0]


@pytest.mark.full
def test_a_second_visitor_is_told_of_the_queue(browser, address, passes_go_on):
    """While one race runs another visitor's waits and says how many are ahead."""
    with visit(browser, address) as one, visit(browser, address) as other:
        for page in (one, other):
            open_page(page, address)
        ask(one, "class Stack:\n    def __init__(self):\n        self.items = []", tokens=2048)
        ask(other, tokens=8)
        passes_go_on.clear()
        one.click("#sd-run")
        assert passes_go_on.reached.wait(60), "the race runs, and waits"
        other.click("#sd-run")
        wait_said(other, "1 ahead")
        other.click("#sd-stop")  # frees the page at once, as nothing of it runs yet
        wait_said(other, "Cancelled")
        assert other.locator("#sd-run").is_visible() and not other.locator("#sd-said .sd-error").is_visible()
        assert other.locator(".sd-live.stale").count() == 0, "the last result is no longer dimmed"
        other.click("#sd-run")
        wait_said(other, "1 ahead")  # its own first race was given up
        assert one.evaluate("window.specdec.running")
        one.click("#sd-stop")
        passes_go_on.set()
        other.wait_for_function("window.specdec.verdicts === 2")
        assert not other.locator(".sd-status").is_visible()


@pytest.mark.full
def test_run_pressed_before_the_page_is_ready_runs(browser, address):
    """A click is kept until the live view's scripts are loaded, however late they are."""
    with visit(browser, address) as page:
        page.route("**/live.js", lambda route: (time.sleep(1.5), route.continue_()))
        page.goto(address)
        page.click("#sd-run")
        page.wait_for_selector(".sd-verdictOrigin:has-text('Measured on this machine · 1 run')")


@pytest.mark.full
def test_the_first_replay_is_guided_once(page):
    """Three short words say what is seen. A browser that has seen them, to their end or not, is not told again."""
    page.evaluate("localStorage.clear()")
    ask(page, tokens=128)
    page.click("#sd-run")
    page.wait_for_selector(".sd-guide:visible")
    guide, texts = (page.locator(part).bounding_box() for part in (".sd-guide", ".sd-boxes"))
    assert not page.locator(".sd-legend").is_visible() and guide["y"] >= texts["y"] + texts["height"]
    page.wait_for_function("document.querySelector('.sd-guide').textContent.startsWith('Each long block')")
    page.click(SKIP)
    assert not page.locator(".sd-guide").is_visible()
    page.click("#sd-run")
    page.wait_for_function("window.specdec.replaying && document.querySelector('.sd-clock').textContent > '0.05'")
    assert not page.locator(".sd-guide").is_visible()


def test_a_race_leads_to_its_explanation(page):
    """Two buttons under the round open How it works, and the arrow keys walk the tabs back."""
    skip(page)
    for words, seen in (("Be the draft", ".sd-game"), ("What happens in a round?", ".sd-howHead")):
        page.click(f".sd-waysOn button:has-text('{words}')")
        page.wait_for_function(
            "(place) => { const box = document.querySelector(place)?.getBoundingClientRect();"
            " return box && box.height > 0 && box.top >= -1 && box.top < innerHeight; }",
            arg=seen,
        )
        assert page.url.endswith("#tab=how-it-works")
        page.focus("[role=tab][aria-selected=true]")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".sd-headline:visible")
