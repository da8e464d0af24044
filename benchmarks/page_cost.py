"""Measures what the page costs the race that it shows: ``python -m benchmarks.page_cost``. Needs Chromium.

Prints
1. for a race run in turns with and without a browser, tokens/s of each lane and the speed-up, page / headless: the
   ratio of the medians, and the median of the turns' own ratios (lowest-highest);
2. for a race of 2,000 tokens, the longest gap between two frames after its first second;
3. for twenty races, the size of the browser's heap after each, with garbage collected.
"""

from __future__ import annotations

import json
import threading
from statistics import median

from playwright.sync_api import sync_playwright

from specdec.events import Round, SamplingParams, Started
from specdec.measure.metrics import compute_metrics, speedup
from specdec.report import recording
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import LOCAL
from specdec.ui.jobs.race_settings import RaceSettings
from specdec.ui.jobs.race_stream import RaceStep, stream
from specdec.ui.tabs import race as race_tab
from tests.browser.conftest import CHROMIUM, FLAGS, SKIP, ask, launch, load_page_slot, open_page, run, unfold

PROMPT = "Once upon a time, there was a little girl named Lily. She had a small dog that"
TURNS, TOKENS, RUNS, LONG = 25, 128, 20, 2000
WATCH = """() => { window.frames_ = []; const began = performance.now(); let before = began;
    const tick = (now) => { window.frames_.push([now - began, now - before]); before = now;
        if (!window.framesDone) requestAnimationFrame(tick); };
    window.framesDone = false; requestAnimationFrame(tick); }"""


def figures(text: str) -> dict[str, float]:
    """Tokens/s of each lane and the speed-up, from a race's lines."""
    lanes: dict[str, list] = {}
    for event in recording.read_recording(text.splitlines()):
        if isinstance(event, Started):
            lanes[event.lane] = []
        lanes[next(reversed(lanes))].append(event)
    measured = {lane: compute_metrics(events) for lane, events in lanes.items()}
    rates = {lane: m.tokens_per_second for lane, m in measured.items()}
    return rates | {"speed-up": speedup(measured["generate"], measured["speculative"])}


def main() -> None:
    last = [RaceStep("")]

    def kept(*arguments, **settings):
        for last[0] in stream(*arguments, **settings):
            yield last[0]

    race_tab.stream = kept
    slot = load_page_slot()
    demo, address = launch(slot)
    params = SamplingParams(max_new_tokens=TOKENS, ignore_eos=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, "--enable-precise-memory-info"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(600_000)
        open_page(page, address)
        ask(page, PROMPT, tokens=TOKENS)
        unfold(page, "#sd-more")
        page.check("#sd-ignore input")
        headless, shown = [], []

        def without() -> None:
            turn = JobContext(slot, lambda task: task.run(slot.pair), threading.Event())
            *_, (text, _) = stream(turn, RaceSettings(PROMPT, params=params), limits=LOCAL)
            headless.append(figures(text))

        def within() -> None:
            run(page)
            shown.append(figures(last[0].text))

        for turn in range(TURNS):
            for race in (without, within) if turn % 2 else (within, without):
                race()
        for name in headless[0]:
            ratios = sorted(one[name] / other[name] for one, other in zip(shown, headless, strict=True))
            middle = median(one[name] for one in shown) / median(one[name] for one in headless)
            print(
                f"{name}: page / headless, medians of {TURNS}: {middle:.3f}; turn by turn {median(ratios):.3f} "
                f"({ratios[0]:.3f}-{ratios[-1]:.3f})",
                flush=True,
            )

        ask(page, tokens=LONG)
        page.evaluate(WATCH)
        page.click("#sd-run")
        page.wait_for_function("window.specdec.verdicts > 8 && !window.specdec.running")
        gaps = [gap for at, gap in page.evaluate("(window.framesDone = true, window.frames_)") if at > 1000]
        rounds = sum(isinstance(event, Round) for event in recording.read_recording(last[0].text.splitlines()))
        print(f"{LONG} tokens, {rounds} rounds: longest frame gap {max(gaps):.0f} ms, median {median(gaps):.0f} ms")
        page.click(SKIP)

        ask(page, tokens=TOKENS)
        session = page.context.new_cdp_session(page)
        heap = []
        for _ in range(RUNS):
            run(page)
            session.send("HeapProfiler.collectGarbage")
            heap.append(session.send("Runtime.getHeapUsage")["usedSize"] / 1e6)
        print(f"heap after each of {RUNS} races, MB: {json.dumps([round(size, 1) for size in heap])}")
        browser.close()
    demo.close()


if __name__ == "__main__":
    main()
