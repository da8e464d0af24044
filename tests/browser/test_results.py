"""Results in the tabs that measure: recordings, files and links; and a race at the length that What if found."""

from __future__ import annotations

import json
import re
import threading

import pytest

from browser.conftest import WAIT, ask, go_to, open_page, quick_self_test, run, settle, text, unfold, visit
from browser.test_measuring import finish, save, set_number
from specdec.lanes.table import lane_configs
from specdec.measure import sweep
from specdec.ui.tabs import best_gamma, measurement

pytestmark = pytest.mark.xdist_group("browser")


KEYS = {"Best gamma": "gamma", "Benchmark": "bench", "Lossless?": "lossless"}


@pytest.fixture
def short_sweep(monkeypatch) -> None:
    """A sweep of few draft lengths, which takes seconds."""
    few = lane_configs(("generate", "speculative"), (0, 2, 4, "auto"))
    monkeypatch.setattr(best_gamma, "CONFIGS", few)
    assert few != sweep.CONFIGS


def shown(page, key: str) -> tuple[str, list[str]]:
    """The verdict, and the table's rows without acceptance by position, which links leave out."""
    return text(page, f"#sd-{key}-verdict .sd-headline"), page.locator(
        f"#sd-{key}-table tbody tr:not(details:has(summary:text('By place')) *)"
    ).all_inner_texts()


def shared(page) -> str:
    """The text of the Share menu. On a tab that measures it never offers the race."""
    page.click(".sd-shareButton")
    page.wait_for_selector(".sd-sharePanel h3:text-matches('This tab|These results')")
    said = text(page, ".sd-sharePanel")
    assert page.locator(".sd-sharePanel [aria-label='Link to this run']").count() == 0
    page.keyboard.press("Escape")
    return said


def origin(page, key: str) -> str:
    return text(page, f"#sd-{key}-verdict .sd-origin strong")


def test_each_tab_opens_with_a_recorded_result_marked_as_one(page, outside):
    """Verdict, chart and table are there at once, none is said to be measured here, and no chart has a toolbar."""
    for name, key in KEYS.items():
        go_to(page, name)
        page.wait_for_selector(f"#sd-{key}-verdict .sd-headline")
        assert origin(page, key) == "A recording, not measured here"
        asked, place = page.locator(f"#sd-{key}-verdict .sd-origin > span").all_inner_texts()
        assert re.search(r" \d\d? [A-Z][a-z]+ \d{4}$", place)
        assert re.search(r"(Story|examples|draws).* temperature \d", asked), "with which prompts and settings"
        found = page.locator(f"#sd-{key}-verdict").text_content()
        assert "on this machine" not in found
        assert not page.locator(f"#sd-{key}-status .sd-error").is_visible()
        assert "Nothing to share yet." in shared(page)
    for key in ("gamma", "bench"):
        go_to(page, next(name for name, found in KEYS.items() if found == key))
        page.wait_for_selector(f"#sd-{key}-plot .main-svg")
        assert page.locator(f"#sd-{key}-table tbody tr").count() > 10
        box = page.locator(f"#sd-{key}-plot .main-svg >> nth=0").bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 50)
        assert page.locator(f"#sd-{key}-plot .modebar-btn").count() == 0
        assert not page.locator(f"#sd-{'sweep' if key == 'gamma' else key}-link input").is_visible()
    assert outside == []


POINTS = """() => {
    window.seen = [];
    const look = () => {
        const status = document.querySelector('#sd-gamma-status .sd-status')?.innerText ?? '';
        const points = document.querySelectorAll('#sd-gamma-plot .subplot.xy .points path').length;
        if (/of 10 calls/.test(status) && points) window.seen.push([parseInt(status), points]);
        requestAnimationFrame(look);
    };
    look();
}"""


