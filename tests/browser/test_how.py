"""The tab How it works: three steps with the tokens and times of the shown race, and the game Be the draft."""

from __future__ import annotations

import re
from statistics import median

import pytest

from browser.conftest import PAUSE, ask, open_page, run, text, visit
from browser.test_access import violations

pytestmark = pytest.mark.xdist_group("browser")  # one process drives the browser

# The shown race as plain values, read from its records and not from the tab.
RACE = """async () => {
  const { raceShown } = await import(new URL("specdec-assets/shown.js", document.baseURI).href);
  const race = raceShown();
  const text = (ids) => new TextDecoder().decode(Uint8Array.from(ids.flatMap((id) => race.bytes.get(id))));
  return Object.fromEntries([...race.lanes].map(([name, { started, rounds }]) => [name, {
    prompt: started.prompt_ids,
    rounds: rounds.map((round) => ({ ...round, words: (round.draft ?? []).map((token) => text([token.token_id])) })),
    texts: rounds.map((_, at) => text([...started.prompt_ids, ...rounds.slice(0, at).flatMap((r) => r.committed_ids)])),
  }]));
}"""


def open_how(page) -> None:
    """Open the tab; on a phone it is in the menu of tabs that do not fit."""
    tab = page.locator('button[role=tab]:has-text("How it works")')
    if not tab.last.is_visible():
        page.locator(".overflow-menu > button").last.click()
        tab = page.locator('.overflow-dropdown button:has-text("How it works")')
    tab.last.click()
    page.wait_for_selector("#sd-how h2")
    page.wait_for_timeout(PAUSE)


def to_the_end(page) -> None:
    """Let the steps play, as fast as the buttons allow."""
    for _ in range(2):
        page.click('[aria-label="Next step"]')
    page.wait_for_function("document.querySelector('.sd-howControls .sd-howButton').textContent === 'Play again'")


def figures(page, step: int) -> list[float]:
    """The milliseconds beside a step's bars."""
    return [
        float(value.split()[0])
        for value in page.locator(".sd-howStep").nth(step).locator(".sd-howValue").all_inner_texts()
    ]


def told(page, race) -> dict:
    """The round that the steps show."""
    return race["speculative"]["rounds"][int(re.search(r"Round (\d+) of", text(page, ".sd-howLede")).group(1))]


def test_the_steps_show_words_and_times_of_the_race(page):
    """The steps play by themselves once in view, and end with the round's guesses, milliseconds and outcome."""
    open_how(page)
    page.wait_for_function("document.querySelector('.sd-howControls .sd-howButton').textContent === 'Pause'")
    assert "measured on this machine at start-up" in text(page, ".sd-howLede")
    to_the_end(page)
    race = page.evaluate(RACE)
    round_, loop = told(page, race), race["speculative:0"]["rounds"]
    rounds = race["speculative"]["rounds"]
    for step in (0, 1):
        marks = page.locator(".sd-howStep").nth(step).locator(".sd-howLine .guessed")
        assert marks.all_inner_texts() == [word.strip() or word for word in round_["words"]]
    same = [other["verify_seconds"] for other in rounds[1:] if len(other["draft"]) == len(round_["draft"])]
    one, check = median(other["verify_seconds"] for other in loop[1:]), median(same)
    start = sum(len(other["committed_ids"]) for other in rounds[: round_["index"]])
    alone = loop[start + len(round_["committed_ids"]) - 1]["elapsed_seconds"] - loop[start - 1]["elapsed_seconds"]
    took = round_["elapsed_seconds"] - rounds[round_["index"] - 1]["elapsed_seconds"]
    for step, seconds in enumerate(([round_["draft_seconds"]], [one, check], [took, alone])):
        assert figures(page, step) == pytest.approx([1000 * value for value in seconds], abs=0.5)
    bars = page.locator(".sd-howStep").nth(1).locator(".sd-howFill")
    widths = [bar.bounding_box()["width"] for bar in bars.all()]
    assert widths[1] / widths[0] == pytest.approx(check / one, rel=0.05)
    if not 0.9 < check / one < 1.1:
        assert f"took {check / one:.1f} times as long as writing one token" in text(page, ".sd-howStep:nth-child(2)")


