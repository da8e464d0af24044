"""Screenshots of the page to look at: light and dark, wide and phone, at start, running and finished.

``python tests/browser/screenshots.py FOLDER``
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
from conftest import CHROMIUM, FLAGS, WAIT, launch, load_page_slot, open_page  # noqa: E402

WIDTHS = {1440: 900, 390: 844}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    demo, address = launch(load_page_slot())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for theme in ("light", "dark"):
            for width, height in WIDTHS.items():
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
                page = context.new_page()
                page.set_default_timeout(WAIT)
                name = f"{theme}-{width}"
                open_page(page, address, f"?__theme={theme}")
                page.wait_for_function("document.querySelector('.sd-chart .main-svg')")
                page.screenshot(path=folder / f"{name}-start.png", full_page=True)
                page.click("#sd-run")
                page.wait_for_function("window.specdec.lanesFinished >= 3 && window.specdec.lanesStarted >= 4")
                page.screenshot(path=folder / f"{name}-running.png", full_page=True)
                page.wait_for_function("window.specdec.verdicts === 2")
                page.screenshot(path=folder / f"{name}-finished.png", full_page=True)
                page.check("#sd-misses")
                page.screenshot(path=folder / f"{name}-misses.png", full_page=True)
                context.close()
        browser.close()
    demo.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
