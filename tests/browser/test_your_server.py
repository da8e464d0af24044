"""What a person does on the tab Your server, with small servers on this machine."""

from __future__ import annotations

import pytest
from server_standins import StandIn

from browser.conftest import go_to, launch, notes, settle, skip, text, visit
from browser.test_measuring import finish, set_number
from specdec.servers.address import Address
from specdec.ui.jobs.limits import PUBLIC

pytestmark = pytest.mark.xdist_group("browser")
NUMBERS = ("tokens", "temperature", "model")


def raced(page) -> None:
    before = page.evaluate("window.specdec.verdicts + window.specdec.errors")
    page.click("#sd-server-start")
    page.wait_for_function(f"window.specdec.verdicts + window.specdec.errors > {before} && !window.specdec.running")
    skip(page)
    settle(page)


def test_two_servers_are_checked_raced_and_looked_at(page) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        go_to(page, "Your server")
        sample = text(page, "#sd-server-sample")
        assert "as fast as the plain server" in sample and "A recording, not measured here" in sample
        page.click("#sd-server-help button")
        page.wait_for_selector("#sd-server-help pre:visible:has-text('vllm serve MODEL --port 8001')")
        assert page.locator("#sd-server-help code").all_inner_texts()[-1] == "SPECDEC_KEY_PLAIN"
        assert not page.is_visible(".sd-pair") and "on the two servers" in text(page, ".sd-head")
        page.click("#sd-server-settings > button")
        page.wait_for_selector("#sd-server-tokens input:visible >> nth=0")
        tops = {page.locator(f"#sd-server-{name} input").first.bounding_box()["y"] for name in NUMBERS}
        assert len(tops) == 1, "all in one line"
        page.fill("#sd-server-plain input", other.url)
        page.fill("#sd-server-spec input", plain.url)
        page.click("#sd-server-check")
        page.wait_for_selector("#sd-server-state .sd-bad")
        assert "it speculates" in text(page, "#sd-server-state")
        for _ in range(100):  # Gradio may write the last value of a check once more when the listener ends
            page.fill("#sd-server-plain input", "")
            page.fill("#sd-server-plain input", plain.url)
            settle(page)
            if not page.locator("#sd-server-state li").count():
                break
        assert not page.locator("#sd-server-state li").count(), "what was found holds no longer"
        page.fill("#sd-server-spec input", other.url)
        page.click("#sd-server-check")
        page.wait_for_selector("#sd-server-state li + li")
        states = page.locator("#sd-server-state li").all_inner_texts()
        lines = [[*filter(None, state.split("\n"))] for state in states]
        rows = [dict(zip(names[1::2], names[2::2], strict=True)) for names in lines]
        assert [row["Speculation"] for row in rows] == ["off", "on, up to 4 guesses a step"]
        assert all(row["Engine"] == "vLLM 0.32.0" and row["It tells"] == "each round, token ids" for row in rows)
        fields = [page.locator(f"#sd-server-{name} input").bounding_box() for name in ("plain", "spec")]
        cards = [card.bounding_box() for card in page.locator("#sd-server-state li").all()]
        assert [round(box["x"]) for box in cards] == [round(box["x"]) for box in fields], "each below its address"
        page.fill("#sd-server-tokens input[type=number]", "40")
        raced(page)
        assert page.is_visible("#sd-server-live .sd-boxes") and not page.is_visible("#sd-live .sd-boxes")
        assert text(page, ".sd-box.generate h2") == "Plain server"
        assert text(page, "#sd-server-live .sd-verdictOrigin strong").startswith(
            "Measured from this machine, on running"
        )
        same = page.locator("#sd-server-live .sd-figures div:has-text('tokens identical')")
        assert "40 of 40" in same.inner_text() and "Identical text" not in notes(page), "said once"
        page.check("#sd-misses")
        assert set(page.locator(".sd-box.speculative .untold:visible").all_inner_texts()) == {"?"}
        page.hover(".sd-box.speculative .untold >> nth=0")
        assert "a guess that the server did not tell" in text(page, ".sd-point")
        page.click(".sd-shareButton")
        page.wait_for_function("document.querySelector('[aria-label=\"Link to this run\"]').value.includes('#run=')")
        assert not page.is_visible('[aria-label="Link to these settings"]')
        link = page.input_value('[aria-label="Link to this run"]')
        page.click(".sd-shareButton")
        go_to(page, "Race")
        assert page.is_visible("#sd-live .sd-boxes") and text(page, ".sd-box.speculative h2") == "Speculative server"
        assert not page.is_visible(".sd-again")
        go_to(page, "Your server")
        assert page.is_visible("#sd-server-live .sd-boxes") and not page.is_visible("#sd-server-sample")
        for secret in (plain.url, other.url, str(other.port)):
            assert secret not in link


