"""During and after a race: more lanes, repeats, the replay, round by round, where the time goes."""

from __future__ import annotations

import re
import time

import pytest

from browser.conftest import SKIP, ask, notes, open_page, run, text, unfold, visit

pytestmark = pytest.mark.xdist_group("browser")  # one process drives the browser

ENDLESS = "class Stack:\n    def __init__(self):\n        self.items = []"  # 512 tokens and no end of text


def choose_lanes(page, *names: str) -> None:
    unfold(page, "#sd-more")
    for name in names:
        page.check(f'#sd-lanes label:has-text("{name}") input')


def texts_of(page) -> list[str]:
    """The text of each lane, without its prompt and rejected guesses."""
    return page.evaluate(
        "[...document.querySelectorAll('.sd-ribbon')].map((ribbon) => [...ribbon.querySelectorAll("
        "'.sd-token:not(.rejected, .discarded)')].map((mark) => mark.textContent).join(''))"
    )


def test_further_lanes_race_and_are_told_apart(page):
    """Our loop and three more lanes each have a text, a name and a row. Only the draft's own text differs."""
    choose_lanes(page, "assisted generation", "prompt lookup", "draft alone")
    ask(page, tokens=24)
    run(page)
    assert not page.locator("#sd-said .sd-error").is_visible()
    names = ["Our loop, γ 0", "transformers assisted", "Prompt lookup", "Draft alone"]
    labels = "document.querySelector('.sd-plot').layout.annotations.map((note) => note.text)"
    keys = "[...document.querySelectorAll('.sd-chartKey li')].map((item) => item.textContent)"
    page.wait_for_function(
        f"(names) => names.every((name) => {keys}.some((key) => key.startsWith(name) && key.endsWith('s')))", arg=names
    )
    assert page.locator(".sd-stripRow").count() == 6
    texts = texts_of(page)
    assert len(texts) == 6 and len(set(texts[:5])) == 1 and texts[5] != texts[0]
    page.click("summary:has-text('Details')")
    rows = page.locator(".sd-more table").first.locator("tbody tr").all_inner_texts()
    assert len(rows) == 6 and all("x" in row for row in rows[1:])
    assert page.locator(".sd-plot.js-plotly-plot").first.evaluate("(node) => node.data.length") == 7  # and the ends
    signs = page.locator(".sd-plot.js-plotly-plot").first.evaluate("(node) => node.data[6].marker.symbol")
    assert len(set(signs)) == 4, "each lane beside the two ends in a sign of its own"
    page.click('[aria-label="Replay from the start"]')
    page.wait_for_function(f"{labels}.includes('Plain') && {labels}.includes('<b>Speculative</b>')")
    page.click(SKIP)


def test_a_race_stopped_early_is_drawn_as_far_as_it_is_compared(page, unhurried):
    """When a race is stopped in the second lane, both lines and the axes end where both lanes have written as much."""
    ask(page, ENDLESS, tokens=100)
    rounds = page.evaluate("window.specdec.rounds")
    page.click("#sd-run")
    page.wait_for_function(f"window.specdec.rounds > {rounds + 112}")
    page.click("#sd-stop")
    page.wait_for_function("!window.specdec.running")
    written = int(re.search(r"Stopped at (\d+) of 100", notes(page)).group(1))
    top = "document.querySelector('.sd-plot').layout.yaxis.range[1]"
    page.wait_for_function(f"{top} === {written}")
    ends = page.evaluate("document.querySelector('.sd-plot').data.slice(0, 2).map((line) => line.y.at(-1))")
    assert ends == [written, written]


