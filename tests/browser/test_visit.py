"""Addresses and reloads: the page shows what its address names, and a reload loses nothing."""

from __future__ import annotations

import base64

import pytest

from browser.conftest import WAIT, ask, edit, go_to, open_page, run, settle, text, visit
from browser.test_share import SHOWN, link, open_link, save, share
from specdec.ui.tabs.results_io import RECORDED

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def motion() -> str:
    return "no-preference"


LONG = "class Stack:\n    def __init__(self):\n        self.items = []"  # 40 tokens and no end of text
SELECTED = "[role=tab][aria-selected=true]"
DAMAGED = "#run=jVZtb9s2EP7eX3F"


def field(page, name: str) -> str:
    return page.locator(f"#sd-{name} input[type=number]").input_value()


def set_field(page, name: str, value: str) -> None:
    edit(page)
    page.fill(f"#sd-{name} input[type=number]", value)
    page.locator(f"#sd-{name} input[type=number]").blur()


def reload(page) -> None:
    page.reload()
    page.wait_for_function("window.specdec && window.specdec.mounted")


def paste(page, target: str) -> None:
    """Paste an address into the open page: only its part after # changes, and nothing reloads."""
    page.evaluate("(target) => { location.hash = target.split('#')[1]; }", target)


def wait_for_gamma(page, value: str) -> None:
    page.wait_for_function(
        "(value) => document.querySelector('#sd-gamma input[type=number]')?.value === value", arg=value
    )


def test_a_reload_keeps_prompt_settings_and_result(page):
    """The race comes back unchanged and does not play; fields come back with their edits."""
    ask(page, "One day, a dog", tokens=24)
    run(page)
    shown, notes = page.evaluate(SHOWN), text(page, ".sd-verdictOrigin")
    ask(page, "Another prompt, not run")
    set_field(page, "gamma", "40")
    page.wait_for_function("sessionStorage['specdec-form']?.includes('40')")
    reload(page)
    wait_for_gamma(page, "40")
    assert page.evaluate(SHOWN) == shown
    assert text(page, ".sd-verdictOrigin") == notes and "Measured on this machine · 1 run" in notes
    assert page.locator("#sd-prompt textarea").input_value() == "Another prompt, not run"
    assert field(page, "tokens") == "24"
    page.wait_for_timeout(1000)  # the start-up race must not take its place
    assert not page.evaluate("window.specdec.replaying")
    assert page.evaluate(SHOWN) == shown
    set_field(page, "gamma", "5")
    run(page)
    assert "Another prompt" in page.evaluate(SHOWN)["prompt"]


@pytest.mark.full
def test_a_link_wins_over_what_is_kept_until_a_race_of_ones_own(page, browser, address):
    """In one browser tab the link is shown first.

    The visitor's race then replaces it, also in the address and after reload.
    """
    ask(page, "Ben and the", tokens=12)
    run(page)
    share(page)
    target = link(page, "this run")
    with visit(browser, address) as other:
        open_page(other, address)
        ask(other, "Sue ran", tokens=8)
        run(other)
        other.goto("about:blank")
        open_link(other, target)
        other.wait_for_function("window.specdec.verdicts >= 1")
        assert "From a link" in text(other, ".sd-verdictOrigin")
        other.wait_for_function("document.querySelector('#sd-prompt textarea').value === 'Ben and the'")
        reload(other)
        other.wait_for_function("window.specdec.verdicts >= 1")
        assert "From a link" in text(other, ".sd-verdictOrigin")
        other.wait_for_function("document.querySelector('#sd-prompt textarea').value === 'Ben and the'")
        settle(other)
        ask(other, "Sue ran home", tokens=8)
        run(other)
        assert "#" not in other.url
        reload(other)
        other.wait_for_function("window.specdec.verdicts >= 1")
        assert "Measured on this machine · 1 run" in text(other, ".sd-verdictOrigin")
        assert other.evaluate(SHOWN)["prompt"] == "Sue ran home"


@pytest.mark.full
def test_links_pasted_over_the_open_page_are_followed(page, browser, address):
    """Links of a run, a damaged run and settings each take effect without a reload.

    Messages go when their cause goes.
    """
    ask(page, tokens=12)
    set_field(page, "gamma", "3")
    run(page)
    share(page)
    target = link(page, "this run")
    shown = page.evaluate(SHOWN)
    with visit(browser, address) as other:
        open_page(other, address + DAMAGED)
        other.evaluate("window.same = true")
        said = other.locator(".sd-linkError")
        assert said.is_visible() and "The link is damaged" in said.inner_text(), "the start-up race covers it"
        assert said.bounding_box()["y"] < other.locator("#sd-header").bounding_box()["y"]
        ask(other, tokens=8)
        run(other)
        assert said.is_visible() and not other.locator("#sd-said .sd-error").is_visible()
        paste(other, target)
        other.wait_for_function("window.specdec.verdicts === 3")
        assert other.locator(".sd-linkError").count() == 0
        assert other.evaluate(SHOWN) == shown
        wait_for_gamma(other, "3")
        paste(other, "#gamma=9")
        wait_for_gamma(other, "9")
        paste(other, "#gamma=40")
        other.wait_for_selector("#sd-problems:has-text(\"gamma '40'\")")
        assert other.evaluate(SHOWN) == shown
        assert other.evaluate("window.same") is True


