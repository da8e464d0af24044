"""Links, files and code: what leaves the page comes back unchanged, with its origin, and starts nothing."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from shell import commands, options

import specdec
from browser.conftest import ask, open_page, resize, run, show_recording, skip, text, unfold, visit
from specdec.measure.metrics import compute_metrics
from specdec.report import recording
from specdec.ui.jobs.recorded import recorded_race

pytestmark = pytest.mark.xdist_group("browser")
ROOT = Path(specdec.__file__).parent.parent

# Markup, template marks, right-to-left and zero-width characters, an emoji that is split over tokens.
HOSTILE = "<img src=x onerror='window.bitten=1'>${window.bitten=1}{{bitten}}\u202eabc\u200b\u2066def 👩‍🚀\n\t</script>"
SHOWN = """() => ({
    sentence: document.querySelector('.sd-headline').textContent.replace(/ here\\b/, ''),
    factor: document.querySelector('.sd-factor').textContent,
    figures: [...document.querySelectorAll('.sd-figures dd')].map((node) => node.textContent),
    texts: [...document.querySelectorAll('.sd-ribbon')].map((ribbon) => [...ribbon.querySelectorAll('.sd-token')]
        .map((mark) => [mark.className.replace(/ (cursor|lit|unborn|later)\\b/g, ''), mark.textContent])),
    prompt: document.querySelector('.sd-promptText').textContent,
})"""

VERDICTS = """() => [...document.querySelectorAll('.sd-verdicts tbody tr')]
    .map((row) => [row.cells[1].textContent, row.cells[row.cells.length - 1].textContent])"""


def share(page) -> None:
    """Open the menu and wait until the server has answered."""
    page.click(".sd-shareButton")
    page.wait_for_function("document.querySelector('[aria-label=\"Link to these settings\"]').value !== ''")
    page.wait_for_function(
        "document.querySelector('[aria-label=\"Link to this run\"]').value !== ''"
        " || document.querySelectorAll('.sd-sharePanel .sd-copy .sd-hint')[1].textContent !== ''"
    )


def link(page, which: str) -> str:
    return page.locator(f'[aria-label="Link to {which}"]').input_value()


def save(page, path: Path) -> Path:
    with page.expect_download() as download:
        page.click("text=Download this run")
    download.value.save_as(path)
    return path


def open_link(page, address: str) -> None:
    page.goto(address)
    page.wait_for_function("window.specdec && window.specdec.mounted")


def test_a_settings_link_restores_the_form_and_starts_nothing(page, browser, address):
    """A link restores prompt, draft length, lanes and folded settings in a fresh profile, and no race begins."""
    ask(page, "Zwölf <b>Katzen</b> & 50 % = ?#\n🙂", tokens=33, temperature=0.5)
    page.fill("#sd-gamma input[type=number]", "7")
    unfold(page, "#sd-more")
    page.check("#sd-lanes input[name=prompt-lookup]")
    page.fill("#sd-more label:has-text('Seed') input", "11")
    page.fill("#sd-accept input", "3")
    page.locator("#sd-accept input").blur()
    share(page)
    target = link(page, "these settings")
    assert "?" not in target.split("#")[0]
    with visit(browser, address) as other:
        open_link(other, target)
        other.wait_for_function("document.querySelector('#sd-prompt textarea').value.includes('Katzen')")
        other.wait_for_function("window.specdec.verdicts === 1")
        assert other.locator("#sd-prompt textarea").input_value() == "Zwölf <b>Katzen</b> & 50 % = ?#\n🙂"
        for name, value in (("gamma", "7"), ("tokens", "33"), ("temperature", "0.5")):
            assert other.locator(f"#sd-{name} input[type=number]").input_value() == value
        unfold(other, "#sd-more")
        assert other.locator("#sd-lanes input[name=prompt-lookup]").is_checked()
        assert other.locator("#sd-more label:has-text('Seed') input").input_value() == "11"
        assert other.locator("#sd-accept input").input_value() == "3"
        assert not other.evaluate("window.specdec.running") and other.evaluate("window.specdec.verdicts") == 1
        share(other)
        assert link(other, "these settings") == target


def test_bad_values_of_a_link_are_named(browser, address):
    """Each unusable value is named with its replacement until its field changes, and usable values are applied."""
    bad = {
        "chat": 1,
        "gamma": 40,
        "tokens": 99999,
        "temperature": "hot",
        "lanes": "draft-alone,nobody",
        "mood": "<b>",
        "top_k": 7,
    }
    with visit(browser, address) as page:
        open_page(page, address + "#" + urlencode(bad | {"prompt": "Hello"}))
        page.wait_for_selector("#sd-problems .sd-error")
        said = page.locator("#sd-problems .sd-error").all_inner_texts()
        assert len(said) == 6
        for part in (
            "no chat template",
            "gamma '40'",
            "give 0 to 16",
            "tokens '99999'",
            "temperature 'hot'",
            "nobody",
            "mood '<b>'",
        ):
            assert any(part in sentence for sentence in said), part
        assert page.locator("#sd-gamma input[type=number]").input_value() == "5"
        unfold(page, "#sd-more")
        assert page.locator("#sd-more label:has-text('Top-k (0') input").input_value() == "7"
        assert page.locator("#sd-prompt textarea").input_value() == "Hello"
        page.fill("#sd-gamma input[type=number]", "7")
        page.wait_for_function("document.querySelectorAll('#sd-problems .sd-error').length === 4")
        rest = " ".join(page.locator("#sd-problems .sd-error").all_inner_texts())
        assert "gamma" not in rest and "tokens '99999'" in rest, "a changed field mends its own"
        page.fill("#sd-more label:has-text('Seed') input", "soon")
        page.locator("#sd-more label:has-text('Seed') input").blur()
        page.click(".sd-shareButton")
        page.wait_for_selector(".sd-sharePanel .sd-hint:has-text('Seed is')")
        assert link(page, "these settings") == "", "settings that cannot run give no link"


def test_a_linked_run_is_shown_as_it_was(page, browser, address, tmp_path):
    """A link restores text, kinds and figures in a fresh profile and says so. Nothing starts until it is run here.

    The package reads the file of such a run.
    """
    ask(page, tokens=40, temperature=1)
    run(page)
    share(page)
    target = link(page, "this run")
    assert len(target) <= 4096
    shown = page.evaluate(SHOWN)
    with visit(browser, address) as other:
        open_link(other, target)
        other.wait_for_function("window.specdec.verdicts >= 1")
        assert other.evaluate(SHOWN) == shown
        assert "From a link, not measured here" in text(other, ".sd-verdictOrigin")
        assert "here" not in text(other, ".sd-headline")
        spoken = other.locator(".sd-spoken").text_content()
        assert spoken and " here" not in spoken + other.locator(".sd-plot").first.get_attribute("aria-label")
        assert not other.evaluate("window.specdec.running")
        other.wait_for_timeout(1000)  # the start-up race must not replace it
        assert "From a link" in text(other, ".sd-verdictOrigin")
        assert text(other, ".sd-card h2") == text(page, ".sd-card h2")
        assert other.evaluate(VERDICTS) == page.evaluate(VERDICTS) != []
        assert other.locator(".sd-decision").count() == 0
        other.click(".sd-shareButton")
        events = list(recording.read_recording(save(other, tmp_path / "linked.jsonl").read_text().splitlines()))
        lanes = [event.lane for event in events if isinstance(event, specdec.Started)]
        assert lanes == ["generate", "speculative", "speculative"]
        other.keyboard.press("Escape")
        other.click("text=Run it here")
        other.wait_for_function("window.specdec.verdicts >= 2 && !window.specdec.running")
        assert "Measured on this machine · 1 run" in text(other, ".sd-verdictOrigin")
        assert other.outside == []


@pytest.mark.full
def test_a_recording_replays_to_the_same_text_and_figures(page, browser, address, tmp_path):
    """A saved recording gives the package and another profile the same events, text and figures, and is labelled.

    In a forged one markup in chart labels stays text, and values that are not numbers are refused before they reach
    any code.
    """
    ask(page, tokens=40, temperature=1)
    run(page)
    page.click(".sd-shareButton")
    path = save(page, tmp_path / "run.jsonl")
    lines = path.read_text().splitlines()
    lanes = recording.lanes(lines)
    assert [(lane[0].lane, lane[0].gamma) for lane in lanes][2] == ("speculative", 0)
    shown = page.evaluate(SHOWN)
    assert shown["figures"][2] == f"{compute_metrics(lanes[1]).alpha * 100:.0f}\u00a0%"
    with visit(browser, address, reduced_motion="no-preference") as other:
        open_page(other, address)
        other.set_input_files("#sd-open", path)
        other.wait_for_function("window.specdec.verdicts === 2 && window.specdec.replaying")
        other.click('[aria-label="Skip to the end"]')
        assert other.evaluate(SHOWN) == shown
        assert "From the file run.jsonl" in text(other, ".sd-verdictOrigin") and "not measured here" in text(
            other, ".sd-verdictOrigin"
        )
        other.click(".sd-ribbon .correction >> nth=0")
        assert other.locator(".sd-decision li").count() > 1
        other.click(".sd-shareButton")
        assert save(other, tmp_path / "again.jsonl").read_text().splitlines() == lines
        other.keyboard.press("Escape")
        forged = [json.loads(line) for line in lines]
        for line in forged:
            if line["event"] == "lane_end":
                line["duration"] = '<a href="https://evil.example/">0.1 s</a>'
            if line["event"] == "verdict":
                line["saved"] = '<span style="font-size:60px">BIG</span>'
        path.write_text("\n".join(map(json.dumps, forged)))
        other.set_input_files("#sd-open", path)
        other.wait_for_function("window.specdec.verdicts === 3")
        skip(other)
        other.wait_for_selector(".sd-chart .sd-label:has-text('<a href')")
        assert other.locator(".sd-chart a").count() == 0
        for line in forged:
            if line["event"] == "started":
                line["params"]["temperature"] = "0)\nimport os; os.system('id') #"
        path.write_text("\n".join(map(json.dumps, forged)))
        other.set_input_files("#sd-open", path)
        other.wait_for_selector("#sd-said .sd-error:has-text('its params')")


@pytest.mark.full
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1024, 768), (390, 844)])
def test_the_menu_is_whole_in_a_window(browser, address, tmp_path, width: int, height: int):
    """It opens below its button, no part of it is cut, and its picture is as large as there is room for.

    On a phone the picture would be too small to read, so its verdict and origin stand there in words.
    """
    with visit(browser, address, viewport={"width": width, "height": height}) as page:
        open_page(page, address)
        show_recording(page, tmp_path, recorded_race())  # a clear race: one of a busy machine may have no large figure
        share(page)
        page.wait_for_selector(".sd-codeFold")
        box, picture = page.locator(".sd-sharePanel").bounding_box(), page.locator(".sd-picture canvas")
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height
        words = page.locator(".sd-pictureWords > *")
        if width > 640:
            assert picture.bounding_box()["width"] >= 500 and not words.first.is_visible()
        else:
            said = words.all_inner_texts()
            assert re.search(r"[\d.]+x$", said[0]) and "plain generate" in said[1] and "runs" in said[2]
            sizes = words.evaluate_all("all => all.map((one) => parseFloat(getComputedStyle(one).fontSize))")
            assert min(sizes) >= 14 and not picture.is_visible()
        assert text(page, ".sd-sharePanel > :last-child").startswith("Open a recording"), "which shares nothing"


@pytest.mark.full
def test_five_blocks_of_code_fit_a_narrow_screen(browser, address):
    """Each block opens and closes by itself, and no line is cut."""
    with visit(browser, address, viewport={"width": 390, "height": 800}) as page:
        open_page(page, address)
        page.click(".sd-shareButton")
        page.wait_for_selector(".sd-codeFold")
        folds = page.locator(".sd-codeFold summary")
        assert folds.all_inner_texts() == ["specdec", "transformers", "vLLM", "SGLang", "llama.cpp"]
        for fold in folds.all():
            fold.click()
        widths = page.locator(".sd-codeFold textarea").evaluate_all("all => all.map((one) => one.clientWidth)")
        assert len(widths) == 5 and 0 < min(widths) and max(widths) < 358
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for code in page.locator(".sd-codeFold textarea").all():
            assert code.evaluate("(one) => one.scrollWidth <= one.clientWidth")


def test_hostile_text_stays_text_everywhere(page, browser, address, tmp_path):
    """The prompt is shown as typed and runs nothing in the live view, rounds, replay, link, file and code."""
    long = HOSTILE + "=" * 10_000  # few tokens, no space
    ask(page, HOSTILE, tokens=16)
    run(page)
    page.click('[aria-label="Next round"]')
    page.click('[aria-label="Replay from the start"]')
    share(page)
    target = link(page, "this run")
    path = save(page, tmp_path / "run.jsonl")
    for name in ("specdec", "transformers", "vLLM"):
        ast.parse(page.locator(f"[aria-label='{name} code']").input_value())
    (tmp_path / "empty").mkdir()
    *_, asked = commands(page.locator("[aria-label='SGLang code']").input_value(), tmp_path / "empty")
    assert json.loads(options(asked)["-d"])["prompt"] == HOSTILE
    assert page.evaluate(SHOWN)["prompt"] == HOSTILE
    with visit(browser, address) as other:
        open_link(other, target)
        other.wait_for_function("window.specdec.verdicts >= 1")
        assert other.evaluate(SHOWN)["prompt"] == HOSTILE
        other.set_input_files("#sd-open", path)
        other.wait_for_function("window.specdec.verdicts >= 2")
        assert other.evaluate(SHOWN)["prompt"] == HOSTILE
        other.wait_for_function("(text) => document.querySelector('#sd-prompt textarea').value === text", arg=HOSTILE)
        ask(other, long, tokens=4)
        run(other)
        assert other.evaluate(SHOWN)["prompt"] == long
        for width in (1440, 390):
            resize(other, width, 900)
            assert other.evaluate("document.documentElement.scrollWidth") <= width
        for view in (page, other):
            assert view.evaluate("window.bitten") is None
            assert view.locator(".sd-live img, .sd-live script, #sd-share img").count() == 0


def test_a_visitor_saves_a_race_as_a_page(page, browser, tmp_path):
    """A recorded race opens with one click. The saved page shows it without the server that made it."""
    from browser.test_static import alone

    page.click(".sd-chip:has-text('SmolLM2')")
    page.wait_for_function("window.specdec.origin === 'gallery'")
    sentence = page.inner_text(".sd-headline")
    assert "7.5 times as fast" in sentence
    assert "This result: smollm2-135m-instruct" in page.inner_text(".sd-verdictOrigin")
    share(page)
    with page.expect_download() as saved:
        page.click("text=Save as a web page")
    saved.value.save_as(tmp_path / "saved.html")
    with alone(browser, (tmp_path / "saved.html").as_uri()) as other:
        other.wait_for_function("() => window.specdec.verdicts === 1")
        assert other.inner_text(".sd-headline") == sentence
        told = other.locator("meta[name=description]").get_attribute("content")
        assert told.startswith(sentence.removesuffix(".")) and told.endswith("times 3.30x from speculation.")