def test_the_strip_grows_as_if_it_were_drawn_anew(page, unhurried):
    """During a race a strip that grew pass by pass looks like one drawn at once."""
    ask(page, ENDLESS, tokens=100)
    rounds = page.evaluate("window.specdec.rounds")
    page.click("#sd-run")
    page.wait_for_function(f"window.specdec.rounds > {rounds + 110}")
    grown, anew = page.evaluate("""async () => {
        const look = () => [...document.querySelectorAll('.sd-strip canvas')].map((canvas) => canvas.toDataURL());
        const grown = look();
        document.body.classList.add('another-look');  // every drawing follows the theme, which is a class there
        await Promise.resolve();
        return [grown, look()];
    }""")
    page.click("#sd-stop")
    page.wait_for_function("!window.specdec.running")
    assert len(set(grown)) > 1 and grown == anew


def test_a_text_that_ends_early_fills_the_chart(page):
    """If the model ends its text early, the axis ends there too."""
    ask(page, "They were happy and played together every day. The", tokens=400)
    run(page)
    written = int(page.locator(".sd-figures dd").last.inner_text().split()[0])
    assert written < 200
    page.wait_for_function(f"document.querySelector('.sd-plot').layout.yaxis.range[1] === {written}")


def test_a_repeated_race_gives_a_median_and_a_spread(page):
    """After five runs the sentence and the lane's row give the median and the range."""
    ask(page, tokens=12)
    run(page)
    ask(page, tokens=99)  # the shown race is repeated
    before = page.evaluate("window.specdec.lanesFinished")
    page.click("text=Repeat ×5")
    page.wait_for_function("window.specdec.verdicts === 3 && !window.specdec.running")
    assert page.evaluate("window.specdec.lanesFinished") == before + 15
    assert page.locator(".sd-figures dd").last.inner_text() == "12 of 12"
    assert "Median of 5 runs on this machine" in notes(page)
    page.click("summary:has-text('Details')")
    row = page.locator(".sd-more tbody tr").nth(1).inner_text()
    low, high = map(float, re.search(r"([\d.]+)x \(([\d.]+)x–", row).groups()[::-1])
    assert low <= high
    assert re.search(r"median of 5", text(page, ".sd-headline"))
    assert page.locator(".sd-ribbon .sd-token").first.is_visible()


def test_the_replay_shows_the_lanes_on_one_clock(page):
    """After a race both lanes are replayed. The replay can be paused, moved and skipped, and ends at the result."""
    ask(page, tokens=40)
    page.click("#sd-run")
    page.wait_for_function("window.specdec.verdicts === 2 && window.specdec.replaying")
    page.click('[aria-label="Pause"]')
    assert "Replay of measured times" in text(page, ".sd-replay")
    scrub = page.locator(".sd-replay input[type=range]")

    def written() -> list[int]:
        """How many tokens the plain and the speculative text show."""
        return [
            page.locator(f".sd-box.{lane} .sd-round:not(.later) > .sd-token:not(.rejected, .discarded)").count()
            for lane in ("generate", "speculative")
        ]

    def visible() -> int:
        return page.locator(".sd-box.speculative .sd-round:not(.later)").count()

    counts = []
    for place in ("100", "400", "1000"):
        scrub.evaluate(
            "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', {bubbles: true})); }", place
        )
        counts.append((*written(), visible()))
    assert counts == sorted(counts) and counts[0] < counts[1] < counts[2]
    assert counts[2][:2] == (40, 40)
    page.click('[aria-label="Replay from the start"]')
    assert page.evaluate("window.specdec.replaying")
    page.click(SKIP)
    assert page.locator(".sd-round.later").count() == 0


def test_reduced_motion_replays_only_when_asked(browser, address):
    """With reduced motion the end is shown at once, and Play still plays."""
    with visit(browser, address, reduced_motion="reduce") as page:
        open_page(page, address)
        ask(page, tokens=16)
        page.click("#sd-run")
        page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
        assert not page.evaluate("window.specdec.replaying")
        page.click('[aria-label="Play"]')
        page.wait_for_function("window.specdec.replaying")


