"""What a visitor meets on the page, in a real browser, on a pair that really runs."""

from __future__ import annotations

import json
import re

import pytest

from browser.conftest import ask, edit, notes, open_page, run, skip, text, unfold, visit
from specdec.measure.prompts import EXAMPLES, PET_SCHEMA

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def motion() -> str:
    return "no-preference"


ENDLESS = "class Stack:\n    def __init__(self):\n        self.items = []"  # 2,048 tokens and no end of text


# Counts the parts of the page's config that the frontend makes reactive.
COUNTED = """
const Real = window.Proxy;
window.reactive_ = 0;
window.Proxy = new Real(Real, {
  construct(real, [target, traps]) {
    const { components = [], dependencies = [], page = {} } = window.gradio_config ?? {};
    const layouts = Object.values(page).map(({ layout }) => layout);
    window.reactive_ += [components, dependencies, layouts].some((list) => list.includes(target));
    return new real(target, traps);
  },
});
"""


def count(page, name: str) -> int:
    return page.evaluate(f"window.specdec.{name}")


def test_the_page_is_never_empty_and_asks_nothing_of_other_hosts(page, outside):
    """The page opens with a measured race and its origin, and its chart follows the theme.

    An example runs at a click. After a change of the settings the page says that they have not run, and runs them.
    """
    assert "Measured on this machine at start-up" in notes(page)
    assert len(page.locator(".sd-figures dd").all()) == 4
    line = page.locator(".sd-chart .sd-line.speculative")
    assert line.evaluate("(node) => getComputedStyle(node).stroke") == "rgb(29, 95, 184)"
    page.evaluate("document.body.classList.add('dark')")
    stroke = "getComputedStyle(document.querySelector('.sd-chart .sd-line.speculative')).stroke"
    page.wait_for_function(f"{stroke} === 'rgb(108, 176, 247)'")  # it may be drawn anew
    examples = map(json.loads, EXAMPLES.read_text().splitlines())
    example = next(example for example in examples if "\n" in example["prompt"])
    page.click(f".sd-chip >> text={example['name']}")
    page.wait_for_function(
        "(text) => document.querySelector('#sd-prompt textarea').value === text", arg=example["prompt"]
    )
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    assert text(page, ".sd-caption").endswith("\u00b7 \u03b3 5, 32 new tokens, greedy")
    assert not page.locator(".sd-changed").is_visible()
    ask(page, tokens=12)
    page.click(".sd-changed button")
    page.wait_for_function("window.specdec.verdicts === 3 && !window.specdec.running")
    assert "12 new tokens" in text(page, ".sd-caption") and not page.locator(".sd-changed").is_visible()
    assert outside == []