def test_the_third_step_shows_the_outcome_of_the_round(page):
    """Guesses are grey at first. In the end each has its kind, and the correction follows the rejected one."""
    open_how(page)
    step = page.locator(".sd-howStep").nth(2)
    kinds = "(node) => [...node.querySelectorAll('.sd-howLine:not(.ghost) [data-kind]')].map((m) => m.dataset.kind)"
    assert set(step.evaluate(kinds)) == {"sd-last", "guessed", "away"}
    to_the_end(page)
    round_ = told(page, page.evaluate(RACE))
    status = [token["status"] for token in round_["draft"]]
    assert status.count("accepted") >= 2 and "rejected" in status
    at = status.index("rejected") + 1
    assert step.evaluate(kinds) == ["sd-last", *status[:at], round_["token_kind"], *status[at:]]
    assert (
        step.evaluate("(node) => getComputedStyle(node.querySelector('.rejected')).textDecorationLine")
        == "line-through"
    )


def test_with_reduced_motion_each_press_is_a_step(browser, address):
    """The finished pictures are there at once. Play again shows the first one; Next and Previous move from it."""
    with visit(browser, address, reduced_motion="reduce") as page:
        open_page(page, address)
        open_how(page)

        def visible() -> list[bool]:
            steps = page.locator(".sd-howStep").all()
            return [step.locator(".sd-howValue").first.is_visible() for step in steps]

        assert visible() == [True, True, True]
        assert "slower" not in text(page, ".sd-howControls")
        page.click("text=Play again")
        assert visible() == [True, False, False]
        page.click('[aria-label="Next step"]')
        assert visible() == [True, True, False]
        page.click('[aria-label="Previous step"]')
        assert visible() == [True, False, False]


def test_another_race_brings_its_own_words(page):
    """A later race replaces the first. A race without guesses is said to have none."""
    ask(page, "Tom and Sue had a red ball. They", tokens=40)
    run(page)
    open_how(page)
    to_the_end(page)
    race = page.evaluate(RACE)
    assert "measured on this machine." in text(page, ".sd-howLede")
    marks = page.locator(".sd-howStep").first.locator(".sd-howLine .guessed").all_inner_texts()
    assert marks == [word.strip() or word for word in told(page, race)["words"]]
    page.click('button[role=tab]:has-text("Race")')
    page.fill("#sd-line-gamma", "0")
    run(page)
    open_how(page)
    assert "made no guesses" in text(page, "#sd-how")
    assert not page.locator(".sd-howSteps").is_visible()


def right_tokens(page) -> list[int]:
    """The tokens that the target wrote after the text that the game shows."""
    lane = page.evaluate(RACE)["speculative"]
    shown = page.locator(".sd-gameText .sd-howContext").evaluate("(node) => node.textContent").lstrip("…")
    at = next(at for at, before in enumerate(lane["texts"]) if at and before.endswith(shown))
    return [token for round_ in lane["rounds"][at:] for token in round_["committed_ids"]]


def choose(page, tokens: list[int]) -> int:
    """Choose these tokens one by one with the keyboard. Returns how many the round asks for."""
    length = page.locator(".sd-gameSlot").count()
    for token in tokens[:length]:
        page.locator(f'.sd-gameChoice[data-token="{token}"]').press("Enter")
    return length