def test_a_round_is_read_step_by_step(page):
    """Buttons, slider, a token and the chart lead to a round, whose table and outcome agree with the record."""
    card = page.locator(".sd-card")
    first = card.locator("h2").inner_text()
    page.click('[aria-label="Next round"]')
    assert card.locator("h2").inner_text() != first
    page.click(".sd-box.speculative .correction >> nth=1")
    number = int(re.search(r"Round (\d+) of", card.locator("h2").inner_text())[1])
    assert page.locator(".sd-round.current .correction").count() == 1
    rows = card.locator(".sd-verdicts tbody tr").all()
    results = [row.locator("td").last.inner_text() for row in rows]
    kept = results.count("kept")
    assert results[kept] == "not kept" and set(results[kept + 1 :]) <= {"never checked"}
    assert f"{kept} guess" in card.locator(".sd-step:has-text('Outcome')").inner_text()
    assert card.locator(".sd-decision li").count() == 0, "greedy draws nothing"
    guess, target = (rows[kept].locator("td").nth(n).inner_text() for n in (1, 2))
    assert guess != target
    page.wait_for_selector(".sd-chart .main-svg")
    page.locator(".sd-chart .sd-plot").click(position={"x": 400, "y": 120})
    assert f"Round {number} of" not in card.locator("h2").inner_text()
    ribbon = page.locator(".sd-box.speculative .sd-ribbon")
    ribbon.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert card.locator("h2").inner_text().startswith("Round 2 of")


def test_a_sampled_round_shows_draws_and_the_residual(page):
    """At temperature 1 each tested guess has its draw, and a correction its residual distribution."""
    ask(page, tokens=48, temperature=1)
    run(page)
    page.click(".sd-box.speculative .correction >> nth=0")
    card = page.locator(".sd-card")
    table = [row.locator("td").all_inner_texts() for row in card.locator(".sd-verdicts tbody tr").all()]
    tested = [row for row in table if row[-1] != "never checked"]
    for *_, q, p, accept, draw, result in tested:
        assert float(accept) == pytest.approx(min(1, float(p) / float(q)), rel=0.02)
        assert (float(draw) <= float(accept) + 0.001) == (result == "kept")
    assert "residual" in text(page, ".sd-card .sd-barKeys")
    assert "drawn from the residual" in card.inner_text()


def test_the_strip_is_true_to_scale(page):
    """A lane's bar is as long as its time, and the words beside it say what the time was spent on."""
    found = page.evaluate("""() => [...document.querySelectorAll('.sd-stripRow')].map((row) => {
        const track = row.querySelector('.sd-track-of').getBoundingClientRect();
        const end = row.querySelector('.sd-stripEnd');
        return [parseFloat(end.textContent), end.getBoundingClientRect().left - track.left - 8];
    })""")
    assert len(found) == 3
    for seconds, pixels in found:
        assert pixels / found[0][1] == pytest.approx(seconds / found[0][0], abs=0.01 / found[0][0] + 0.01)
    shares = re.findall("(\\d+)\u00a0%", text(page, ".sd-stripWords"))
    assert len(shares) == 3, "drafting, checking and the rest"
    assert sum(map(int, shares)) == pytest.approx(100, abs=2)


def test_why_tells_the_engine_from_speculation(page):
    """The fold's title gives tokens and cost of a round. With our loop at gamma 0 it shows the terms and steps."""
    title = page.locator(".sd-why summary")
    assert re.fullmatch(
        r"Why: each round yields [\d.]+ tokens; plain generate writes [\d.]+ in that time", title.inner_text()
    )
    title.click()
    page.wait_for_selector(".sd-why .main-svg")
    assert "our loop without a draft" in text(page, ".sd-why p")
    assert "Cost coefficient c" in text(page, ".sd-why .sd-facts")
    steps = page.evaluate("document.querySelector('.sd-why .sd-plot').data[0].y")
    assert abs(sum(steps[:-1]) - steps[-1]) < 1e-9, "the steps add up to the speculative lane's time"


def test_a_figure_tells_its_definition(page):
    """A tap on a figure's name shows its definition, and another tap hides it."""
    name = page.locator(".sd-figures .sd-term", has_text="of guesses kept")
    name.click()
    assert "Guesses kept / guesses tested" in text(page, ".sd-figures")
    assert name.get_attribute("aria-expanded") == "true"
    name.click()
    assert "Guesses kept / guesses tested" not in text(page, ".sd-figures")


