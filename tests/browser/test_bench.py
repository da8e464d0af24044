"""The tab Benchmark: its form, the chart of acceptance against cost, and several results files in one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browser.conftest import go_to, resize, text, unfold
from browser.test_measuring import finish, give, save, set_number
from specdec.events import SamplingParams
from specdec.lanes.table import lane_configs
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.results.file import results_of_pair
from specdec.measure.trials import trials

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.full
def test_the_form_chooses_prompts_and_how_they_are_sampled(page, tmp_path):
    """The first prompt of each category is measured, sampled; the files say so; chat needs a template."""
    rows = [{"category": name, "turns": [f"Once upon {number}"]} for name in ("a", "b") for number in range(2)]
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-settings")
    page.wait_for_selector("#sd-bench-chat input:disabled")
    assert "has no chat template" in text(page, "#sd-bench-chat")
    give(page, "set", tmp_path / "turns.jsonl")
    page.fill("#sd-bench-gammas input", "3")
    page.locator("#sd-bench-gammas input").blur()
    for field, value in (("tokens", 32), ("runs", 1), ("temperature", 0.5)):
        set_number(page, f"bench-{field}", value)
    page.fill("#sd-bench-first input", "1")
    page.locator("#sd-bench-first input").blur()
    finish(page, "bench")
    said = page.locator("#sd-bench-verdict").text_content()  # some of it is folded
    assert "2 prompts of turns.jsonl, the first 1 of each category" in said and "temperature 0.5, seed 0" in said
    found = json.loads(save(page, "benchmark.json", tmp_path).read_text())
    assert [item["name"] for item in found["prompts"]] == ["1", "3"] and found["params"]["temperature"] == 0.5
    assert found["chosen"] == {"name": "turns.jsonl", "first": 1, "chat": False} and found["machine"]["cpu"]
    page.wait_for_selector("#sd-bench-map .main-svg")
    shown = page.locator("#sd-bench-map text").all_text_contents()
    for words in ("Time of a draft pass, in target passes (c)", "Guesses kept, of those tested (%, α)", "a", "b"):
        assert words in shown, shown
    assert "Where speculation pays" in page.locator("#sd-tabs").inner_text()
    give(page, "earlier", save(page, "benchmark.results.jsonl", tmp_path))
    set_number(page, "bench-temperature", 0)
    page.click("#sd-bench-start")
    page.wait_for_selector("#sd-bench-status .sd-error:has-text('another measurement (params differ)')")
    for wrong, words in (("0", "give a whole number, 1 or more"), ("few", "not a whole number")):
        page.fill("#sd-bench-first input", wrong)
        page.locator("#sd-bench-first input").blur()
        page.click("#sd-bench-start")
        page.wait_for_selector(f"#sd-bench-status .sd-error:has-text('{words}')")


@pytest.fixture(scope="module")
def measured(slot, tmp_path_factory) -> list[Path]:
    """Two results files of the page's own pair, at different draft lengths."""
    folder, found = tmp_path_factory.mktemp("measured"), []
    for tokens in (32, 40):
        configs = lane_configs(("generate", "speculative", "speculative:0"), (3,))
        plan = Plan((PromptItem("one", "story", "Once upon"),), configs, SamplingParams(tokens, seed=0), 1)
        found.append(folder / f"of{tokens}.results.jsonl")
        found[-1].write_text(results_of_pair(slot.pair, plan).write(filter(None, trials(slot.pair, plan))))
    return found


def add(page, *paths: Path) -> None:
    page.set_input_files("#sd-compare-files-file", list(map(str, paths)))


@pytest.mark.full
def test_results_files_are_compared_in_one_table_and_on_one_map(page, measured, tmp_path):
    """Files are added together or one by one. The table fits a phone.

    A file that holds no results is named. A removed file takes its rows along.
    """
    go_to(page, "Benchmark")
    unfold(page, "#sd-bench-compare")
    add(page, *measured)
    page.wait_for_selector("#sd-compare .sd-note:has-text('cannot be compared directly: they differ in new tokens.')")
    rows = [row.split("\t") for row in page.locator("#sd-compare tbody tr").all_inner_texts()]
    assert [(row[0], row[3]) for row in rows] == [
        (file, lane) for file in "12" for lane in ("Plain", "Our loop, no draft", "Speculative, γ 3")
    ]
    assert rows[0][-1] == "32 new tokens" and rows[3][-1] == "40 new tokens"
    page.wait_for_selector("#sd-compare-map .main-svg")
    resize(page, 390, 844)
    page.wait_for_function("document.documentElement.scrollWidth <= 390")  # a chart fits itself a moment later
    resize(page, 1440, 900)
    assert {"1", "2"} <= set(page.locator("#sd-compare-map .annotation text").all_text_contents())
    page.click("#sd-compare-files button[aria-label='Remove of32.results.jsonl']")
    page.wait_for_function("document.querySelectorAll('#sd-compare tbody tr').length === 3")
    assert page.locator("#sd-compare .sd-note").count() == 0
    (tmp_path / "diary.jsonl").write_text("Dear diary\n")
    add(page, tmp_path / "diary.jsonl")
    page.wait_for_selector("#sd-compare .sd-error:has-text('diary.jsonl has no results of this program')")
    page.click("#sd-compare-files button[aria-label='Remove diary.jsonl']")
    page.wait_for_function("document.querySelectorAll('#sd-compare tbody tr').length === 3")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\xff")
    add(page, tmp_path / "photo.png")
    page.wait_for_selector("#sd-compare-files .sd-error:has-text('photo.png cannot be read as UTF-8 text')")
    assert page.locator("#sd-compare tbody tr").count() == 3


def test_charts_and_tables_are_saved(page):
    """The recorded benchmark's chart as PNG and SVG in the page's colours, and its table with every column."""
    go_to(page, "Benchmark")
    page.wait_for_selector("#sd-bench-plot .main-svg")

    def saved(button: str) -> tuple[str, bytes]:
        with page.expect_download() as file:
            page.locator(f"{button} >> visible=true").first.click()
        return file.value.suggested_filename, file.value.path().read_bytes()

    name, image = saved(".sd-saveChart button:text-is('PNG')")
    assert name == "specdec-bench-plot.png" and image.startswith(b"\x89PNG")
    name, drawing = saved(".sd-saveChart button:text-is('SVG')")
    assert name == "specdec-bench-plot.svg" and b"Speculative" in drawing and b"rgb(255, 255, 255)" in drawing
    resize(page, 390, 844)
    name, cells = saved(".sd-saveTable")
    lines = cells.decode().splitlines()
    shown = page.locator("#sd-bench-table table >> nth=0 >> tr").count()
    assert (
        name.endswith(".csv") and lines[0].startswith('"Lane","\u03b3","tokens/s","speed-up"') and len(lines) == shown
    )