def test_the_example_of_json_obeys_its_schema_and_shows_what_was_forced(page, outside):
    """The form has the schema, the line above says so, and the next example has none."""
    schema = json.loads(PET_SCHEMA.read_text())
    ask(page, tokens=64)
    page.click(".sd-chip >> text=JSON")
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    skip(page)
    written = page.evaluate(
        "[...document.querySelectorAll('.sd-box.speculative .sd-token:not(.rejected, .discarded)')]"
        ".map((mark) => mark.textContent).join('')"
    )
    found = json.loads(written.removesuffix("<|endoftext|>"))
    assert found.keys() == schema["properties"].keys() and found["animal"] in schema["properties"]["animal"]["enum"]
    assert text(page, ".sd-caption").endswith("greedy, a JSON schema")
    assert text(page, ".sd-lineSettings").endswith("greedy \u00b7 JSON schema")
    assert not page.locator(".sd-changed").is_visible()
    page.wait_for_function("document.querySelector('.sd-verdict').textContent.includes('only one token was allowed')")
    page.locator(".sd-cardHead input[type=range]").evaluate(
        "(slider) => { slider.value = '1'; slider.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    page.wait_for_function("document.querySelector('.sd-steps').textContent.includes('Forced by the grammar')")
    edit(page)
    assert page.locator("#sd-grammar-text textarea").is_visible()
    page.fill("#sd-grammar-text textarea", '{"type": "what"}')
    page.wait_for_function("document.querySelector('.sd-changed').checkVisibility()")
    run(page)
    assert "cannot be read as a JSON schema" in text(page, ".sd-error")
    page.click(".sd-chip >> text=Story")
    page.wait_for_function("window.specdec.verdicts === 3 && !window.specdec.running")
    assert "schema" not in text(page, ".sd-caption") + text(page, ".sd-lineSettings")
    assert not page.locator("#sd-grammar-text textarea").is_visible()
    assert page.locator("#sd-grammar-text textarea").input_value() == '{"type": "what"}', "what was typed is kept"
    assert outside == []


def test_a_race_shows_its_lanes_and_a_verdict(page, outside):
    """After Run the lanes end, figures appear, the greedy texts are equal, and the chart has a description in words."""
    before = {name: count(page, name) for name in ("lanesFinished", "rounds")}
    ask(page, "One day, a dog and a cat went to the park. They saw a", tokens=40)
    run(page)
    assert count(page, "lanesFinished") == before["lanesFinished"] + 3
    assert count(page, "rounds") > before["rounds"]
    assert "Measured on this machine · 1 run" in notes(page)
    assert re.search(r"times as fast|the speed of|Slower|No clear (difference|figure)", text(page, ".sd-headline"))
    figures = page.locator(".sd-figures dd").all_inner_texts()
    assert all(re.fullmatch(r"[\d.]+x", share) for share in figures[:2])
    assert re.fullmatch(r"(\d+) of \1", figures[3]), "greedy texts differ"
    texts = page.evaluate(
        "[...document.querySelectorAll('.sd-box .sd-ribbon')].map((ribbon) => [...ribbon.querySelectorAll("
        "'.sd-token:not(.rejected, .discarded)')].map((mark) => mark.textContent).join(''))"
    )
    assert texts[0] == texts[1] != ""
    folds = page.locator("details:has(> .sd-ribbon)").all()
    assert len(folds) == 1 and folds[0].get_attribute("open") is None, "our loop's text"
    assert text(page, ".sd-headline").removesuffix(".") in page.locator(".sd-chart .sd-plot").get_attribute(
        "aria-label"
    )
    assert page.locator("#sd-run").is_visible() and not page.locator("#sd-stop").is_visible()
    assert outside == []


def test_stop_ends_a_race_midway(page, unhurried):
    """Run becomes Stop in the same place; Stop keeps the text, says where it stopped, and the next race runs."""
    ask(page, ENDLESS, tokens=2048)
    place = page.locator("#sd-run").bounding_box()
    lanes = count(page, "lanesFinished")
    page.click("#sd-run")
    page.wait_for_function(f"window.specdec.lanesStarted > {lanes}")
    assert page.locator("#sd-stop").bounding_box() == place
    page.click("#sd-stop")
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    assert count(page, "lanesFinished") < lanes + 3
    assert re.search(r"Stopped at \d+ of 2,?048", text(page, ".sd-verdict"))
    assert page.locator(".sd-box.generate .sd-ribbon").inner_text() != ""
    ask(page, tokens=8)
    run(page)
    assert "Stopped" not in text(page, ".sd-verdict")


def test_a_refusal_is_a_sentence_and_keeps_the_last_result(page):
    """An empty prompt is refused in words above the verdict; the prompt field and the old result stay.

    A number outside its range is refused by name, not changed to the nearest allowed value.
    """
    parts = (".sd-headline", ".sd-caption", ".sd-verdictOrigin", ".sd-shares", ".sd-figures:not(.sd-shares)")
    verdict = [text(page, part) for part in parts]
    ask(page, "")
    run(page)
    assert page.locator(".sd-error").is_visible()
    assert "prompt" in text(page, ".sd-error").lower()
    assert [text(page, part) for part in parts] == verdict
    assert page.locator(".sd-live.stale").count() == 0
    ask(page, "Once upon a time", tokens=8)
    unfold(page, "#sd-more")
    page.fill("#sd-more label:has-text('Top-p') input", "2")
    run(page)
    assert "Top-p is 2" in text(page, ".sd-error")
    page.fill("#sd-more label:has-text('Top-p') input", "1")
    run(page)
    assert not page.locator(".sd-error").is_visible()
    edit(page)
    for field, typed, said, good in (
        ("gamma", "40", "Draft length γ is 40; give 0 to 16", "5"),
        ("gamma", "", "Draft length γ is empty", "5"),
        ("tokens", "2.5", "New tokens is 2.5; give a whole number", "8"),
        ("tokens", "", "New tokens is empty", "8"),
        ("temperature", "-1", "Temperature is -1", "0"),
    ):
        number = page.locator(f"#sd-{field} input[type=number]")
        number.fill(typed)
        number.blur()
        run(page)
        assert said in text(page, "#sd-said .sd-error")
        assert number.input_value() == typed
        number.fill(good)
        number.blur()


def test_words_of_the_first_screen_explain_themselves(page) -> None:
    """A resting pointer, the focus and a click show the meaning, to a screen reader too; Escape hides it."""
    meaning = page.locator(".sd-meaning")
    for selector, words in (
        (".sd-pair .sd-word", "A pair is a target and a draft."),
        ("#sd-line .sd-lineLength", "how many tokens the draft guesses"),
        (".sd-box.generate .sd-word", "one pass for each token"),
        (".sd-stripRow.speculative-0 .sd-word", "does not come from speculation"),
        (".sd-key.rejected .sd-word", "that the target did not keep"),
        (".sd-key.discarded .sd-word", "thrown away"),
    ):
        page.hover(selector)
        page.wait_for_selector(f".sd-meaning:has-text('{words}')")
        box = meaning.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1440
        assert page.get_attribute(selector, "aria-describedby") == meaning.get_attribute("id")
        page.hover(".sd-headline")
        page.wait_for_selector(".sd-meaning", state="hidden")
    page.focus(".sd-box.speculative .sd-word")
    page.wait_for_selector(".sd-meaning:has-text('one pass of the target checks them all')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".sd-meaning", state="hidden")


@pytest.mark.full
def test_gradio_reads_the_config_as_plain_data(browser, address) -> None:
    """Its frontend takes longer for a reactive one (``gradio_config.js``). Another version may make it reactive."""
    with visit(browser, address) as page:
        session = page.context.new_cdp_session(page)
        session.send("Page.enable")
        session.send("Page.addScriptToEvaluateOnNewDocument", {"source": COUNTED})
        open_page(page, address)
        found = page.evaluate("[window.reactive_, window.gradio_config.dependencies.length > 0]")
        session.detach()  # with its script
    assert found == [0, True]
