"""A race as the form, a link and a recording ask for it."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import gradio as gr
import pytest
from fakes import byte_tokenizer, shared_tiny

import specdec
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.report.link_settings import PARAMS
from specdec.ui.fields import LABELS
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.jobs.race_settings import RaceSettings, from_recording
from specdec.ui.jobs.race_stream import refusal
from specdec.ui.tabs.race_form import FORM_FIELDS, RaceForm

FORM = {
    "prompt": "Once", "gamma": 5, "choice": "fixed", "confidence": 0.4, "tokens": 64, "temperature": 0, "lanes": [],
    "seed": "", "top_k": 0, "top_p": 1, "min_p": 0, "penalty": 1, "accept_top_k": "", "block": False,
    "ignore_eos": False, "chat": False, "grammar": "", "grammar_text": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def panel() -> RaceForm:
    panel = RaceForm(LOCAL)
    with gr.Blocks():
        panel.prompt_field("Once")
        panel.setting_fields()
        panel.chat_field()
        panel.grammar_fields()
    return panel


def read(panel: RaceForm, **changes) -> RaceSettings:
    values = FORM | changes
    return panel.read(*(values[name] for name in FORM_FIELDS))


@pytest.mark.parametrize("gamma", [0, 16, "auto", "confidence:0.25"])
def test_a_draft_length_goes_through_form_link_and_recording(panel, gamma) -> None:
    lengths = dict(zip(("gamma", "choice", "confidence"), panel.length_values(gamma), strict=True))
    kept = {name: value for name, value in lengths.items() if value != gr.skip()}
    asked = read(panel, **kept)
    assert asked.gamma == gamma
    settings = asked.settings()
    assert from_recording(settings, LOCAL) == asked
    values, problems = panel.restore({name: str(value) for name, value in settings.items()}, chat=False)
    assert problems == {} and dict(zip(FORM_FIELDS, values, strict=True)).get("choice") == lengths["choice"]


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"choice": "confidence", "confidence": 2}, "least_confidence is 2;"),
        ({"choice": "confidence", "confidence": None}, "Confidence is empty"),
        ({"choice": "confidence", "confidence": "x" * 999}, "least_confidence is 'xxx"),
        ({"choice": "anyhow"}, "does not say how γ is chosen"),
        ({"gamma": None}, "Draft length γ is empty"),
    ],
)
def test_what_makes_no_draft_length_is_a_sentence(panel, changes, complaint) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read(panel, **changes)


def test_a_link_with_no_draft_length_keeps_the_form(panel) -> None:
    values, problems = panel.restore({"gamma": "confidence:5"}, chat=False)
    assert values == [gr.skip()] * len(FORM_FIELDS)
    said = problems["gamma"]
    assert said.startswith("The link's gamma 'confidence:5' was not used") and "5 is used instead" in said


def test_block_verification_goes_through_form_link_and_recording(panel) -> None:
    asked = read(panel, block=True)
    assert asked.acceptance == "block" and asked.accept_top_k is None
    settings = asked.settings()
    assert settings["block"] == 1 and from_recording(settings, LOCAL) == asked
    values, problems = panel.restore({name: str(value) for name, value in settings.items()}, chat=False)
    assert problems == {} and dict(zip(FORM_FIELDS, values, strict=True))["block"] is True
    assert "block" not in read(panel).settings()


@pytest.mark.parametrize(
    "kind, text", [("json-schema", '{"enum": ["a:b", 1]}'), ("regex", "a:+"), ("lark", 'start: "x"')]
)
def test_a_grammar_goes_through_form_link_and_recording(panel, kind, text) -> None:
    asked = read(panel, grammar=kind, grammar_text=text)
    assert asked.params.grammar == specdec.Grammar(kind, text)
    settings = asked.settings()
    assert settings["grammar"] == f"{kind}:{text}" and from_recording(settings, LOCAL) == asked
    values, problems = panel.restore({name: str(value) for name, value in settings.items()}, chat=False)
    restored = dict(zip(FORM_FIELDS, values, strict=True))
    assert problems == {} and restored["grammar"] == kind and restored["grammar_text"] == text
    assert "grammar" not in read(panel, grammar_text=text).settings(), "a text alone is none"


@pytest.mark.parametrize(
    "link, said",
    [
        ("gbnf:root", "grammar is a 'gbnf'; the kinds are"),
        ("regex:", "give the text of a regex"),
        ("regex:" + "a" * 5000, "has 5,000 characters; this page reads at most 4,000"),
    ],
)
def test_a_grammar_of_a_link_that_cannot_be_used_is_left_out_in_a_sentence(link, said) -> None:
    form = RaceForm(PUBLIC)
    values, problems = form.restore({"grammar": link}, chat=False)
    assert values == [gr.skip()] * len(FORM_FIELDS)
    assert said.replace("grammar", LABELS["grammar"], 1) in problems["grammar"] or said in problems["grammar"]
    with pytest.raises(InvalidInput, match="cannot be used here"):
        from_recording({"prompt": "a", "grammar": link}, PUBLIC)


def test_a_race_whose_draft_ignored_the_grammar_is_not_repeated_as_another(panel) -> None:
    asked = read(panel, grammar="regex", grammar_text="a+")
    settings = replace(asked, params=replace(asked.params, draft_mask=False)).settings()
    with pytest.raises(InvalidInput, match="draft_mask"):
        from_recording(settings, LOCAL)


def test_block_verification_and_lossy_acceptance_exclude_each_other(panel) -> None:
    with pytest.raises(InvalidInput, match="exclude each other"):
        read(panel, block=True, accept_top_k="3")


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"tokens": 0}, "New tokens is 0; give 1 or more."),
        ({"tokens": 2.5}, "New tokens is 2.5; give a whole number."),
        ({"tokens": 9999}, "New tokens is 9999; this page allows"),
        ({"temperature": -1}, "Temperature is -1;"),
        ({"temperature": 0.001}, "Temperature 0.001 is between"),
        ({"top_k": -1}, "Top-k is -1;"),
        ({"top_p": 2}, "Top-p is 2;"),
        ({"min_p": 2}, "Min-p is 2;"),
        ({"penalty": 0}, "Repetition penalty is 0;"),
        ({"seed": "soon"}, "Seed is 'soon';"),
        ({"seed": "-1"}, "Seed is -1;"),
        ({"seed": str(2**60)}, f"Seed is {2**60}, above"),
        ({"gamma": 40}, "Draft length \u03b3 is 40;"),
        ({"gamma": 2.5}, "Draft length \u03b3 is 2.5;"),
        ({"choice": "confidence", "confidence": 2}, "Confidence is 2;"),
        ({"accept_top_k": "0"}, "Lossy: accept if in the target's top k is 0;"),
        ({"accept_top_k": "many"}, "Lossy: accept if in the target's top k is 'many';"),
    ],
)
def test_a_refused_value_is_called_by_the_label_of_its_field(panel, changes, said) -> None:
    """Also what only the engine refuses, when the race begins."""
    target = shared_tiny("llama", 4, layers=2)
    with pytest.raises(SpecdecError) as refused:
        asked = read(panel, **changes)
        LOCAL.take(asked.params.max_new_tokens)
        list(asked.task.run(specdec.Pair(target=target, draft=target, tokenizer=byte_tokenizer())))
    assert json.loads(refusal(refused.value).splitlines()[-1])["message"].startswith(said)


def test_a_refused_value_of_a_link_is_called_by_the_label_of_its_field(panel) -> None:
    _, problems = panel.restore({"tokens": "0", "top_p": "2"}, chat=False)
    assert "(New tokens is 0; give 1 or more)" in problems["tokens"] and "(Top-p is 2.0;" in problems["top_p"]


def test_every_setting_of_the_form_has_a_label() -> None:
    shown = {field.name for field in fields(SamplingParams)} - {"stop", "draft_mask"}  # the page has a lane for that
    assert shown == {*PARAMS.values(), "ignore_eos", "grammar"} and shown <= LABELS.keys()
