"""The tab How it works: three steps with the tokens and times of the shown race, and the game Be the draft."""

from __future__ import annotations

import re

import pytest
from pairwise import few

from browser.conftest import open_page, settle, text, visit
from browser.test_access import violations

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def motion() -> str:
    return "no-preference"


# The shown race as plain values, read from its records and not from the tab.
RACE = """async () => {
  const { raceShown } = await import(new URL("specdec-assets/race/current_race.js", document.baseURI).href);
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
    settle(page)


def to_the_end(page) -> None:
    """Let the steps play, as fast as the buttons allow."""
    for _ in range(2):
        page.click('[aria-label="Next step"]')
    page.wait_for_function("document.querySelector('.sd-howControls .sd-howButton').textContent === 'Play again'")


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


@pytest.mark.full
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


@pytest.mark.parametrize(("theme", "width"), few([("light", 1440), ("dark", 390)], 1))
def test_everybody_can_use_it(browser, address, motion, theme: str, width: int):
    """axe finds nothing serious, before, during and after a round of the game; nothing is wider than the screen."""
    axe_module = pytest.importorskip("axe_playwright_python.sync_playwright")
    with visit(browser, address, {"width": width, "height": 844}, theme, motion) as page:
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
