"""The fields that name a pair: each text in them is read, or the answer says why not."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape

import gradio as gr
import pytest

import specdec
from specdec.drafters import registry
from specdec.drafters.combined import Combined
from specdec.drafters.draft_model import DraftModel
from specdec.errors import InvalidInput
from specdec.models.loading import EMBEDDED
from specdec.models.presets import PRESETS
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.tabs import pair_panel
from specdec.ui.tabs.pair_panel import OWN, PairPanel

GPT2 = "gpt2-large <- gpt2"
GPT2_MODELS = ("openai-community/gpt2-large", DraftModel("openai-community/gpt2"))


@pytest.fixture
def panel() -> PairPanel:
    with gr.Blocks():
        return PairPanel(None, LOCAL, None)


@pytest.mark.parametrize(
    ("choice", "target", "draft"),
    [
        ((OWN, "some/model ", " some/draft", "Draft model"), "some/model", DraftModel("some/draft")),
        (("some/model <- some/draft", None, None, "Draft model"), "some/model", DraftModel("some/draft")),
        ((" some/model\u2190suffix ", None, "", "Draft model"), "some/model", specdec.Suffix()),
        (("some/model", None, "some/draft", "Draft model"), "some/model", DraftModel("some/draft")),
        (("some/model", "an/older", None, "Early exit"), "some/model", specdec.EarlyExit(3)),
        (("some/model with draft some/draft", None, None, "Draft model"), "some/model", DraftModel("some/draft")),
        ((GPT2.replace(" <- ", " with draft "), None, None, "Draft model"), *GPT2_MODELS),
        (("some/model <- some/draft", None, "early-exit:2", "Early exit"), "some/model", specdec.EarlyExit(2)),
    ],
)
def test_a_typed_pair_is_read_wherever_it_was_typed(panel, monkeypatch, choice, target, draft) -> None:
    monkeypatch.setattr(pair_panel, "plan_pair", lambda model, drafting, options: (model, drafting))
    assert panel._plan(*choice) == (target, draft)


def test_a_combination_names_no_model_on_a_public_page(monkeypatch) -> None:
    """The models there are those of the list; a combination with the target's own layers is not one more."""
    monkeypatch.setattr(pair_panel, "plan_pair", lambda model, drafting, options: drafting)
    with gr.Blocks():
        public, local = (PairPanel(None, limits, None) for limits in (replace(PUBLIC, pairs="listed"), LOCAL))
    asked = [("embedded", "", text, Combined.label) for text in ("suffix+early-exit:2", "suffix+some/model", "")]
    assert public._plan(*asked[0]) == local._plan(*asked[0]) == Combined(specdec.Suffix(), specdec.EarlyExit(2))
    assert local._plan(*asked[1]) == Combined(specdec.Suffix(), DraftModel("some/model"))
    with pytest.raises(InvalidInput, match="only the pairs of its list"):
        public._plan(*asked[1])
    assert public._plan(*asked[2]) == Combined.parse(Combined.example)


@pytest.mark.parametrize("typed", ["", None, " <- some/draft"])
def test_a_pair_without_a_target_is_refused_in_words(panel, typed: str | None) -> None:
    with pytest.raises(InvalidInput, match="No target was given"):
        panel._plan(typed, None, None, "Draft model")


@pytest.mark.parametrize(
    ("preset", "first"),
    [
        ("embedded", "The pair's own draft\na smaller model guesses, one token a pass"),
        ("Qwen3-8B <- DFlash", "The pair's own draft\nas the pair's name says: 'DFlash'"),
        ("some/model <- suffix", "The pair's own draft\nas the pair's name says: 'suffix'"),
        ("some/model", "Draft model\na smaller model guesses, one token a pass"),
        (OWN, "Draft model\na smaller model guesses, one token a pass"),
    ],
)
def test_the_first_way_to_draft_is_called_a_draft_model_only_where_it_is_one(panel, preset: str, first: str) -> None:
    choices = panel._choices(preset)
    assert choices[0] == (first, "Draft model")
    assert [label for _, label in choices[:2]] == ["Draft model", "Prompt lookup"]
    assert {label for _, label in choices} == {row.label for row in registry.methods()}


