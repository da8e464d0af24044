"""The race as one view: it plays by itself, its parts are linked, and the draft length can be dragged."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest

from browser.conftest import DRAWN, ask, edit, notes, open_page, resize, run, settle, show_recording, skip, text, visit
from specdec.report.judge import Kind
from specdec.report.sentences import DOUBTS, HEADLINES, REASONS
from specdec.ui.jobs.recorded import recorded_race

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def motion() -> str:
    return "no-preference"


KINDS = """() => [...document.querySelectorAll('.sd-box.speculative .sd-round')].map((round) =>
    [...round.querySelectorAll('.sd-token:not(.rejected, .discarded)')].map((mark) => mark.classList[1]))"""


def drag(page, gamma: int) -> None:
    """Drag the draft length in the form's line."""
    page.locator("#sd-line-gamma").fill(str(gamma))


def inside(page, selector: str, width: int, height: int) -> bool:
    box = page.locator(selector).bounding_box()
    return box["x"] >= 0 and box["y"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height


# Whether an element is in the window whole.
WHOLE = """(selector) => {
    const { left, right, top, bottom } = document.querySelector(selector).getBoundingClientRect();
    return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
}"""

SIZES = ((1440, 900), (1280, 720), (390, 844), (720, 450))  # a desktop, a laptop, a phone, a desktop at 200 %


SAY = """async ([about, sentence]) => {
    const { conclude } = await import(new URL('specdec-assets/race/verdict.js', document.baseURI).href);
    const factor = document.querySelector('.sd-factor');
    factor.classList.toggle('about', about);
    factor.innerHTML = (about ? '<small>about</small>' : '') + '0.95x';
    conclude(document.querySelector('.sd-headline'), sentence);
}"""


NOTE = """async (words) => {
    const { noteLine } = await import(new URL('specdec-assets/race/verdict.js', document.baseURI).href);
    document.querySelector('.sd-verdictNotes').hidden = false;
    document.querySelector('.sd-verdictNote').replaceWith(noteLine(words));
}"""


LOW = 500  # pixels; a lower window begins both texts and shows them whole, so that they may go on below it


def require_texts_in_view(page, width: int, height: int, *what: object) -> None:
    assert inside(page, ".sd-verdict", width, height), (width, *what)
    for selector in (".sd-box.generate", ".sd-box.speculative"):
        if height < LOW:
            top = page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().top")
            assert top < height - 90, (selector, width, *what)
        else:
            assert inside(page, selector, width, height), (selector, width, *what)
    assert height >= LOW or page.evaluate(CUT_OFF) == [], what


@pytest.mark.full
def test_a_race_plays_in_view_by_itself(browser, address, motion):
    """The shown race plays once by itself. The verdict and both texts fit the window without scrolling.

    This also holds for the longest verdict, with a large figure. At 1440 x 900 it holds for larger text too.
    """
    figures = {name: "0.95" for name in ("times", "engine", "speculation")} | {"asked": "128", "written": "100"}
    figures |= {"subject": "speculative decoding", "Subject": "Speculative decoding", "stopped": "Stopped"}
    figures |= {
        "runs": " (median of 3 runs, 0.91\u20131.02x)",
        "lane": "speculative",
        "gave": "3 runs gave 0.91\u20131.02x",
    }
    figures |= {"plain": "plain generate", "loop": "our loop", "about": "about "}
    figures |= {"there": "", "Unguessed": "The other server does not speculate"}
    sentences = {kind: row.format_map(figures) for kind, row in HEADLINES.items() if kind is not Kind.TOO_EARLY}
    figures = {"c": "12.31", "v": "12.31", "rest": "12.31", "cost": "12.3", "tokens": "1.06", "most": "6", "gamma": "5"}
    figures |= {"alpha": "60\u00a0%", "needed": "86\u00a0%", "overhead": "60\u00a0%"}
    figures |= {"units": "tokens of plain generate", "rival": "plain generate"}
    figures |= {"A_guess": "A guess", "teller": "this lane"}
    reason = max((row.format_map(figures) for rows in REASONS.values() for row in rows), key=len)
    sentences[Kind.SLOWER] += f" {reason}"
    with visit(browser, address, reduced_motion=motion) as page:
        page.goto(address)
        page.wait_for_function("""() => {
            if (!window.specdec?.replaying) return false;
            window.moments_ ??= new Set();
            return moments_.add(document.querySelectorAll('.sd-box.speculative .sd-round:not(.later)').length).size > 2;
        }""")
        require_texts_in_view(page, 1440, 900)
        page.wait_for_function("!window.specdec.replaying")
        page.wait_for_timeout(500)
        assert not page.evaluate("window.specdec.replaying"), "it plays once"
        page.evaluate("document.querySelector('.sd-factor').hidden = false")
        page.evaluate(NOTE, max(DOUBTS.values(), key=len))
        for width, height in SIZES:
            resize(page, width, height)
            page.evaluate("scrollTo(0, 0)")
            require_texts_in_view(page, width, height)
            if width > 1000:
                assert inside(page, ".sd-strip", width, height) and inside(page, ".sd-replay", width, height)
            for kind, sentence in sentences.items():
                page.evaluate(SAY, [kind in (Kind.BUSY, Kind.NOISY), sentence])
                require_texts_in_view(page, width, height, sentence)
        resize(page, 1440, 900)
        page.evaluate("scrollTo(0, 0)")
        page.click(".sd-larger")
        for sentence in sentences.values():
            page.evaluate(SAY, [False, sentence])
            require_texts_in_view(page, 1440, 900, sentence)
            assert inside(page, ".sd-strip", 1440, 900), sentence


WIDE = """() => [...document.querySelectorAll('main *')]
    .filter((node) => !node.closest('svg, #sd-chips, .visually-hidden') && node.checkVisibility())
    .filter((node) => node.getBoundingClientRect().right > 391)
    .map((node) => node.tagName + '.' + node.className)"""


# The boxes whose text goes on below them.
CUT_OFF = """() => [...document.querySelectorAll('.sd-boxBody')].filter((body) => {
    const [text, box] = [body.firstElementChild, body].map((node) => node.getBoundingClientRect());
    return text.bottom > box.bottom + 1;
}).map((body) => body.innerText)"""


def require_no_sideways_scroll(page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(WIDE) == []


@pytest.mark.full
def test_a_phone_shows_the_recorded_texts_to_their_end(browser, address, tmp_path):
    with visit(browser, address, {"width": 390, "height": 844}) as page:
        open_page(page, address)
        show_recording(page, tmp_path, recorded_race())
        page.evaluate("document.querySelector('.sd-otherPair')?.remove()")  # as where its own pair is loaded
        assert page.evaluate(CUT_OFF) == []


@pytest.mark.full
def test_a_phone_moves_once_at_most_and_the_form_is_one_line(browser, address, motion):
    """From Run to the end of the replay the page moves at most once, and the form stays closed.

    Nothing is wider than the screen, and a chosen round opens below what was chosen.
    """
    with visit(browser, address, {"width": 390, "height": 844}, reduced_motion=motion) as page:
        open_page(page, address)
        require_no_sideways_scroll(page)
        prompt = page.locator(".sd-box.generate .sd-promptText")
        assert prompt.text_content().endswith(prompt.inner_text().strip()) and "Once" not in prompt.inner_text()
        boxes = [page.locator(selector).bounding_box() for selector in (".sd-result", "#sd-chips")]
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"], "the examples come after the race"
        ask(page, tokens=24)
        require_no_sideways_scroll(page)
        assert page.locator("#sd-ask").is_visible()
        page.evaluate("scrollTo(0, 0)")
        page.evaluate(DRAWN)
        page.evaluate("""() => { window.ends_ = 0; addEventListener('scrollend', () => (window.ends_ += 1)); }""")
        page.click("#sd-run")
        page.wait_for_function("window.specdec.replaying")
        assert not page.locator("#sd-ask").is_visible()
        for selector in (".sd-verdict", ".sd-box.generate", ".sd-box.speculative"):
            page.wait_for_function(WHOLE, arg=selector)  # the page scrolls smoothly
        skip(page)
        assert page.evaluate("window.ends_") <= 1
        assert not page.locator("#sd-ask").is_visible()
        require_no_sideways_scroll(page)
        for chosen, part in (
            (".sd-box.speculative .correction >> nth=1", ".sd-box.speculative"),
            (".sd-stripRow.near .sd-track-of", ".sd-strip"),
        ):
            page.click(chosen)
            card, box = page.locator(".sd-card").bounding_box(), page.locator(part).bounding_box()
            assert 0 <= card["y"] - (box["y"] + box["height"]) < 40
            assert card["x"] >= 0 and card["x"] + card["width"] <= 390
            page.click('.sd-card [aria-label="Close the round"]')
            assert page.locator(".sd-card.inflow").count() == 0
        page.click(".sd-box.speculative .correction >> nth=1")
        page.set_viewport_size({"width": 844, "height": 390})
        page.wait_for_selector(".sd-card:not(.inflow)")  # the card's place depends on what opened it


def test_what_is_pointed_at_lights_up_everywhere(page, tmp_path):
    """Pointing at a token marks it in the other text, and its pass, its step in the chart and its row in the card.

    Pointing at one of these marks the token.
    """
    show_recording(page, tmp_path, recorded_race())
    lit = ".sd-box.%s .lit"
    page.hover(".sd-box.speculative .accepted >> nth=6")
    assert page.locator(lit % "speculative").inner_text() == page.locator(lit % "generate").inner_text() != ""
    assert page.locator(".sd-stripLit:not(.current):visible").count() == 4
    assert page.locator(".sd-dot:not(.current)").is_visible()
    row = page.locator(".sd-verdicts tr.lit")
    assert (
        row.count() == 1
        and row.locator("td").nth(1).inner_text().strip("␣") in page.locator(lit % "speculative").inner_text()
    )
    assert "round" in text(page, ".sd-point")

    page.mouse.move(2, 2)
    assert page.locator(".lit").count() == 0 and not page.locator(".sd-point").is_visible()

    page.hover(".sd-stripRow.speculative .sd-track-of", position={"x": 60, "y": 5})
    assert page.locator(".sd-box.speculative .sd-round.lit").count() == 1
    assert page.locator(".sd-dot:not(.current)").is_visible()

    page.hover(".sd-chart .sd-plot", position={"x": 90, "y": 200})
    assert page.locator(".sd-stripLit:not(.current):visible").count() >= 1

    page.hover(".sd-verdicts tbody tr >> nth=0")
    assert page.locator(".sd-box.speculative .sd-token.lit").count() == 1
    assert page.locator(".sd-box.generate .lit").count() == 1


def test_a_round_opens_beside_what_was_chosen(page, tmp_path):
    """The card fits the window and closes with Escape. It hides neither the verdict nor the round in the strip."""
    show_recording(page, tmp_path, recorded_race())  # a round of a busy machine may be too long for this place
    token = page.locator(".sd-box.speculative .correction >> nth=1")
    token.click()
    size = page.viewport_size
    assert inside(page, ".sd-card.floating", size["width"], size["height"])
    card, verdict = page.locator(".sd-card").bounding_box(), page.locator(".sd-verdict").bounding_box()
    assert card["y"] >= verdict["y"] + verdict["height"]
    assert page.evaluate(COVERED, ".sd-stripRow.near .sd-stripLit.current") == []
    page.keyboard.press("Escape")
    assert page.locator(".sd-card.floating").count() == 0, "wherever the focus is"
    token.click()
    page.click('.sd-card [aria-label="Next round"]')
    page.keyboard.press("Escape")
    assert page.locator(".sd-card.floating").count() == 0
    ribbon = page.locator(".sd-box.speculative .sd-ribbon")
    ribbon.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert inside(page, ".sd-card.floating", size["width"], size["height"])
    page.keyboard.press("Escape")
    assert page.locator(".sd-card.floating").count() == 0, "the keyboard still stands in the text"
    assert ribbon.evaluate("(one) => one === document.activeElement")
    page.click(".sd-chart .sd-plot", position={"x": 90, "y": 200})
    assert page.locator(".sd-card:not(.floating)").is_visible(), "it stands beside the chart anyway"


# The visible elements for a selector that the card covers, in part or whole.
COVERED = """(selector) => {
    const card = document.querySelector('.sd-card').getBoundingClientRect();
    const covered = (box) =>
        box.left < card.right && card.left < box.right && box.top < card.bottom && card.top < box.bottom;
    return [...document.querySelectorAll(selector)]
        .filter((node) => node.checkVisibility() && [...node.getClientRects()].some(covered))
        .map((node) => node.className + ' ' + node.textContent);
}"""

# The rounds whose card covers their own block in the strip, and in how many cases the card went into the flow.
OPENED = """(covered) => {
    const wrong = [];
    let inflow = 0;
    for (const round of document.querySelectorAll('.sd-box.speculative .sd-round')) {
        round.querySelector('.sd-token').click();
        wrong.push(...eval(covered)('.sd-stripRow.near .sd-stripLit.current'));
        inflow += document.querySelectorAll('.sd-card.inflow').length;
        document.querySelector('.sd-card [aria-label="Close the round"]').click();
    }
    return [wrong, inflow];
}"""

PARTS = [".sd-box", ".sd-key", ".sd-toggle", ".sd-stripRow", ".sd-replay", ".sd-stripFoot"]
RECTANGLES = """(parts) => parts.flatMap((part) => [...document.querySelectorAll(part)].map((node, at) => {
    const { left, right, top, bottom } = node.getBoundingClientRect();
    return [`${part} ${at}`, left, right, top, bottom];
}))"""

# Outlines that are in several pieces or wider than their box.
SPLIT = """() => [...document.querySelectorAll('.sd-box .sd-token:is(.bonus, .word:not(.long))')].filter((token) => {
    const parts = (token.querySelector('.sd-tokenLine') ?? token).getClientRects();
    const { left, right } = token.closest('.sd-boxBody').getBoundingClientRect();
    return parts.length !== 1 || parts[0].left < left || parts[0].right > right;
}).map((token) => token.className + ' ' + token.textContent)"""

# Width, height and pixels a length of the style; the last is 1440 x 900 at 200 %.
WINDOWS = (*((width, 900, 1) for width in (390, 680, 820, 1024, 1120, 1440)), (720, 450, 2))


def awkward_race() -> str:
    """The recorded race, where bonus tokens are a line end, an indented line, a long word, ideographs and a rule."""
    records = [json.loads(line) for line in recorded_race().splitlines()]
    bonus = dict.fromkeys(one["token_id"] for one in records if one.get("token_kind") == "bonus")
    words = ["\n", ":\n    ", " " + "word" * 9, "\u4e16\u754c" * 2, "-" * 70]
    texts = {str(token): word.encode().decode("latin-1") for token, word in zip(bonus, words, strict=False)}
    assert len(texts) == len(words)
    for record in records:
        for token in texts.keys() & record.get("tokens", {}).keys():
            record["tokens"][token] = texts[token]
    return "".join(json.dumps(record) + "\n" for record in records)


def slow_race(index: int, seconds: float) -> str:
    """The recorded race, in which that round of the speculative lane took so many seconds more."""
    records = [json.loads(line) for line in recorded_race().splitlines()]
    end = next(at for at, one in enumerate(records) if one["event"] == "lane_end" and one["lane"] == "speculative")
    begin = max(at for at, one in enumerate(records[:end]) if one["event"] == "started")
    for record in records[begin:end]:
        if record["event"] == "finished" or record.get("index", 0) >= index:
            record["elapsed_seconds"] += seconds
    return "".join(json.dumps(record) + "\n" for record in records)


def test_no_round_hides_its_block_in_the_strip(page, tmp_path):
    """A block that reaches into both halves of the strip leaves no room: its card goes into the flow of the page."""
    show_recording(page, tmp_path, slow_race(3, 1.0))
    covered, inflow = page.evaluate(OPENED, COVERED)
    assert covered == [] and inflow == 1


@pytest.mark.full
def test_nothing_covers_anything_at_any_width(page, tmp_path):
    """Texts, legend, strip and controls overlap nowhere, and pointing at a token moves none of them.

    An outlined token is in one piece, however the line breaks. The round card covers neither the chosen token nor the
    one at the same place of the other text.
    """
    cdp = page.context.new_cdp_session(page)
    show_recording(page, tmp_path, awkward_race())
    for width, height, scale in WINDOWS:
        window = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        cdp.send("Emulation.setDeviceMetricsOverride", window)
        page.wait_for_function(f"innerWidth === {width}")
        settle(page)
        page.evaluate("scrollTo(0, 0)")
        before = page.evaluate(RECTANGLES, PARTS)
        for (one, *first), (other, *second) in combinations(before, 2):
            apart = first[1] <= second[0] or second[1] <= first[0] or first[3] <= second[2] or second[3] <= first[2]
            assert apart, (width, one, other, first, second)
        assert page.evaluate(SPLIT) == [], width
        for lane, at in (("generate", 30), ("speculative", 60)):
            token = page.locator(f".sd-box.{lane} .sd-token:not(.rejected, .discarded) >> nth={at}")
            token.hover()
            assert page.locator(".sd-box .sd-token.lit").count() == 2
            page.evaluate("scrollTo(0, 0)")
            assert page.evaluate(RECTANGLES, PARTS) == before, (width, lane)
            token.click()
            assert page.evaluate(COVERED, ".sd-box .sd-token.lit, .sd-round.current") == [], (width, lane)
            page.keyboard.press("Escape")
            page.mouse.move(2, 2)
    cdp.detach()


def test_a_dragged_length_is_what_a_run_at_it_does(page):
    """The rounds and tokens a pass that are computed for another length equal those of a real run."""
    ask(page, tokens=60)
    run(page)
    measured = page.evaluate(KINDS)
    assert "Computed" not in notes(page)
    drag(page, 2)
    page.wait_for_selector(".sd-verdictOrigin:has-text('Computed from')")
    assert "γ 2 would run at" in text(page, ".sd-headline")
    figures = dict(zip(*(page.locator(f".sd-figures {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    computed = page.evaluate(KINDS)
    assert computed != measured
    assert page.locator(".sd-box.speculative.computed").count() == 1
    edit(page)
    assert page.locator("#sd-gamma input[type=number]").input_value() == "2", "Run measures it"
    run(page)
    assert page.evaluate(KINDS) == computed
    page.click("summary:has-text('Details')")
    details = text(page, ".sd-more")
    tokens = float(re.search(r"Tokens per target pass\n([\d.]+)", details)[1])
    assert tokens == pytest.approx(float(figures["tokens per target pass"]), abs=0.051)