@pytest.mark.full
def test_a_sweep_travels_as_a_link_and_as_a_file(page, browser, address, tmp_path, short_sweep, monkeypatch):
    """In a fresh profile the same verdict and table, marked as from a link or a file; nothing runs.

    While it is measured, a call is drawn as soon as it was measured, before all configs have run. The measurement
    waits for that here.
    """
    monkeypatch.setattr(measurement, "CHART_EVERY", 0.0)
    go_to(page, "Best gamma")
    unfold(page, "#sd-gamma-settings")
    page.wait_for_selector("#sd-gamma-plot .main-svg")
    page.evaluate(POINTS)
    set_number(page, "gamma-tokens", 32)
    set_number(page, "gamma-runs", 2)
    drawn, whole = threading.Semaphore(0), measurement.Measurement.steps

    def held(self):
        for calls, step in enumerate(whole(self)):
            yield step
            if calls in (3, 5):
                drawn.acquire(timeout=WAIT / 1000)

    def look() -> None:
        for calls in (3, 5):
            page.wait_for_function(f"window.seen.some(([calls]) => calls === {calls})")
            drawn.release()

    monkeypatch.setattr(measurement.Measurement, "steps", held)
    finish(page, "gamma", look)
    seen = page.evaluate("window.seen")
    assert len({points for calls, points in seen if calls < 6}) > 1, "more with each call"
    page.wait_for_selector("#sd-sweep-link input")
    here, link = shown(page, "gamma"), page.locator("#sd-sweep-link input").input_value()
    assert origin(page, "gamma") == "Measured on this machine"
    assert "10 calls measured" in page.locator("#sd-gamma-verdict").text_content()
    assert link.startswith(address) and "#sweep=" in link and len(link) < 4096
    page.click(".sd-shareButton")
    assert page.locator(".sd-sharePanel [aria-label='Link to these results']").input_value() == link
    assert page.locator(".sd-sharePanel button:text-is('sweep.results.jsonl')").is_visible()
    assert "gamma=" in page.locator(".sd-sharePanel [aria-label='specdec code']").input_value()
    page.keyboard.press("Escape")
    assert "This run" not in shared(page)
    with page.expect_download() as download:
        page.click("#sd-gamma-files button:text-is('sweep.results.jsonl')")
    download.value.save_as(tmp_path / "mine.jsonl")
    with visit(browser, address) as other:
        other.goto(link)
        other.wait_for_selector("#sd-gamma-verdict .sd-origin:has-text('From a link, not measured here')")
        assert other.locator("#sd-gamma-table").is_visible(), "the link opens its tab"
        assert shown(other, "gamma") == here
        assert "on this machine" not in other.locator("#sd-gamma-verdict").text_content()
        other.wait_for_selector("#sd-gamma-plot .main-svg")
        assert not other.evaluate("window.specdec.running")
        assert other.locator("#sd-sweep-link input").input_value() == link and "These results" in shared(other)
        other.set_input_files("#sd-sweep-open input[type=file]", tmp_path / "mine.jsonl")
        other.wait_for_selector("#sd-gamma-verdict .sd-origin:has-text('From the file mine.jsonl, not measured here')")
        assert shown(other, "gamma") == here
        assert other.locator("#sd-sweep-link input").input_value() == link


@pytest.mark.full
def test_a_benchmark_travels_as_a_link(page, browser, address, tmp_path):
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    page.fill("#sd-bench-gammas input", "3")
    page.locator("#sd-bench-gammas input").blur()
    set_number(page, "bench-tokens", 32)
    set_number(page, "bench-runs", 1)
    finish(page, "bench")
    page.wait_for_selector("#sd-bench-link input")
    here, link = shown(page, "bench"), page.locator("#sd-bench-link input").input_value()
    saved = save(page, "benchmark.results.jsonl", tmp_path)
    with visit(browser, address) as other:
        open_page(other, address)
        other.evaluate("(link) => { location.hash = new URL(link).hash; }", link)  # pasted into an open page
        other.wait_for_selector("#sd-bench-verdict .sd-origin:has-text('From a link')")
        assert shown(other, "bench") == here
        go_to(other, "Best gamma")
        other.wait_for_selector("#sd-gamma-verdict .sd-origin:has-text('A recording')")
        other.set_input_files("#sd-sweep-open input[type=file]", saved)  # it has a draft length, as the tab shows
        other.wait_for_selector("#sd-gamma-verdict .sd-origin:has-text('From the file')")
        lengths = "all => all.map((row) => row.cells[0].textContent.trim().split(' ')[0])"  # some rows are folded
        assert set(other.locator("#sd-gamma-table tbody tr").evaluate_all(lengths)) == {"0", "3"}


