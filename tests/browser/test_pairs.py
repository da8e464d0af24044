"""Another pair, another draft method, and chat. These tests change the loaded pair, so they have their own page."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import specdec
from browser.conftest import ask, edit, launch, load_page_slot, notes, open_page, run, settle, unfold, visit
from browser.test_share import SHOWN, share

sys.path.insert(0, str(Path(__file__).parents[1]))
from fakes import byte_tokenizer, tiny  # noqa: E402

pytestmark = pytest.mark.xdist_group("browser")
ROOT = Path(specdec.__file__).parent.parent
FIELDS = ("#sd-preset input", "#sd-target input", "#sd-draft input")


@pytest.fixture(scope="module")
def address(browser) -> Iterator[str]:
    demo, address = launch(load_page_slot())
    yield address
    demo.close()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A tiny chat model, its draft, and a target without a template."""
    root = tmp_path_factory.mktemp("models")
    for name, layers in (("chatty", 2), ("small", 1), ("base", 2), ("third", 2)):
        tiny("llama", 1, layers=layers, context=512).save_pretrained(root / name)
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}" if name == "chatty" else None
        tokenizer.save_pretrained(root / name)
        tokenizer.chat_template = None
    return root


def choose(page, target: Path | str, draft: Path | str) -> None:
    if not page.locator("#sd-preset").is_visible():
        unfold(page, "#sd-change")
    pick(page, "Another pair")
    page.fill("#sd-target input", str(target))
    page.fill("#sd-draft input", str(draft))


def pick(page, name: str) -> None:
    page.click("#sd-preset input")
    page.click(f'[role=option]:has-text("{name}")')


def method(page, name: str) -> None:
    """Choose a way to draft, of all if it is not among the usual ones."""
    way = page.locator(f'#sd-method label:has-text("{name}")')
    if not way.is_visible():
        page.click("#sd-methods-all button")
    way.click()


def report(page, pattern: str) -> str:
    """Wait until the panel shows this text."""
    page.wait_for_function(
        "(pattern) => new RegExp(pattern).test(document.querySelector('#sd-report').innerText)", arg=pattern
    )
    return page.locator("#sd-report").inner_text()


def test_a_pair_is_checked_loaded_and_raced(page, shelf, outside, browser, address):
    """Check says what to expect without loading anything. Load replaces the pair, and offers chat if the model has it.

    A page that was already open names the new pair as soon as somebody comes back to it.
    """
    before = page.locator(".sd-pair").inner_text()
    choose(page, shelf / "chatty", shelf / "small")
    page.click("#sd-check")
    found = report(page, "Tokenizer")
    for topic in ("Vocabulary", "Context", "Cost", "Memory", "Cache", "Chat"):
        assert topic in found
    assert page.locator(".sd-pair").inner_text() == before
    with visit(browser, address) as other:
        open_page(other, address)
        page.click("#sd-load")
        report(page, "Loaded: ")
        other.evaluate("window.dispatchEvent(new Event('focus'))")
        other.wait_for_selector(".sd-pair:has-text('chatty')")
        other.wait_for_selector(".sd-verdictOrigin:has-text('Loaded now: chatty')")
        other.wait_for_function("document.querySelector('#sd-chat input').checked")
        ask(other, "Hello", tokens=8)
        run(other)
        other.wait_for_function("!document.querySelector('.sd-verdictOrigin').innerText.includes('Loaded:')")
    assert "chatty" in page.locator(".sd-pair").inner_text()
    assert page.locator("#sd-chat input").is_checked()
    ask(page, "Hello", tokens=24)
    run(page)
    assert page.locator(".sd-promptText").first.evaluate("(node) => node.textContent") == "[Hello]"
    assert outside == []


@pytest.mark.full
def test_a_run_says_what_it_was_made_with_and_what_is_loaded_now(page, shelf, browser, address):
    """A run names its own pair once another one is loaded.

    A run on a pair loaded by another visitor has no such note, and no text of it is shown under the old name.
    """
    assert "This result:" not in page.locator(".sd-verdictOrigin").inner_text()
    page.wait_for_function("document.querySelector('.sd-pair span').textContent === window.specdec.pair")
    first, notes = page.locator(".sd-pair span").inner_text(), page.locator(".sd-verdictOrigin")
    with visit(browser, address) as other:
        open_page(other, address)
        for target in ("base", "third"):
            made = page.locator(".sd-pair span").inner_text()
            choose(page, shelf / target, shelf / "small")
            page.click("#sd-load")
            page.wait_for_selector(f".sd-verdictOrigin:has-text('Loaded now: {target}')")
            assert f"This result: {first}." in notes.inner_text()
            assert made == first or made.startswith("base")
        ask(other, "Hello", tokens=8)
        if other.locator("#sd-chat input").is_checked():  # an earlier pair had a chat template, and this one has none
            other.uncheck("#sd-chat input")
        other.evaluate("""() => { window.seen = [];
            const before = window.specdec.lanesStarted;
            new MutationObserver(() => window.specdec.lanesStarted > before
                && window.seen.push(document.querySelector('.sd-verdictOrigin').innerText))
                .observe(document.querySelector('.sd-verdictOrigin'), { childList: true, subtree: true });
            window.named = new Set();
            const look = () => {
                if (window.specdec.lanesStarted > before)
                    window.named.add(document.querySelector('.sd-pair span').textContent.split(' ')[0]);
                requestAnimationFrame(look);
            };
            look(); }""")
        run(other)
        assert other.evaluate("[...window.named]") == ["third"]
        seen = other.evaluate("window.seen")
        assert seen and not any("This result:" in words for words in seen)
    assert page.locator("#sd-chat input").is_disabled()
    assert "no chat template" in page.locator("#sd-chat").inner_text()