def test_lossy_acceptance_is_a_plain_warning(page):
    unfold(page, "#sd-more")
    page.fill("#sd-accept input", "4")
    page.locator("#sd-accept input").blur()
    ask(page, tokens=16)
    run(page)
    assert text(page, ".sd-warning") == "Not lossless: top-k acceptance changes the output."


def test_a_refused_race_leaves_the_last_one_alive(page):
    """After a refusal the old result still works: its rounds open and it replays."""
    unfold(page, "#sd-more")
    page.fill("#sd-more label:has-text('Seed') input", "soon")
    page.click("#sd-run")
    page.wait_for_selector("#sd-said .sd-error:visible")
    before = text(page, ".sd-card h2")
    page.click(".sd-box.speculative .bonus >> nth=1")
    assert text(page, ".sd-card h2") != before
    page.click('[aria-label="Replay from the start"]')
    page.click('[aria-label="Pause"]')
    assert re.search(r"\d+ of \d+ tokens", text(page, ".sd-box.generate .sd-boxStatus"))


def test_a_double_click_on_run_runs(page):
    """The second click lands on Stop, which has replaced Run, and does not stop the race."""
    ask(page, tokens=64)
    page.dblclick("#sd-run")
    page.wait_for_function("window.specdec.verdicts === 2 && !window.specdec.running")
    assert "Stopped" not in text(page, ".sd-verdict")


def test_a_second_visitor_is_told_of_the_queue(browser, address):
    """While one race runs another visitor's waits and says how many are ahead."""
    with visit(browser, address) as one, visit(browser, address) as other:
        for page in (one, other):
            open_page(page, address)
        ask(one, "class Stack:\n    def __init__(self):\n        self.items = []", tokens=2048)
        lanes = one.evaluate("window.specdec.lanesStarted")
        one.click("#sd-run")
        one.wait_for_function(f"window.specdec.lanesStarted > {lanes}")
        ask(other, tokens=8)
        other.click("#sd-run")
        other.wait_for_selector(".sd-status:has-text('1 ahead')")
        other.click("#sd-stop")  # frees the page at once, as nothing of it runs yet
        other.wait_for_selector(".sd-status:has-text('Cancelled')")
        assert other.locator("#sd-run").is_visible() and not other.locator("#sd-said .sd-error").is_visible()
        assert other.locator(".sd-live.stale").count() == 0, "the last result is no longer dimmed"
        other.click("#sd-run")
        other.wait_for_selector(".sd-status:has-text('1 ahead')")  # its own first race was given up
        assert one.evaluate("window.specdec.running")
        one.click("#sd-stop")
        other.wait_for_function("window.specdec.verdicts === 2")
        assert not other.locator(".sd-status").is_visible()


def test_run_pressed_before_the_page_is_ready_runs(browser, address):
    """A click is kept until the live view's scripts are loaded, however late they are."""
    with visit(browser, address) as page:
        page.route("**/live.js", lambda route: (time.sleep(1.5), route.continue_()))
        page.goto(address)
        page.click("#sd-run")
        page.wait_for_selector(".sd-notes:has-text('1 run on this machine')")


@pytest.mark.parametrize("sentences", [1, 40])
def test_after_a_race_the_beginning_of_what_was_written_is_in_view(page, sentences):
    """A long prompt fills its box. It does not hide the text that the race was about."""
    ask(page, "The sun was warm. " * sentences, tokens=8)
    run(page)
    seen = page.evaluate(
        """[...document.querySelectorAll('.sd-boxBody')].map((body) => {
            const [box, first] = [body, body.querySelector('.sd-token')].map((node) => node.getBoundingClientRect());
            return [box.top <= first.top && first.bottom <= box.bottom, body.scrollTop > 0];
        })"""
    )
    assert seen == [[True, sentences > 1]] * 2