@pytest.mark.parametrize(
    ("pair", "shown", "missing"),
    [
        (
            "embedded",
            ["EAGLE-3 head", "Suffix decoding"],
            {"MTP layers", "DFlash head", "DSpark head", "Gemma 4 assistant"},
        ),
        ("gpt2-large <- gpt2", ["Suffix decoding", "Token recycling"], {"MTP layers", "EAGLE-3 head", "DFlash head"}),
        ("Qwen3.5-4B <- 0.8B", ["MTP layers", "Suffix decoding"], {"EAGLE-3 head", "DSpark head"}),
        ("some/model", ["EAGLE-3 head", "MTP layers"], set()),
    ],
)
def test_what_the_target_has_no_draft_of_is_not_among_the_usual_ways(
    panel, pair: str, shown: list, missing: set
) -> None:
    choices = panel._choices(pair)
    assert [label for _, label in choices[2:4]] == shown
    last = [label for words, label in choices if "known" in words]
    assert missing <= {*last} and last == [label for _, label in choices[len(choices) - len(last) :]]
    assert bool(last) == bool(missing)


def test_a_head_of_the_pair_s_own_target_is_the_draft_that_nobody_typed(monkeypatch) -> None:
    """The shipped head may be loaded on a public page too, and no other."""
    monkeypatch.setattr(pair_panel, "plan_pair", lambda model, drafting, options: drafting)
    with gr.Blocks():
        public, local = (PairPanel(None, limits, None) for limits in (replace(PUBLIC, pairs="listed"), LOCAL))
    for panel in (public, local):
        assert panel._plan("embedded", "", "", "EAGLE-3 head") == specdec.Eagle3("embedded")
    asked = ("Qwen3-8B <- DFlash", "", "", "DSpark head")
    assert local._plan(*asked).describe()["text"] == "dspark:deepseek-ai/dspark_qwen3_8b_block7"
    with pytest.raises(InvalidInput, match="only the pairs of its list"):
        public._plan(*asked)


def test_the_panel_says_what_the_models_of_a_pair_are() -> None:
    said = pair_panel._preset_line("embedded")
    assert "Target: a built-in story model (20 layers, 9.6M parameters). Draft: a smaller one (2 layers, 1.7M)." in said
    assert "Draft: a head (1 layer, 1.5M)." in pair_panel._preset_line("embedded <- EAGLE-3 head")
    said = pair_panel._preset_line("Qwen2.5-7B <- 0.5B")
    assert "Target: Qwen/Qwen2.5-7B (7.6B parameters). Draft: Qwen/Qwen2.5-0.5B (494M)." in said


def test_the_layers_of_the_shipped_pairs_are_those_of_their_files() -> None:
    for preset in PRESETS:
        if preset.target is None:
            parts = ("target", "head" if preset.draft else "draft")
            configs = (json.loads((EMBEDDED / part / "config.json").read_text()) for part in parts)
            assert preset.layers == tuple(config["num_hidden_layers"] for config in configs)


def test_the_list_names_pairs_in_words_and_asks_for_them_by_their_names(panel) -> None:
    shown = {value: label for label, value in panel.preset.choices}
    assert shown["embedded"] == "Built-in story model (embedded) with a smaller draft"
    assert shown[GPT2] == "gpt2-large with draft gpt2" and not any("<-" in label for label in shown.values())
    assert [*shown] == [*(preset.name for preset in PRESETS), OWN]


def test_nothing_can_be_typed_into_a_fixed_list() -> None:
    """Gradio would drop it. Where any pair may be loaded, the field takes every text."""
    with gr.Blocks():
        fixed, free = (PairPanel(None, limits, None).preset for limits in (replace(PUBLIC, pairs="listed"), LOCAL))
    assert (fixed.filterable, fixed.allow_custom_value) == (False, False)
    assert (free.filterable, free.allow_custom_value) == (True, True)


def test_the_panel_says_how_a_typed_pair_is_read() -> None:
    for typed, said in (
        ("a <- b", "It is read as target 'a' and draft 'b'."),
        ("a", "It is read as target 'a'."),
        ("", "No pair is chosen."),
    ):
        assert said in unescape(pair_panel._preset_line(typed))