def test_the_game_is_won_with_the_tokens_of_the_target(page):
    """With all guesses right, each round keeps them and adds a bonus. The result is shown again after a reload."""
    open_how(page)
    rounds = int(re.search(r"Round 1 of (\d+)", text(page, ".sd-gameLabel")).group(1))
    assert rounds >= 3
    total = 0
    for at in range(rounds):
        length = choose(page, right_tokens(page))
        total += length
        assert page.evaluate("document.activeElement.textContent") == "Check my guesses"
        page.keyboard.press("Enter")
        assert page.locator(".sd-gameText .accepted").count() == length
        assert page.locator(".sd-gameText .bonus").count() == 1
        assert f"You: {length} of {length} kept. The draft model: " in text(page, ".sd-gameSaid")
        assert page.evaluate("document.activeElement.textContent") == (
            "See the result" if at + 1 == rounds else "Next round"
        )
        page.keyboard.press("Enter")
    end = text(page, ".sd-gameSaid")
    assert f"You kept {total} of {total} guesses" in end
    assert f"wrote {total + rounds} tokens with your guesses" in end
    open_page(page, page.url)
    open_how(page)
    assert text(page, ".sd-gameSaid") == end and not page.locator(".sd-gameText").is_visible()
    page.click(".sd-game >> text=Play again")
    assert page.locator(".sd-gameChoice").count() >= 2


def test_a_wrong_guess_is_struck_and_replaced(page):
    """A wrong first guess is struck out, the target's token takes its place, and later guesses are discarded."""
    open_how(page)
    truth = right_tokens(page)
    y = page.evaluate("scrollY")
    length = page.locator(".sd-gameSlot").count()
    wrong = f'.sd-gameChoice:not([data-token="{truth[0]}"])'
    page.locator(wrong).first.click()
    for token in truth[1:length]:
        page.click(f'.sd-gameChoice[data-token="{token}"]')
    page.click("text=Check my guesses")
    kinds = "[...document.querySelectorAll('.sd-gameText [data-kind]')].map((mark) => mark.dataset.kind)"
    assert page.evaluate(kinds) == ["rejected", "correction", *["discarded"] * (length - 1)]
    assert f"You: 0 of {length} kept." in text(page, ".sd-gameSaid")
    assert "wrote one token with one target pass" in text(page, ".sd-gameSaid")
    assert page.locator(".sd-gameSaid").get_attribute("aria-live") == "polite"
    assert f"0 of {length}" in text(page, ".sd-gameBoard")
    assert page.evaluate("scrollY") >= y
    page.click("text=Next round")
    assert "Round 2 of" in text(page, ".sd-gameLabel")


def test_a_skipped_game_stays_skipped_and_needs_no_storage(page):
    """Skip leaves one line, also after a reload. The game works where the browser forbids storage."""
    open_how(page)
    page.click(".sd-game >> text=Skip")
    assert text(page, ".sd-gameSaid") == "You skipped this game."
    open_page(page, page.url)
    open_how(page)
    assert text(page, ".sd-gameSaid") == "You skipped this game."
    open_page(page, page.url.split("#")[0])  # the tab is not open, so the stored game is not read yet
    page.evaluate(
        "Storage.prototype.getItem = Storage.prototype.setItem = () => { throw new Error('forbidden'); }; null"
    )
    open_how(page)
    assert page.locator(".sd-gameChoice").count() >= 2
    page.click(".sd-game >> text=Skip")
    assert text(page, ".sd-gameSaid") == "You skipped this game."
    open_page(page, page.url)
    open_how(page)
    assert text(page, ".sd-gameSaid") == "You skipped this game."


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_everybody_can_use_it(browser, address, theme: str, width: int):
    """axe finds nothing serious, before, during and after a round of the game; nothing is wider than the screen."""
    axe_module = pytest.importorskip("axe_playwright_python.sync_playwright")
    with visit(browser, address, viewport={"width": width, "height": 844}, color_scheme=theme) as page:
        open_page(page, address, f"?__theme={theme}")
        open_how(page)
        to_the_end(page)
        page.click(".sd-howProof summary")
        found = violations(page, axe_module)
        page.locator(".sd-gameChoice").first.click()
        found |= violations(page, axe_module)
        page.click("text=Check my guesses")
        found |= violations(page, axe_module)
        assert found == {}
        assert page.evaluate("document.documentElement.scrollWidth") == width
        small = """() => [...document.querySelectorAll('#sd-how *')].filter((node) => node.textContent.trim() &&
          node.checkVisibility() && parseFloat(getComputedStyle(node).fontSize) < 14).map((node) => node.outerHTML)"""
        assert page.evaluate(small) == []
