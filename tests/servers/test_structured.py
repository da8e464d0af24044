"""How servers are asked for a text that obeys a grammar."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher, LLTokenizer
from servers.cases import asked

from specdec.errors import BadSetting
from specdec.events import JSON_STYLE, Grammar
from specdec.servers.structured import llamacpp_grammar, sglang_grammar, vllm_grammar
from specdec.servers.vllm import Vllm

SCHEMA = {
    "type": "object",
    "properties": {"zoo": {"enum": ["red"]}, "age": {"const": [1, 2]}},
    "required": ["zoo", "age"],
    "additionalProperties": False,
}
AS_PYTHON = '{"zoo": "red", "age": [1, 2]}'
TEXTS = [AS_PYTHON, '{"zoo":"red","age":[1,2]}', '{\n  "zoo": "red",\n  "age": [1, 2]\n}']


def allowed(grammar: str, text: str) -> bool:
    """Whether llguidance lets this text be written as a whole."""
    matcher = LLMatcher(LLTokenizer("byte"), grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


def in_vllm(grammar: Grammar) -> list[str]:
    """The texts that vLLM allows with llguidance, where any white space is allowed unless the schema says otherwise."""
    schema = json.dumps(vllm_grammar(grammar)["json"])
    made = LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})
    return [text for text in TEXTS if allowed(made, text)]


def here(grammar: Grammar) -> list[str]:
    made = LLMatcher.grammar_from_json_schema(grammar.text, defaults=JSON_STYLE)
    return [text for text in TEXTS if allowed(made, text)]


def test_vllm_is_asked_for_the_white_space_of_the_other_lanes() -> None:
    grammar = Grammar.json_schema(SCHEMA)
    assert in_vllm(grammar) == here(grammar) == [AS_PYTHON]
    assert list(vllm_grammar(grammar)["json"]["properties"]) == ["zoo", "age"]  # their order is that of the text


@pytest.mark.parametrize("style", [{"item_separator": ","}, {"whitespace_flexible": True}, "no object"])
def test_a_schema_may_ask_for_its_own_white_space(style) -> None:
    grammar = Grammar.json_schema(SCHEMA | {"x-guidance": style})
    own = style if isinstance(style, dict) else {}
    assert vllm_grammar(grammar)["json"]["x-guidance"] == JSON_STYLE | own
    if own:
        assert in_vllm(grammar) == here(grammar)


def test_a_request_to_vllm_holds_the_grammar_and_no_setting_that_it_ignores() -> None:
    for grammar, told in (
        (Grammar("json-schema", "true"), {"json": {"x-guidance": JSON_STYLE}}),
        (Grammar("regex", "[a-z]+"), {"regex": "[a-z]+"}),
        (Grammar("lark", 'start: "a"'), {"grammar": 'start: "a"'}),
        (Grammar.json_schema(SCHEMA), {"json": SCHEMA | {"x-guidance": JSON_STYLE}}),
    ):
        assert Vllm().request(asked("Once", grammar=grammar), "m")[1]["structured_outputs"] == told
    assert "structured_outputs" not in Vllm().request(asked("Once"), "m")[1]


@pytest.mark.parametrize("spelled", [vllm_grammar, sglang_grammar, llamacpp_grammar])
def test_a_function_is_no_text_for_a_server(spelled) -> None:
    with pytest.raises(BadSetting, match="function, which no server can be given"):
        spelled(Grammar.function(lambda ids: [1]))


def test_a_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadSetting, match="grammar is no JSON schema"):
        vllm_grammar(Grammar("json-schema", "{"))