@pytest.mark.full
def test_a_benchmark_of_servers_is_measured_saved_linked_and_opened(page, tmp_path) -> None:
    """It is found below the race, shows each prompt, is stopped with what it has, and opens on the tab Benchmark."""
    (tmp_path / "own.jsonl").write_text("".join(f'{{"prompt": "Once upon {name}"}}\n' for name in ("one", "two")))
    with StandIn("plain") as plain, StandIn("vllm") as other:
        go_to(page, "Your server")
        page.fill("#sd-server-plain input", plain.url)
        page.fill("#sd-server-spec input", other.url)
        page.click("#sd-server-settings > button")
        set_number(page, "server-tokens", 40)
        page.click("#sd-server-bench-fold > button")
        page.wait_for_selector("#sd-server-bench-estimate:has-text('36 calls of 40 tokens.')")
        page.set_input_files("#sd-server-bench-set input[type=file]", tmp_path / "own.jsonl")
        page.wait_for_selector("#sd-server-bench-estimate:has-text('12 calls of 40 tokens.')")
        finish(page, "server-bench")
        verdict, link = text(page, "#sd-server-bench-verdict"), "#sd-server-bench-link input"
        assert "Measured from this machine, on running servers" in verdict and "plain server" in verdict
        rows = [row.split("\t") for row in page.locator("#sd-server-bench-table tbody tr").all_inner_texts()]
        assert [row[0] for row in rows[:4]] == ["Plain", "Speculative", "1", "2"]
        assert [row[-1] for row in rows[1:4]] == ["6 of 6", "3 of 3", "3 of 3"]
        page.wait_for_selector("#sd-server-bench-plot .main-svg")
        page.wait_for_function("document.querySelector('#sd-server-bench-link input').value.includes('#bench=')")
        with page.expect_download() as file:
            page.click("#sd-server-bench-files button:text-is('benchmark.results.jsonl')")
        file.value.save_as(tmp_path / "found.results.jsonl")
        address = page.input_value(link)
        page.click(".sd-shareButton")
        page.wait_for_selector(".sd-sharePanel [aria-label='Link to these results']")
        assert page.input_value(".sd-sharePanel [aria-label='Link to these results']") == address
        page.click(".sd-shareButton")
        other.go_on.clear()
        page.click("#sd-server-bench-start")
        page.wait_for_selector("#sd-server-bench-stop:visible")
        page.click("#sd-server-bench-stop")
        page.wait_for_selector("#sd-server-bench-start:visible")
        other.go_on.set()
        assert text(page, "#sd-server-bench-verdict") == verdict, "what was measured before stays"
        go_to(page, "Benchmark")
        page.set_input_files("#sd-bench-open-file", tmp_path / "found.results.jsonl")
        page.wait_for_selector("#sd-bench-verdict:has-text('From the file found.results.jsonl')")
        assert "plain server" in text(page, "#sd-bench-verdict") and "1x" in text(page, "#sd-bench-table")
        told = page.locator("#sd-tabs").inner_text() + (tmp_path / "found.results.jsonl").read_text() + address
        for server in (plain, other):
            assert f":{server.port}" not in told


@pytest.mark.full
def test_a_servers_race_is_stopped_fails_in_a_sentence_and_a_recorded_one_opens(page) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        go_to(page, "Your server")
        page.fill("#sd-server-plain input", plain.url)
        page.fill("#sd-server-spec input", other.url)
        other.go_on.clear()
        page.click("#sd-server-start")
        page.wait_for_selector("#sd-server-stop:visible")
        assert not page.is_visible("#sd-server-start")
        page.click("#sd-server-stop")
        other.go_on.set()
        page.wait_for_function("!window.specdec.running")
        assert page.is_visible("#sd-server-start")
        page.fill("#sd-server-spec input", "http://127.0.0.1:1")
        page.click("#sd-server-start")
        page.wait_for_selector("#sd-server-said .sd-error:visible")
        assert "The server spec cannot be reached." in text(page, "#sd-server-said")
        page.click("#sd-server-recorded")
        page.wait_for_function("window.specdec.origin === 'gallery'")
        skip(page)
        assert page.is_visible("#sd-server-live .sd-boxes") and "vLLM 0.32.0" in text(page, ".sd-boxServer >> nth=1")


@pytest.mark.full
def test_visitors_use_the_servers_that_were_named_and_type_none(browser, slot) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as fast, StandIn("vllm") as other:
        named = [Address("mine", plain.url), Address("fast", fast.url), Address("other", other.url)]
        demo, address = launch(slot, PUBLIC, None, None, 0, named)
        with visit(browser, address) as page:
            page.goto(address)
            page.wait_for_function("window.specdec?.mounted")
            go_to(page, "Your server")
            assert not page.locator("#sd-server-plain, #sd-server-model").count()
            assert text(page, "#sd-server-spec").split()[-2:] == ["fast", "other"]
            raced(page)
            assert "plain server" in text(page, "#sd-server-live .sd-headline")
            assert fast.asked and not other.asked
            told = page.content()
            for server in (plain, fast, other):
                assert server.url not in told
        demo.close()
