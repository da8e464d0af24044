"""Measures how fast the page loads: ``python -m benchmarks.page_load``. Needs Chromium.

Visits have an empty cache. Prints the seconds until the first paint and until the race is shown or moves, the longest
task of the first ten seconds, and the transferred bytes. All are medians over the visits (lowest-highest).
"""

from __future__ import annotations

import time
from statistics import median

from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS, launch, load_page_slot

VISITS = 7
SECONDS = 10_000  # milliseconds that a visit lasts
WATCH = """
window.seen_ = { longest: 0, shown: null, moved: null };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.seen_.longest = Math.max(window.seen_.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
const look = () => {
  const state = window.specdec;
  if (state?.verdicts && window.seen_.shown === null) window.seen_.shown = performance.now();
  if (state?.replaying && window.seen_.moved === null) window.seen_.moved = performance.now();
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def visit(browser, address: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    received = [0]
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on(
        "Network.loadingFinished", lambda event: received.__setitem__(0, received[0] + event["encodedDataLength"])
    )
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_timeout(SECONDS)
    seen = page.evaluate("window.seen_")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    context.close()
    seconds = {"first paint, s": paint / 1e3, "race on show, s": (seen["shown"] or float("nan")) / 1e3}
    if seen["moved"] is not None:
        seconds["replay moves, s"] = seen["moved"] / 1e3
    return seconds | {"longest task, ms": seen["longest"], "over the wire, MB": received[0] / 1e6}


def main() -> None:
    demo, address = launch(load_page_slot())
    time.sleep(20)  # the start-up race is over
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        visit(browser, address)
        found = [visit(browser, address) for _ in range(VISITS)]
        browser.close()
    demo.close()
    for name in found[0]:
        values = [one[name] for one in found if name in one]
        print(f"{name}: {median(values):.2f} ({min(values):.2f}-{max(values):.2f})")


if __name__ == "__main__":
    main()
