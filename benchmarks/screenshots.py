"""Takes screenshots of every state of the page, light and dark, wide and phone.

``python -m benchmarks.screenshots FOLDER``; ``python -m benchmarks.screenshots docs --readme`` takes the three of
the README, and the page on a phone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from specdec.ui.static_page import ASSETS
from tests.browser.conftest import (
    CHROMIUM,
    FLAGS,
    WAIT,
    ask,
    edit,
    launch,
    load_page_slot,
    open_page,
    run,
    skip,
    unfold,
    visit,
)  # fmt: skip

WIDTHS = {1920: 1080, 1440: 900, 1280: 720, 1024: 768, 820: 1180, 390: 844}
FURTHER = ("assisted generation", "prompt lookup", "draft alone")
LONG = "class Stack:\n    def __init__(self):\n        self.items = []"


def shoot(browser, address: str, theme: str, width: int, folder: Path) -> None:
    settings = {"viewport": {"width": width, "height": WIDTHS[width]}, "color_scheme": theme}
    settings["reduced_motion"] = "no-preference"  # a race is replayed when it is shown
    with visit(browser, address, **settings) as page:

        def save(state: str, full: bool = False) -> None:
            page.screenshot(path=folder / f"{theme}-{width}-{state}.png", full_page=full)

        page.goto(f"{address}?__theme={theme}")
        page.wait_for_function("window.specdec?.replaying")
        page.wait_for_timeout(2000)
        save("arrival")
        open_page(page, address, f"?__theme={theme}")
        save("start", full=True)
        page.click("#sd-run")
        for step in range(8):
            page.wait_for_timeout(500)
            save(f"running-{step}")
        page.wait_for_function("!window.specdec.running")
        skip(page)
        save("finished")
        save("finished-page", full=True)
        page.hover(".sd-box.speculative .accepted >> nth=6")
        save("pointed")
        page.click(".sd-box.speculative .correction >> nth=1")
        page.wait_for_timeout(200)
        save("round")
        page.keyboard.press("Escape")
        page.evaluate("scrollTo(0, 0)")
        page.locator("#sd-line-gamma").fill("2")
        page.wait_for_selector(".sd-verdictOrigin:has-text('Computed')")
        save("dragged")
        page.locator("#sd-line-gamma").fill("5")
        page.wait_for_selector(".sd-verdictOrigin:has-text('on this machine')")
        page.click(".sd-shareButton")
        page.wait_for_function("document.querySelector('[aria-label=\"Link to this run\"]').value !== ''")
        save("share")
        link = page.locator('[aria-label="Link to this run"]').input_value()
        page.keyboard.press("Escape")
        for title in ("Why", "Details"):
            page.click(f"summary:has-text('{title}')")
        save("folds", full=True)
        page.evaluate("scrollTo(0, 0)")
        edit(page)
        save("form")
        unfold(page, "#sd-more")
        for lane in FURTHER:
            page.check(f'#sd-lanes label:has-text("{lane}") input')
        ask(page, tokens=64, temperature=1)
        run(page)
        page.click(".sd-box.speculative .correction >> nth=0")
        page.wait_for_timeout(200)
        save("sampled-round")
        page.keyboard.press("Escape")
        save("six-lanes-sampled", full=True)
        ask(page, "")
        page.click("#sd-run")
        page.wait_for_selector("#sd-said .sd-error:visible")
        save("error")
        for lane in FURTHER:
            page.uncheck(f'#sd-lanes label:has-text("{lane}") input')
        ask(page, LONG, tokens=200, temperature=0)
        started = page.evaluate("window.specdec.lanesStarted")
        page.click("#sd-run")
        page.wait_for_function(f"window.specdec.lanesStarted > {started + 1}")
        page.click("#sd-stop")
        page.wait_for_function("!window.specdec.running")
        save("stopped")
        for tab in ("best-gamma", "benchmark", "lossless"):
            page.evaluate(f"location.hash = 'tab={tab}'")
            page.wait_for_timeout(3000)
            save(tab)
            save(f"{tab}-page", full=True)
        page.evaluate("location.hash = 'tab=how-it-works'")
        for step in range(3):
            page.wait_for_timeout(3000)
            save(f"how-it-works-{step}")
        save("how-it-works-page", full=True)
        page.goto("about:blank")
        page.goto(link.replace("/#", f"/?__theme={theme}#"))
        page.wait_for_function("window.specdec?.verdicts === 1")
        page.wait_for_timeout(800)
        save("link")


def preview(page) -> None:
    """The picture that other sites show beside a link to the page: that of a recorded race."""
    page.click(".sd-chip:has-text('SmolLM2')")
    page.wait_for_function("window.specdec.origin === 'gallery'")
    page.click(".sd-shareButton")
    with page.expect_download() as picture:
        page.click("text=Download picture")
    picture.value.save_as(ASSETS / "preview.png")


def readme(browser, address: str, folder: Path) -> None:
    """The README's pictures: a race of five runs, one of its rounds, the recorded sweep, and the race on a phone."""
    with visit(browser, address, viewport={"width": 1440, "height": 900}) as page:
        open_page(page, address)
        preview(page)
    # A visitor of their own: a recording that was opened stays in the form.
    with visit(browser, address, viewport={"width": 1440, "height": 900}) as page:
        open_page(page, address)
        repeat(page)
        page.mouse.move(0, 0)
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=folder / "page-light.png")
        page.locator(".sd-card").screenshot(path=folder / "round.png")
        best_gamma(page, folder)
    phone = browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=2, color_scheme="dark"
    ).new_page()
    open_page(phone, address, "?__theme=dark")
    repeat(phone)
    phone.mouse.move(0, 0)  # no token is pointed at
    phone.evaluate("document.querySelector('.sd-verdict').scrollIntoView()")
    phone.wait_for_timeout(500)
    phone.screenshot(path=folder / "phone.png")
    phone.context.close()


def best_gamma(page, folder: Path) -> None:
    """The recorded sweep, which is that of an idle machine whenever the picture is taken."""
    page.click('button[role=tab]:has-text("Best gamma")')
    page.wait_for_selector("#sd-gamma-plot-3 .main-svg")
    page.wait_for_timeout(500)
    boxes = [page.locator(name).bounding_box() for name in ("#sd-gamma-verdict", "#sd-gamma-plot-3")]
    top, bottom = boxes[0]["y"], boxes[1]["y"] + boxes[1]["height"]
    scrolled = page.evaluate("window.scrollY")
    clip = {"x": boxes[0]["x"] - 20, "y": top + scrolled, "width": boxes[0]["width"] + 40, "height": bottom - top}
    page.screenshot(path=folder / "best-gamma.png", full_page=True, clip=clip)


def repeat(page) -> None:
    """Run the shown race five times, and wait for the end of the replay."""
    run(page)
    done = page.evaluate("window.specdec.verdicts")
    page.click("text=Repeat \u00d75")
    page.wait_for_function(f"window.specdec.verdicts > {done} && !window.specdec.running", timeout=10 * WAIT)
    skip(page)
    page.wait_for_timeout(500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="a theme and a width, for example dark-390")
    parser.add_argument("--readme", action="store_true", help="only the pictures of the README")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    demo, address = launch(load_page_slot())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        if arguments.readme:
            readme(browser, address, arguments.folder)
        else:
            for theme in ("light", "dark"):
                for width in WIDTHS:
                    if arguments.only not in (None, f"{theme}-{width}"):
                        continue
                    shoot(browser, address, theme, width, arguments.folder)
        browser.close()
    demo.close()


if __name__ == "__main__":
    main()
