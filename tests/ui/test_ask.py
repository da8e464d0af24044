"""A race as the form, a link and a recording ask for it."""

from __future__ import annotations

import gradio as gr
import pytest

from specdec.errors import InvalidInput
from specdec.ui.ask import _FIELDS, Ask, AskPanel
from specdec.ui.limits import LOCAL

FORM = {
    "prompt": "Once", "gamma": 5, "choice": "fixed", "confidence": 0.4, "tokens": 64, "temperature": 0, "lanes": [],
    "seed": "", "top_k": 0, "top_p": 1, "min_p": 0, "penalty": 1, "accept_top_k": "", "block": False,
    "ignore_eos": False, "chat": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def panel() -> AskPanel:
    panel = AskPanel(LOCAL)
    with gr.Blocks():
        panel.prompt_field("Once")
        panel.setting_fields()
        panel.chat_field()
    return panel


def read(panel: AskPanel, **changes) -> Ask:
    values = FORM | changes
    return panel.read(*(values[name] for name in _FIELDS))


@pytest.mark.parametrize("gamma", [0, 16, "auto", "confidence:0.25"])
def test_a_draft_length_goes_through_form_link_and_recording(panel, gamma) -> None:
    lengths = dict(zip(("gamma", "choice", "confidence"), panel.length_values(gamma), strict=True))
    kept = {name: value for name, value in lengths.items() if value != gr.skip()}
    asked = read(panel, **kept)
    assert asked.gamma == gamma
    settings = asked.settings()
    assert panel.ask_of(settings) == asked
    values, problems = panel.restore({name: str(value) for name, value in settings.items()}, chat=False)
    assert problems == [] and dict(zip(_FIELDS, values, strict=True)).get("choice") == lengths["choice"]


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"choice": "confidence", "confidence": 2}, "least_confidence is 2.0"),
        ({"choice": "confidence", "confidence": None}, "Confidence is empty"),
        ({"choice": "confidence", "confidence": "x" * 999}, "gamma is 'confidence:xxx"),
        ({"choice": "anyhow"}, "does not say how γ is chosen"),
        ({"gamma": None}, "Draft length γ is empty"),
    ],
)
def test_what_makes_no_draft_length_is_a_sentence(panel, changes, complaint) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read(panel, **changes)


def test_a_link_with_no_draft_length_keeps_the_form(panel) -> None:
    values, problems = panel.restore({"gamma": "confidence:5"}, chat=False)
    assert values == [gr.skip()] * len(_FIELDS)
    assert problems[0].startswith("The link's gamma 'confidence:5' was not used") and "5 is used instead" in problems[0]


def test_block_verification_goes_through_form_link_and_recording(panel) -> None:
    asked = read(panel, block=True)
    assert asked.acceptance == "block" and asked.accept_top_k is None
    settings = asked.settings()
    assert settings["block"] == 1 and panel.ask_of(settings) == asked
    values, problems = panel.restore({name: str(value) for name, value in settings.items()}, chat=False)
    assert problems == [] and dict(zip(_FIELDS, values, strict=True))["block"] is True
    assert "block" not in read(panel).settings()


def test_block_verification_and_lossy_acceptance_exclude_each_other(panel) -> None:
    with pytest.raises(InvalidInput, match="exclude each other"):
        read(panel, block=True, accept_top_k="3")