@pytest.mark.full
def test_a_link_pasted_into_a_race_waits(page, tmp_path, passes_go_on):
    """The page says why the run is not opened; a button opens it once the race has ended. A file is refused in words.

    The race continues to its own verdict.
    """
    share(page)
    target, path = link(page, "this run"), save(page, tmp_path / "run.jsonl")
    page.keyboard.press("Escape")
    ask(page, LONG, tokens=120)
    passes_go_on.clear()
    page.click("#sd-run")
    assert passes_go_on.reached.wait(60), "the race runs, and waits"
    page.wait_for_function("window.specdec.running")
    paste(page, target)
    page.wait_for_selector(".sd-linkError:has-text('because a race was running')")
    page.set_input_files("#sd-open", path)
    page.wait_for_selector("#sd-said .sd-error:has-text('a race is running')")
    passes_go_on.set()
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    assert "Measured on this machine · 1 run" in text(page, ".sd-verdictOrigin")
    assert not page.locator("#sd-said .sd-error").is_visible(), "no race is running any more"
    page.click("text=Open it now")
    page.wait_for_function("window.specdec.verdicts === 3")
    assert "From a link" in text(page, ".sd-verdictOrigin")
    assert page.locator(".sd-linkError").count() == 0


@pytest.mark.full
def test_tabs_have_addresses(page, browser, address):
    """The address names the chosen tab and opens it again; the browser's back and forward change tabs.

    An address of an unknown tab gives a sentence that names the tabs. It goes when one of them is chosen.
    """
    page.evaluate("location.hash = 'tab=nonsense'")
    page.wait_for_selector(".sd-linkError:has-text('There is no tab “nonsense”. The tabs are: Race, Best gamma,')")
    go_to(page, "Benchmark")
    assert page.locator(".sd-linkError").count() == 0 and page.evaluate("location.hash") == "#tab=benchmark"
    paste(page, "#gamma=7")
    wait_for_gamma(page, "7")
    go_to(page, "Benchmark")
    assert page.url.endswith("#gamma=7&tab=benchmark")
    go_to(page, "Lossless?")
    assert page.url.endswith("#gamma=7&tab=lossless")
    reload(page)
    page.wait_for_selector(f"{SELECTED}:has-text('Lossless?')")
    go_to(page, "Race")
    assert page.url.endswith("#gamma=7")
    for width in (1440, 390):
        with visit(browser, address, viewport={"width": width, "height": 844}) as other:
            open_link(other, address + "#tab=best-gamma&gamma=2")
            other.wait_for_selector(f"{SELECTED}:has-text('Best gamma')")
            paste(other, "#tab=benchmark&gamma=2")
            other.wait_for_selector(f"{SELECTED}:has-text('Benchmark')")
            other.go_back()
            other.wait_for_selector(f"{SELECTED}:has-text('Best gamma')")
            assert other.url.endswith("#tab=best-gamma&gamma=2")
            go_to(other, "Race")
            wait_for_gamma(other, "2")


def at(page, tab: str, fragment: str, entries: int) -> None:
    """Wait until this tab is open; then the address and the length of the history are these."""
    page.wait_for_selector(f"{SELECTED}:has-text('{tab}')")
    settle(page)
    assert page.locator(SELECTED).inner_text() == tab
    assert (page.evaluate("location.hash"), page.evaluate("history.length")) == (fragment, entries)