def test_a_pair_that_cannot_be_had_leaves_the_old_one(page, shelf):
    """A pair that cannot be loaded gives one clear sentence, and the loaded pair stays."""
    before = page.locator(".sd-pair").inner_text()
    choose(page, shelf / "nowhere", shelf / "small")
    page.click("#sd-load")
    assert "Still loaded" in report(page, "no folder")
    assert page.locator(".sd-pair").inner_text() == before
    ask(page, tokens=12)
    run(page)
    assert not page.locator("#sd-said .sd-error").is_visible()


def typed(page) -> list[str]:
    """The texts in the fields that name a pair; of those that are there."""
    return [page.input_value(field) for field in FIELDS if page.locator(field).count()]


@pytest.mark.full
def test_what_is_typed_into_the_pair_panel_stays(page):
    """A pair may be typed into the field of the list, and Load reads it at once.

    Neither another choice of the list, another method, the key Enter, nor a reload takes a text away.
    """
    unfold(page, "#sd-change")
    page.click("#sd-preset input")
    page.keyboard.press("Control+A")
    page.keyboard.type("/nowhere/big <- /nowhere/small")
    page.click("#sd-load")
    report(page, "There is no folder '/nowhere/big'")
    assert typed(page) == ["/nowhere/big <- /nowhere/small"]
    pick(page, "Another pair")
    page.fill("#sd-target input", "/nowhere/mine")
    page.fill("#sd-draft input", "/nowhere/other")
    method(page, "Early exit")
    page.wait_for_selector("#sd-draft input[placeholder='early-exit:3']")
    method(page, "Draft model")
    pick(page, "embedded")
    page.wait_for_selector("#sd-target", state="detached")
    pick(page, "Another pair")
    page.press("#sd-target input", "Enter")
    report(page, "There is no folder '/nowhere/mine'")
    page.reload()
    page.wait_for_function("window.specdec && window.specdec.mounted")
    unfold(page, "#sd-change")
    page.wait_for_selector("#sd-target input")
    page.wait_for_selector("#sd-draft input")
    settle(page)
    assert typed(page) == ["Another pair", "/nowhere/mine", "/nowhere/other"]


@pytest.mark.full
def test_the_panel_shows_few_ways_to_draft_and_load_is_near(browser, address):
    """On a phone Load is in view at once, and again as soon as one of all ways is chosen, which then stays shown."""
    with visit(browser, address, viewport={"width": 390, "height": 844}) as page:
        open_page(page, address)
        unfold(page, "#sd-change")
        ways = page.locator("#sd-method label:visible")
        assert ways.count() == 4 and "The pair's own draft" in ways.first.inner_text()
        loads = "document.querySelector('#sd-load').getBoundingClientRect().bottom"
        assert page.evaluate(loads) < 844
        page.click("#sd-methods-all button")
        assert ways.count() == 11 and page.evaluate(loads) > 844
        ways.filter(has_text="Early exit").click()
        page.wait_for_function(f"{loads} < innerHeight && {loads} > 0")
        assert ways.count() == 5 and page.locator("#sd-method label:has-text('Early exit') input").is_checked()
        ways.filter(has_text="Prompt lookup").first.click()
        page.wait_for_selector("#sd-method label:has-text('Early exit')", state="hidden")


@pytest.mark.full
def test_drafting_without_a_second_model(page, monkeypatch):
    """The embedded target drafts for itself, as many tokens as pay, and the greedy text stays the same.

    The specdec and transformers code prints the text that the page shows. The other engines have none.
    """
    unfold(page, "#sd-change")
    pick(page, "embedded")
    method(page, "Early exit")
    page.click("#sd-load")
    report(page, "Loaded: ")
    edit(page)
    page.click('#sd-choice label:has-text("auto")')
    ask(page, 'He said "it\'s\\n done" and', tokens=24)  # after these comes a near tie
    run(page)
    assert re.fullmatch(r"(\d+) of \1", page.locator(".sd-figures dd").last.inner_text())
    assert re.search(r"auto: [\d.]+ guesses per round", notes(page))
    shown = page.evaluate(SHOWN)
    written = "".join(text for kind, text in shown["texts"][0] if not re.search("rejected|discarded", kind))
    share(page)
    blocks = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.sd-codeFold')].map((fold) => "
        "[fold.querySelector('summary').textContent, fold.querySelector('textarea').value]))"
    )
    monkeypatch.chdir(ROOT)
    for name in ("specdec", "transformers"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(blocks[name], name, "exec"), {})
        assert printed.getvalue() == written + "\n"
    for name in ("vLLM", "SGLang", "llama.cpp"):
        assert "no method of the kind early-exit" in blocks[name]
