"""The page as a Space shows it: a fixed list of pairs, caps, and links that name the Space."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from browser.conftest import ask, go_to, launch, open_page, quick_self_test, run, text, unfold, visit
from specdec.ui.jobs import startup
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.page import build
from specdec.ui.server.launch import serve
from specdec.ui.tabs import lossless

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def address(slot) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACE_ID", "someone/specdec")
        demo, address = launch(slot, PUBLIC)
    yield address
    demo.close()


def test_the_pair_is_fixed_and_limits_are_sentences(page):
    """The way to another pair is shown. What is above a limit is refused by name, everywhere, and the page works on."""
    ask(page, tokens=257)
    run(page)
    assert "New tokens is 257; this page allows at most 256. Nothing ran." in text(page, "#sd-said .sd-error")
    ask(page, "word " * 600, tokens=8)
    run(page)
    assert "this public page takes at most 512 tokens. Nothing ran." in text(page, "#sd-said .sd-error")
    page.click('button[role=tab]:has-text("Best gamma")')
    page.click("#sd-gamma-whatif button.label-wrap")
    for name in ("gamma", "whatif"):
        page.click(f"#sd-{name}-start")
        page.wait_for_selector(f"#sd-{name}-status .sd-error:has-text('takes at most 512 tokens. Nothing ran.')")
    page.click('button[role=tab]:has-text("Race")')
    ask(page, "Once upon a time")
    run(page)
    assert not page.locator("#sd-said .sd-error").is_visible()
    unfold(page, "#sd-change")
    assert "python app.py --target" in text(page, "#sd-own")
    assert page.locator("#sd-own a").get_attribute("href") == (
        "https://huggingface.co/spaces/someone/specdec?duplicate=true"
    )
    assert not page.locator("#sd-load").count()


@pytest.mark.full
def test_pairs_of_the_list_can_be_allowed(browser, slot):
    demo, address = launch(slot, replace(PUBLIC, pairs="listed"))
    try:
        with visit(browser, address) as page:
            open_page(page, address)
            unfold(page, "#sd-change")
            page.click("#sd-preset input")
            page.wait_for_selector("[role=option]")
            names = page.locator("[role=option]").all_inner_texts()
            assert len(names) > 1 and not any("Another pair" in name for name in names)
    finally:
        demo.close()


@pytest.mark.full
def test_a_recording_stands_in_for_the_start_up_race_until_that_is_over(browser, slot, monkeypatch):
    release, whole = threading.Event(), startup.stream

    def held(*args, **settings):
        release.wait(60)
        yield from whole(*args, **settings)

    monkeypatch.setattr(startup, "stream", held)
    page = build(slot, PUBLIC)
    address = serve(page, quiet=True)
    try:
        with visit(browser, address) as visitor:
            open_page(visitor, address, greeting="recording")
            assert "A recording, not measured here" in text(visitor, "#sd-live")
            release.set()
            visitor.wait_for_function(
                "document.querySelector('#sd-live').textContent.includes('Measured on this machine at start-up')"
            )
    finally:
        release.set()
        page.close()


@pytest.mark.full
def test_a_recording_greets_where_the_device_is_lent(browser, slot):
    """The recording is labelled as one, and the visitor's own race replaces it."""
    demo, address = launch(slot, PUBLIC, lambda task: task.run(slot.pair))
    try:
        with visit(browser, address) as page:
            open_page(page, address, greeting="recording")
            assert "A recording, not measured here \u00b7 " in text(page, "#sd-live")
            ask(page, tokens=8)
            run(page)
            assert "Measured on this machine · 1 run" in text(page, "#sd-live").replace("\u00a0", " ")
            assert "A recording" not in text(page, "#sd-live")
    finally:
        demo.close()


@pytest.mark.full
def test_a_full_queue_is_reported_and_run_is_back(browser, slot):
    """When the queue is full, the page and its tabs say so and change nothing.

    The refused job is not counted as waiting.
    """
    demo, address = launch(slot, replace(PUBLIC, waiting=0))
    try:
        with visit(browser, address) as page, visit(browser, address) as other:
            for each in (page, other):
                open_page(each, address)
                each.click("#sd-run")
                each.wait_for_selector("#sd-said .sd-error:has-text('The queue is full')")
                each.wait_for_selector("#sd-run")
                assert not each.locator("#sd-stop").is_visible()
                assert "ahead" not in text(each, "#sd-waiting")
            go_to(page, "Lossless?")
            page.click("#sd-lossless-start")
            page.wait_for_selector("#sd-lossless-status .sd-error:has-text('The queue is full')")
            page.wait_for_selector("#sd-lossless-start")
    finally:
        demo.close()


@pytest.mark.full
def test_a_test_of_losslessness_ends_in_the_page_s_time(page, monkeypatch):
    """The page sets a time limit. When it is reached, the samples drawn so far are compared."""
    limits = quick_self_test(monkeypatch, seconds=0.0)
    go_to(page, "Lossless?")
    page.click("#sd-lossless-start")
    caption = "#sd-lossless-table caption:has-text('50 continuations of 4 tokens')"
    page.wait_for_selector(caption, state="attached")
    assert limits == [(lossless.DRAWS_PUBLIC, PUBLIC.seconds)] and PUBLIC.seconds


@pytest.mark.full
def test_links_name_the_space_and_work_here(page, browser, address):
    """A link names the Space's public address, and its fragment restores the run on this page."""
    ask(page, "Once upon a time", tokens=12)
    run(page)
    page.click(".sd-shareButton")
    field = page.locator('[aria-label="Link to this run"]')
    page.wait_for_function("(field) => field.value !== ''", arg=field.element_handle())
    home, fragment = field.input_value().split("#")
    assert home == "https://huggingface.co/spaces/someone/specdec"
    with visit(browser, address) as other:
        open_page(other, f"{address}#{fragment}", greeting="link")
        assert "From a link, not measured here" in text(other, ".sd-verdictOrigin")