@pytest.mark.full
def test_back_and_forward_go_through_the_chosen_tabs(page, browser, address):
    """Each chosen tab is one entry of the history, and neither opening the page nor Back adds one.

    A link to a run or to results stays in the address, and Back does not lose a race that replaced the linked one.
    A second browser tab goes its own way.
    """
    first = page.evaluate("history.length")
    at(page, "Race", "", first)
    go_to(page, "Best gamma")
    go_to(page, "Lossless?")
    at(page, "Lossless?", "#tab=lossless", first + 2)
    page.go_back()
    at(page, "Best gamma", "#tab=best-gamma", first + 2)
    page.go_forward()
    page.evaluate("history.back(); setTimeout(() => history.back(), 5)")  # twice, before Gradio has reported a tab
    at(page, "Race", "", first + 2)
    ask(page, "Tim had a", tokens=8)
    run(page)
    share(page)
    run_link = link(page, "this run").partition("#")[2]
    results = "sweep=" + page.evaluate(PACKED, (RECORDED / "recorded_sweep.jsonl").read_text(encoding="utf-8"))
    page.goto("about:blank")
    open_page(page, address, "#" + run_link, greeting="link")
    first = page.evaluate("history.length")
    go_to(page, "Benchmark")
    at(page, "Benchmark", f"#{run_link}&tab=benchmark", first + 1)
    go_to(page, "Race")
    ask(page, "Sue ran", tokens=8)
    run(page)
    at(page, "Race", "", first + 2)
    page.go_back()
    at(page, "Benchmark", "#tab=benchmark", first + 2)
    assert "Measured on this machine · 1 run" in page.locator(".sd-verdictOrigin").text_content()
    other = page.context.new_page()
    other.set_default_timeout(WAIT)
    other.goto(f"{address}#{results}")
    at(other, "Best gamma", f"#{results}", 2)  # the blank page and this one
    other.wait_for_selector("#sd-gamma-verdict .sd-origin:has-text('From a link')")
    go_to(other, "Race")
    at(other, "Race", f"#{results}&tab=race", 3)
    reload(other)
    at(other, "Race", f"#{results}&tab=race", 3)
    other.go_back()
    at(other, "Best gamma", f"#{results}", 3)
    assert "From a link" in text(other, "#sd-gamma-verdict .sd-origin")
    other.close()
    at(page, "Benchmark", "#tab=benchmark", first + 2)


# The results of a file as they stand in a link.
PACKED = """async (text) => {
  const load = (name) => import(new URL(`specdec-assets/${name}`, document.baseURI).href);
  return (await load("lib/address.js")).toBase64(await (await load("share/packed_results.js")).packResults(text));
}"""

# The width of what is drawn in a row of the picture, from the left end of the bars on, and counts of blue pixels.
DECODED = """async (data) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const at = (x, y) => [...pen.getImageData(x, y, 1, 1).data];
  const drawn = (x, y) => at(x, y).some((value) => value < 250);
  const bar = (y) => {
    let end = 280;
    for (let x = 280; x < 1040; x++) if (drawn(x, y)) end = x;
    return end - 280;
  };
  const count = (x, y, width, height) => {
    const { data } = pen.getImageData(x, y, width, height);
    let found = 0;
    for (let i = 0; i < data.length; i += 4) if (data[i] < 200) found += 1;
    return found;
  };
  return {
    size: [image.width, image.height],
    paper: at(20, 300),
    bars: [285, 321, 357, 393].map(bar), // the upper edge of the passes, above the letters beside them
    factor: count(50, 50, 250, 120),
    sentence: count(440, 60, 700, 120),
    figures: count(50, 210, 1000, 60),
    foot: count(50, 550, 1100, 60),
    edge: count(1150, 0, 50, 8) > 0 && count(1150, 20, 50, 600) === 0,
  };
}"""


# How long plain generate and the speculative lane of the shown race took, in seconds, and when the last pass of the
# latter ended: the work after it is not drawn.
TIMES = """async () => {
  const { raceShown } = await import(new URL("specdec-assets/race/current_race.js", document.baseURI).href);
  const [plain, ours] = ["generate", "speculative"].map((name) => raceShown().lanes.get(name));
  const last = ours.rounds.at(-1);
  return [plain.duration, ours.duration, ours.seconds.at(-2) + last.draft_seconds + last.verify_seconds];
}"""


@pytest.mark.full
def test_the_picture_shows_the_race(browser, address, tmp_path):
    """On a dark page too it is a light PNG, 1200 x 630: factor, sentence, figures, bars in proportion to times."""
    with visit(browser, address, color_scheme="dark") as page:
        open_page(page, address)
        ask(page, tokens=48)
        run(page)
        share(page)
        with page.expect_download() as download:
            page.click("text=Download picture")
        download.value.save_as(tmp_path / "card.png")
        assert download.value.suggested_filename == "specdec.png"
        found = page.evaluate(DECODED, base64.b64encode((tmp_path / "card.png").read_bytes()).decode())
        plain, ours, last_pass = page.evaluate(TIMES)
    assert found["size"] == [1200, 630] and found["paper"] == [255, 255, 255, 255] and found["edge"]
    for part in ("factor", "sentence", "figures", "foot"):
        assert found[part] > 500, part
    plain_wide, _, ours_wide, enlarged = found["bars"]
    assert plain_wide > 750, "the slowest lane fills the width"
    assert plain_wide / ours_wide == pytest.approx(plain / ours, rel=0.06)
    assert enlarged == pytest.approx(760 * last_pass / ours, abs=3)
