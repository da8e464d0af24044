"""axe-core finds nothing serious or critical on the page, neither in our parts nor in Gradio's."""

from __future__ import annotations

import pytest
from pairwise import few

from browser.conftest import ask, go_to, open_page, run, unfold, visit
from specdec.lanes.table import lane_configs
from specdec.ui.tabs import best_gamma

pytestmark = pytest.mark.xdist_group("browser")


@pytest.mark.full
@pytest.mark.parametrize(("theme", "width"), few([("light", 1440), ("dark", 390)], 1))
def test_no_serious_accessibility_fault(browser, address, theme: str, width: int, monkeypatch):
    """With every fold and the Share menu open, after a sampled race with further lanes."""
    axe_module = pytest.importorskip("axe_playwright_python.sync_playwright")
    monkeypatch.setattr(best_gamma, "CONFIGS", lane_configs(("generate", "speculative"), (0, 3, "auto")))
    with visit(browser, address, viewport={"width": width, "height": 900}, color_scheme=theme) as page:
        open_page(page, address, f"?__theme={theme}")
        unfold(page, "#sd-more")
        page.check('#sd-lanes label:has-text("assisted generation") input')
        ask(page, tokens=24, temperature=1)
        run(page)
        unfold(page, "#sd-change")
        page.check("#sd-misses")
        for summary in page.locator(".sd-result .sd-fold > summary").all():
            if summary.is_visible() and summary.locator("..").get_attribute("open") is None:
                summary.click()
        found = violations(page, axe_module)
        page.click(".sd-shareButton")
        page.wait_for_selector(".sd-codeFold")
        found |= violations(page, axe_module, ".sd-sharePanel")
        page.keyboard.press("Escape")
        for tab in ("Your server", "Benchmark", "Lossless?", "Best gamma"):
            go_to(page, tab)
            found |= violations(page, axe_module)
        unfold(page, "#sd-gamma-settings")
        page.fill("#sd-gamma-tokens input[type=number]", "32")
        page.fill("#sd-gamma-runs input[type=number]", "1")
        page.click("#sd-gamma-start")
        page.wait_for_selector("#sd-gamma-verdict :text('Measured on this machine')")  # not the recorded result
        page.wait_for_selector("#sd-gamma-start:visible")
        for fold in ("why", "home", "whatif"):
            page.click(f"#sd-gamma-{fold} button.label-wrap")
        page.wait_for_selector("#sd-gamma-why .main-svg")
        found |= violations(page, axe_module)
        assert found == {}


def violations(page, axe_module, part: str | None = None) -> dict[str, list[str]]:
    """Serious and critical findings on the page, or on a part of it: the elements by rule."""
    results = axe_module.Axe().run(page, context=part).response["violations"]
    return {
        found["id"]: [node["html"][:160] for node in found["nodes"]]
        for found in results
        if found["impact"] in ("serious", "critical")
    }