@pytest.mark.full
def test_a_test_of_losslessness_travels_as_a_link(page, browser, address, monkeypatch):
    quick_self_test(monkeypatch)
    go_to(page, "Lossless?")
    page.click("#sd-lossless-start")
    page.wait_for_selector("#sd-lossless-link input")
    here, link = shown(page, "lossless"), page.locator("#sd-lossless-link input").input_value()
    assert link.startswith(address) and "#lossless=" in link and len(link) < 4096
    page.click(".sd-shareButton")
    assert page.locator(".sd-sharePanel [aria-label='Link to these results']").input_value() == link
    assert "continuations in its chart" in text(page, ".sd-sharePanel")
    with visit(browser, address) as other:
        other.goto(link)
        other.wait_for_selector("#sd-lossless-verdict .sd-origin:has-text('From a link, not measured here')")
        assert shown(other, "lossless") == here
        other.wait_for_selector("#sd-lossless-plot .legendtext")
        other.evaluate("location.hash = location.hash.slice(0, -9)")
        other.wait_for_selector("#sd-lossless-status .sd-error:has-text('The link is damaged')")


@pytest.mark.full
def test_what_cannot_be_opened_says_so_in_the_tab(browser, address, tmp_path):
    """A damaged link, and files of another kind, of another version or too large, are refused in words."""
    with visit(browser, address) as page:
        page.goto(f"{address}#bench=eJyrVkrLz1eyUkpKLFKqBQAdegQ0")
        page.wait_for_selector("#sd-bench-status .sd-error:has-text('The results in this link cannot be shown.')")
        assert "The link is damaged: a part of it may be missing." in text(page, "#sd-bench-status")
        page.wait_for_selector("#sd-bench-verdict .sd-origin:has-text('A recording')")
        page.evaluate("location.hash = 'tab=benchmark'")
        page.wait_for_selector("#sd-bench-status .sd-error", state="detached")
        name = "<img src=x onerror='window.bitten=1'>.jsonl"
        old = json.dumps({"results": {"version": 2}}) + "\n"
        for content, words in (
            ("my diary", f"{name} has no results of this program."),
            (old, "its version is 2, and this program reads version 4"),
            (" " * 10_000_001, "has more than 10\u00a0MB"),
            ("\udcff", "cannot be read as UTF-8 text"),
        ):
            file = {"name": name, "mimeType": "", "buffer": content.encode(errors="surrogateescape")}
            page.set_input_files("#sd-bench-open input[type=file]", file)
            page.wait_for_selector(f':is(#sd-bench-status, #sd-bench-open) .sd-error:visible:has-text("{words}")')
        unfold(page, "#sd-bench-settings")
        page.fill("#sd-bench-gammas input", "4")
        page.wait_for_function("![...document.querySelectorAll('#sd-tabs .sd-error')].some((e) => e.checkVisibility())")
        assert origin(page, "bench").startswith("A recording") and page.evaluate("window.bitten") is None


@pytest.mark.full
def test_what_if_s_best_is_raced_and_so_is_a_confidence_stop(page):
    """Race it fills the form and says so. A confidence stop is raced, named in the settings and kept in a link."""
    go_to(page, "Best gamma")
    page.click("#sd-gamma-whatif button.label-wrap")
    assert not page.locator("#sd-whatif-race").is_visible()
    page.click("#sd-whatif-start")
    page.wait_for_selector("#sd-whatif-race:visible")
    rows = page.locator("#sd-whatif-table tbody tr").all_inner_texts()
    assert len(rows) == 17 + 4 + 1 and rows[-1].startswith("oracle")
    assert "not measured: tokens per pass are exact" in text(page, "#sd-whatif-table caption")
    speeds = [float(row.split()[-2]) for row in rows]
    assert min(speeds) == speeds[-1], "nothing is faster than the oracle"
    best = text(page, "#sd-whatif-race").removeprefix("Race it: ")
    assert best == page.locator("#sd-whatif-table tr.marked th").inner_text() != "oracle"
    page.click("#sd-whatif-race")
    page.wait_for_selector(f"#sd-problems:visible:has-text('Set from What if: {best}. Press Run race to measure it.')")
    page.wait_for_selector(f".sd-lineGamma:has-text('γ {best.removeprefix('γ ')}')")
    page.click(".sd-lineForm .sd-action")
    page.click("#sd-choice label:has-text('confidence')")
    page.fill("#sd-confidence input", "0.3")
    page.locator("#sd-confidence input").blur()
    settle(page)
    assert page.locator("#sd-gamma input[type=number]").is_disabled()
    ask(page, tokens=24)
    run(page)
    assert text(page, ".sd-lineGamma") == "γ stop below confidence 0.3"
    assert page.evaluate("window.specdec.errors") == 0
