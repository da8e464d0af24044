"""The tabs that measure: Best gamma, What if, Take it home, Benchmark and Lossless?."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable

import pytest
from comparison import HOURS

from browser.conftest import (
    ENDED,
    FOUND,
    ask,
    edit,
    go_to,
    open_page,
    quick_self_test,
    settle,
    text,
    unfold,
    visit,
    wait_said,
)
from specdec.lanes.table import lane_configs
from specdec.report.losslessness import CHECKS
from specdec.report.sentences import capital
from specdec.ui.tabs import best_gamma, lossless, measurement

pytestmark = pytest.mark.xdist_group("browser")


def set_number(page, field: str, value: int) -> None:
    page.fill(f"#sd-{field} input[type=number]", str(value))
    page.locator(f"#sd-{field} input[type=number]").blur()


def finish(page, name: str, meanwhile: Callable[[], None] | None = None) -> None:
    """Start a measurement and wait until its button is back. ``meanwhile`` is called during the measurement."""
    page.wait_for_function(f"!document.body.classList.contains('sd-{name}-running')")
    assert not page.locator(f"#sd-{name}-stop").is_visible()
    ended = page.evaluate(ENDED, "rest")
    page.click(f"#sd-{name}-start")
    if meanwhile:
        meanwhile()
    page.wait_for_function(f"window.ended.rest > {ended}")
    page.wait_for_selector(f"#sd-{name}-start:visible")
    assert not page.locator(f"#sd-{name}-stop").is_visible()


def test_the_best_draft_length_is_measured_explained_and_taken_home(page, outside):
    """A sweep gives a verdict, a row for each length with the closed form, the reason, and code to take home.

    After a stop in the middle the measured rows and the count of calls stay.
    """
    go_to(page, "Best gamma")
    page.click("#sd-gamma-start")
    page.wait_for_selector("#sd-gamma-status :text('of 57 calls, about')")  # the tab opened with a recorded result
    page.click("#sd-gamma-stop")
    page.wait_for_selector("#sd-gamma-start:visible")
    assert re.search(r"Stopped: \d+ of 57 calls done", text(page, "#sd-gamma-status"))
    assert page.locator("#sd-gamma-table tbody tr").count() >= 1
    unfold(page, "#sd-gamma-settings")
    set_number(page, "gamma-tokens", 32)
    set_number(page, "gamma-runs", 1)
    finish(page, "gamma")
    headline = text(page, "#sd-gamma-verdict .sd-headline")
    assert re.search(r"Our loop with the fastest draft length, γ (\d+|auto),", headline)
    for factor in page.locator("#sd-gamma-verdict .sd-factor:visible").all_inner_texts():  # none for an unclear result
        assert factor.removeprefix("about").strip().removesuffix("x") in headline, "the large figure is the headline's"
    few = [row.split()[0] for row in page.locator("#sd-gamma-table tbody tr:visible").all_inner_texts()]
    assert few[0] == "0" and few[-1] == "auto" and len(few) in (2, 3), "the rest is folded"
    page.click("#sd-gamma-table summary")
    rows = page.locator("#sd-gamma-table details tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == [*map(str, range(17)), "auto"]
    assert sum("fastest" in row for row in rows) == 1 == page.locator("#sd-gamma-table details tr.marked").count()
    paragraph = page.locator("#sd-gamma-verdict .sd-verdictNotes").text_content()
    for words in ("19 calls measured", "theory is off by"):
        assert words in paragraph
    page.wait_for_selector("#sd-gamma-plot .main-svg")
    page.wait_for_selector("#sd-gamma-plot-2 .main-svg")
    titles = " ".join(page.locator("[id^=sd-gamma-plot] text").all_text_contents())
    for words in (
        "Speed-up over plain",
        "Draft length γ",
        "median run (bar: all runs)",
        "Acceptance",
        "predicted",
        "auto",
    ):
        assert words in titles, titles
    page.click("#sd-gamma-why button.label-wrap")
    page.wait_for_selector("#sd-gamma-why .main-svg")
    assert "Cost coefficient (c)" in text(page, "#sd-gamma-why")
    page.click("#sd-gamma-home button.label-wrap")
    best = next(row.split()[0] for row in rows if "fastest" in row).replace("auto", '"auto"')
    assert f"gamma={best}," in page.locator('[aria-label="specdec code"] >> visible=true').input_value()
    names = page.locator("#sd-gamma-home summary").all_inner_texts()
    assert names == ["specdec", "transformers", "vLLM", "SGLang", "llama.cpp"]
    assert outside == []


@pytest.mark.full
def test_best_gamma_obeys_what_the_race_does_and_a_benchmark_its_own_grammar(page, monkeypatch):
    """Both say so before and after. What if cannot compute such a text, and says so before it records one."""
    monkeypatch.setattr(best_gamma, "CONFIGS", lane_configs(("generate", "speculative"), (0, 3)))
    edit(page)
    page.check("#sd-grammar input[value=regex]")
    page.fill("#sd-grammar-text textarea", "[a-z]{33}")
    go_to(page, "Best gamma")
    page.wait_for_selector("#sd-gamma-estimate:has-text('whose texts obey a regular expression, as set for the race.')")
    unfold(page, "#sd-gamma-settings")
    set_number(page, "gamma-runs", 1)
    finish(page, "gamma")
    assert "Each text obeys a regular expression." in page.locator("#sd-gamma-verdict").text_content()
    page.click("#sd-gamma-whatif button.label-wrap")
    page.click("#sd-whatif-start")
    page.wait_for_selector("#sd-whatif-status .sd-error:has-text('other draft lengths must be run')")
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    assert not page.locator("#sd-bench-grammar-text textarea").is_visible()
    page.fill("#sd-bench-gammas input", "3")
    page.fill("#sd-bench-first input", "1")
    set_number(page, "bench-runs", 1)
    page.check("#sd-bench-grammar input[value=regex]")
    page.fill("#sd-bench-grammar-text textarea", "[a-z]{34}")
    page.wait_for_selector("#sd-bench-estimate:has-text('whose texts obey a regular expression.')")
    finish(page, "bench")
    assert "greedy), a regular expression" in page.locator("#sd-bench-verdict").text_content()


@pytest.mark.full
def test_a_stop_while_waiting_frees_place_and_page_at_once(page, browser, address, passes_go_on):
    """A waiting sweep is stopped and a race is started. The race starts at once, and the sweep never runs."""
    with visit(browser, address) as other:
        open_page(other, address)
        ask(other, "class Stack:\n    def __init__(self):\n        self.items = []", tokens=2048)
        passes_go_on.clear()
        other.click("#sd-run")
        assert passes_go_on.reached.wait(60), "the race runs, and waits"
        go_to(page, "Best gamma")
        page.click("#sd-gamma-start")
        page.wait_for_selector("#sd-gamma-status :text('1 ahead')")
        page.click("#sd-gamma-stop")
        page.wait_for_selector("#sd-gamma-status :text('Cancelled. Nothing ran.')")
        page.wait_for_selector("#sd-gamma-start")
        go_to(page, "Race")
        ask(page, tokens=8)
        page.click("#sd-run")
        wait_said(page, "1 ahead")
        assert other.evaluate("window.specdec.running"), "it all happened while the other race ran"
        other.click("#sd-stop")
        passes_go_on.set()
        page.wait_for_function("window.specdec.verdicts === 2")
    go_to(page, "Best gamma")
    assert text(page, "#sd-gamma-status") == "Cancelled. Nothing ran."


@pytest.mark.full
def test_bad_choices_are_a_sentence_and_nothing_runs(page):
    """Without a prompt, or with an unreadable draft length, a sentence says so and the button is back.

    The estimate beside the button uses the speed of the start-up race and follows the fields.
    """
    go_to(page, "Best gamma")
    unfold(page, "#sd-gamma-settings")
    page.wait_for_selector("#sd-gamma-estimate:has-text('57 calls of 64 tokens.')")
    assert re.fullmatch(r"About .+: 57 calls of 64 tokens\.", text(page, "#sd-gamma-estimate"))
    set_number(page, "gamma-runs", 2)
    page.wait_for_selector("#sd-gamma-estimate:has-text('38 calls')")
    page.uncheck('#sd-gamma-prompts label:has-text("The prompt of the race") input')
    page.click("#sd-gamma-start")
    page.wait_for_selector("#sd-gamma-status .sd-error:has-text('No prompt is chosen')")
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    page.wait_for_selector("#sd-bench-estimate:has-text('calls of 64 tokens.')")
    page.fill("#sd-bench-gammas input", "3 soon")
    page.locator("#sd-bench-gammas input").blur()
    page.click("#sd-bench-start")
    page.wait_for_selector("#sd-bench-status .sd-error:has-text('numbers from 0 to 16, auto')")
    page.wait_for_function("document.querySelector('#sd-bench-estimate').innerText.trim() === ''")


def give(page, field: str, path) -> None:
    """Choose a file and wait until it was read or refused."""
    page.set_input_files(f"#sd-bench-{field} input[type=file]", path)
    page.wait_for_selector(f"#sd-bench-{field} .sd-drop[aria-busy=false] .sd-fileName:has-text('{path.name}')")


def save(page, name: str, folder):
    """Save an offered file and return its path."""
    with page.expect_download() as download:
        page.click(f"#sd-bench-files button:text-is('{name}')")
    download.value.save_as(folder / name)
    assert download.value.suggested_filename == name
    return folder / name


def write_set(path, *items) -> None:
    rows = [{"name": name, "category": category, "prompt": "Once upon a time"} for name, category in items]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.full
def test_a_benchmark_runs_a_chosen_set_and_goes_on_from_its_results(page, tmp_path):
    """A visitor's own set gives rows by category and files to save. Results that are given back are not measured again.

    The files travel with the jobs: nothing is uploaded, and no file of the server is fetched.
    """
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    write_set(tmp_path / "set.jsonl", ("one", '<b>"a"</b>'), ("two", "1"))
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    give(page, "set", tmp_path / "set.jsonl")
    page.fill("#sd-bench-gammas input", "3")
    page.locator("#sd-bench-gammas input").blur()
    set_number(page, "bench-tokens", 32)
    set_number(page, "bench-runs", 1)
    finish(page, "bench")
    rows = page.locator("#sd-bench-table th[scope=row]:visible").all_inner_texts()
    assert rows == ["Plain", "Our loop, no draft", "Speculative"]
    page.click("#sd-bench-table summary:has-text('in each category')")
    rows = page.locator("#sd-bench-table th[scope=row]:visible").all_inner_texts()
    assert rows[3:] == ['<b>"a"</b>', "1"]
    every = page.locator("#sd-bench-table details:has(summary:text('All figures')) tbody tr")
    page.click("#sd-bench-table summary:text('All figures')")
    found = every.all_inner_texts()
    assert [row.split("\t")[0] for row in found] == ['<b>"a"</b>'] * 3 + ["1"] * 3 + ["all"] * 3
    assert "6 calls measured" in page.locator("#sd-bench-verdict").text_content()
    page.wait_for_selector("#sd-bench-plot .main-svg")
    named = page.locator("#sd-bench-plot .ytick text").all_text_contents()
    lanes = [name for name in named if name.startswith(("Our loop", "Speculative"))]
    assert any('<b>"a"</b>' in name for name in named), "the name of a category is no markup"
    assert len(lanes) == 2 and lanes[1].startswith("Speculative")
    names = page.locator("#sd-bench-files button").all_inner_texts()
    assert sorted(names) == ["benchmark.csv", "benchmark.json", "benchmark.md", "benchmark.results.jsonl"]
    assert save(page, "benchmark.csv", tmp_path).read_text().count("\n") == 1 + len(found)
    give(page, "earlier", save(page, "benchmark.results.jsonl", tmp_path))
    finish(page, "bench")
    settle(page)
    assert every.all_inner_texts() == found, "the same rows, to the last digit"
    assert [url for url in asked if "upload" in url or "file=" in url] == []


@pytest.mark.full
def test_a_stopped_benchmark_leaves_files_to_go_on_from(page, tmp_path, monkeypatch):
    write_set(tmp_path / "set.jsonl", ("one", "story"))
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    give(page, "set", tmp_path / "set.jsonl")
    page.fill("#sd-bench-gammas input", "3")
    page.locator("#sd-bench-gammas input").blur()
    set_number(page, "bench-tokens", 64)
    set_number(page, "bench-runs", 5)
    whole = measurement.Measurement.steps

    def slow(self):
        for step in whole(self):
            yield step
            time.sleep(0.5)  # or all of its calls are done before a busy browser has drawn the first

    with monkeypatch.context() as patch:
        patch.setattr(measurement.Measurement, "steps", slow)
        page.click("#sd-bench-start")
        page.wait_for_selector("#sd-bench-status :text('of 15 calls, about')")  # the tab opened with a recorded result
        page.click("#sd-bench-stop")
        page.wait_for_selector("#sd-bench-start:visible")
    assert re.search(r"Stopped: \d+ of 15 calls done", text(page, "#sd-bench-status"))
    head, *calls = save(page, "benchmark.results.jsonl", tmp_path).read_text().splitlines()
    assert 0 < len(calls) < 15
    give(page, "earlier", tmp_path / "benchmark.results.jsonl")
    finish(page, "bench")
    assert save(page, "benchmark.results.jsonl", tmp_path).read_text().splitlines()[0] == head
    assert "15 calls measured" in page.locator("#sd-bench-verdict").text_content()


DROP = """(names) => {
    const dropped = new DataTransfer();
    for (const name of names) dropped.items.add(new File(['{}'], name));
    const event = new DragEvent('drop', { dataTransfer: dropped, bubbles: true, cancelable: true });
    document.querySelector('#sd-bench-set .sd-drop').dispatchEvent(event);
    return event.defaultPrevented;
}"""


@pytest.mark.full
def test_a_set_is_measured_as_it_comes_or_refused_by_its_name(page, tmp_path):
    """HumanEval's own gzip file is read. A file that is no set is refused, and the examples never replace it.

    One file at a time can be dropped. Its name is shown unchanged, and the last file counts.
    """
    record = {"task_id": "HumanEval/0", "prompt": "Once upon a time"}
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(json.dumps(record).encode()))
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / "large.jsonl").write_bytes(b" " * 10_000_001)
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    assert page.evaluate(DROP, ["one.jsonl", "two.jsonl"])
    assert "Drop one file" in text(page, "#sd-bench-set .sd-error")
    assert text(page, "#sd-bench-set .sd-fileName") == "or drop it here"
    marked = "<img src=x onerror='window.bitten=1'>.jsonl"
    for given in ("one.jsonl", marked):
        assert page.evaluate(DROP, [given])
    settle(page)
    assert text(page, "#sd-bench-set .sd-fileName") == f"{marked} 1\u00a0kB"
    assert not page.locator("#sd-bench-set .sd-error").is_visible()
    assert page.evaluate("window.bitten") is None
    set_number(page, "bench-tokens", 32)
    set_number(page, "bench-runs", 1)
    for name, words in (("large.jsonl", "has more than 10\u00a0MB"), ("photo.png", "cannot be read as UTF-8 text")):
        give(page, "set", tmp_path / name)
        page.wait_for_selector(f"#sd-bench-set .sd-error:has-text('{name} {words}')")
    page.click("#sd-bench-start")
    page.wait_for_selector("#sd-bench-status .sd-error:has-text('A chosen file could not be read')")
    page.click("#sd-bench-set button:has-text('Remove')")
    assert page.evaluate("document.activeElement.id") == "sd-bench-set-file"
    assert not page.locator("#sd-bench-set .sd-error").is_visible()
    (tmp_path / "set.jsonl").write_text('{"text": "Once"}')
    give(page, "set", tmp_path / "set.jsonl")
    page.click("#sd-bench-start")
    page.wait_for_selector("#sd-bench-status .sd-error:has-text('Line 1 holds no prompt (found: text)')")
    give(page, "set", tmp_path / "HumanEval.jsonl.gz")
    finish(page, "bench")
    assert "1 prompt of HumanEval.jsonl.gz" in page.locator("#sd-bench-verdict").text_content()
    assert page.locator("#sd-bench-table tbody tr").first.inner_text().startswith("HumanEval")


def test_losslessness_is_tested_with_progress_and_said_in_words(page, monkeypatch):
    """One button shows progress, then both samples with their figures.

    The focus stays as Start and Stop replace each other. A screen reader hears a tab's verdict, as it does a race's.
    Few draws are enough here: how often the test is right is tested elsewhere. The page's own pair is tested with
    --hours only.
    """
    whole, seen = lossless.self_test, threading.Event()
    if HOURS:
        monkeypatch.setattr(lossless, "self_test", lambda pair, lane, draws, seconds: whole(pair, draws=60))
    else:
        quick_self_test(monkeypatch, seen)
    go_to(page, "Lossless?")
    page.focus("#sd-lossless-start")
    page.evaluate("window.focused = []; addEventListener('focusin', ({ target }) => focused.push(target.id))")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sd-lossless-status progress")
    seen.set()
    page.wait_for_selector("#sd-lossless-start:visible")
    assert page.evaluate("focused") == ["sd-lossless-stop", "sd-lossless-start"]
    headline = page.locator("#sd-lossless-verdict .sd-headline").text_content()
    page.wait_for_function("(said) => document.querySelector('.sd-spoken').textContent === said", arg=headline)
    names = page.locator("#sd-lossless-plot .legendtext").all_text_contents()
    assert names[:3] == ["plain generate", "speculative, lossless", "lossy on purpose"] and len(names) == 4
    page.click("#sd-lossless-table summary")
    rows = page.locator("#sd-lossless-table tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [
        "speculative, lossless", "speculative, top-3 acceptance (lossy)",
        *(capital(right) for right, _ in CHECKS.values()),
    ]  # fmt: skip
    assert "60 continuations of 4 tokens" in text(page, "#sd-lossless-table caption >> nth=0")
    assert re.match("No difference found|Not lossless|Undecided", text(page, "#sd-lossless-verdict .sd-headline"))
    said = page.locator("#sd-lossless-verdict").text_content()
    if found := re.search("changed ([0-9]+.%) of the draws or more, this test would find it 9 times in 10", said):
        assert rows[0].split("\t")[3] == found[1]
    unfold(page, "#sd-lossless-settings")
    set_number(page, "lossless-draws", 20000)
    page.click("#sd-lossless-start")
    page.wait_for_selector("#sd-lossless-status .sd-error:has-text('Draws is 20000; this page allows at most 10000')")
    set_number(page, "lossless-draws", 500)
    monkeypatch.setattr(lossless, "self_test", whole)  # long enough to be stopped
    page.click("#sd-lossless-start")
    page.wait_for_selector("#sd-lossless-status :text('continuations drawn')")
    page.wait_for_selector("#sd-lossless-verdict .sd-headline", state="detached")  # the old one
    page.wait_for_selector("#sd-lossless-plot .legendtext")  # bars grow
    page.click("#sd-lossless-stop")
    page.wait_for_selector("#sd-lossless-status :text('no conclusion')")
    page.wait_for_timeout(300)  # the announcement comes a moment after the end
    assert page.locator(".sd-spoken").text_content() == "", "an old verdict is not read out again"
    go_to(page, "Race")
    page.locator(".sd-verdictOrigin .sd-again").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("window.specdec.running && document.activeElement.id === 'sd-stop'")


SMALL = """() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) {
        const { parentElement: near, textContent: words } = texts.currentNode;
        if (!words.trim() || !near.checkVisibility({ visibilityProperty: true })) continue;
        const small = parseFloat(getComputedStyle(near).fontSize) < 14;
        if (small && near.getBoundingClientRect().width > 1) found.push(words);
    }
    return found;
}"""


def test_the_tabs_fit_a_phone(browser, address):
    """At 390 x 844 verdict and chart are in view, or the table of a benchmark, which comes before its chart.

    No text is under 14 px, and nothing is wider than the screen.

    This also holds with all folds open and after a measurement.
    """
    with visit(browser, address, viewport={"width": 390, "height": 844}) as page:
        open_page(page, address)
        titles = page.locator("#sd-tabs [role=tab]:visible")
        assert titles.count() == 6 and len({title.bounding_box()["y"] for title in titles.all()}) == 1
        for name, key in FOUND.items():
            go_to(page, name)
            page.wait_for_selector(f"#sd-{key}-plot .main-svg")
            first, second = ("table", "plot") if key == "bench" else ("plot", "table")
            places = [page.locator(f"#sd-{key}-{part}").bounding_box()["y"] for part in (first, second)]
            assert places[0] < min(650, places[1]), name
            for fold in page.locator("button.label-wrap:visible, .sd-fragment summary:visible").all():
                fold.click()
            settle(page)
            page.wait_for_function("document.documentElement.scrollWidth <= 390")  # an opened chart fits itself
            assert page.evaluate(SMALL) == [], name
        go_to(page, "Best gamma")
        if not page.locator("#sd-whatif-start").is_visible():
            unfold(page, "#sd-gamma-whatif")
        page.click("#sd-whatif-start")
        page.wait_for_selector("#sd-whatif-table tbody tr")
        page.wait_for_function("document.documentElement.scrollWidth <= 390")
