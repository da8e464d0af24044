"""Grammars that cannot be used are refused in a sentence, and those that cost too much end in one."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
from fakes import byte_tokenizer, prompt_of, random_table, table_model

import specdec
from specdec.engine.request import make_request
from specdec.events import Grammar
from specdec.report.schema import LONGEST_TEXT
from specdec.servers.structured import llamacpp_grammar, vllm_grammar
from specdec.ui.jobs.limits import LOCAL
from tests.grammar.test_grammar_equality import EOS, pair_of

PROMPT = prompt_of(4)


def asked(grammar, **settings) -> list:
    params = specdec.SamplingParams(max_new_tokens=30, grammar=grammar, **settings)
    return list(specdec.speculative(pair_of("model"), PROMPT, gamma=3, params=params))


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (Grammar("regex", "((("), "cannot be read as a regular expression: unclosed group"),
        (Grammar("regex", "(?=a)b"), "regular expression: look-around"),
        (Grammar("regex", "[^\\x00-\\U0010ffff]"), "allows no text that the target's tokenizer can begin"),
        (Grammar("json-schema", "{"), "cannot be read as a JSON schema"),
        (Grammar("json-schema", "false"), "a schema is an object in braces, or true"),
        (Grammar("json-schema", "[]"), "a schema is an object in braces, or true"),
        (Grammar("json-schema", '{"type": "what"}'), "cannot be read as a JSON schema"),
        (Grammar("json-schema", '{"$ref": "http://127.0.0.1:1/a.json"}'), "retrieving it failed"),
        (Grammar("json-schema", '{"$ref": "#"}'), "allows no text"),
        (Grammar("json-schema", '{"anyOf": [' * 300 + "{}" + "]}" * 300), "recursion limit"),
        (Grammar("lark", "start: missing"), "cannot be read as a Lark grammar"),
        (Grammar("lark", "no grammar"), "cannot be read as a Lark grammar"),
        (
            Grammar("lark", 'start: "a" mid\nmid [stop="]", temperature=0.5]: /b+/'),
            "would have no effect; leave it out",
        ),
        (Grammar("regex", "(a{1000}){1000}"), "takes too long to follow|cannot be read"),
        (Grammar("function", "brackets"), "does not hold the function"),
        (lambda ids: [400], "allows the token id 400; the target has the ids 0 to 319"),
        (lambda ids: __import__("torch").ones(3, dtype=bool), r"mask of shape \(3,\); give \(320,\)"),
        (lambda ids: [], "allows no token after the text so far"),
    ],
)
def test_what_cannot_be_used_ends_in_a_sentence(grammar, said: str) -> None:
    with pytest.raises(specdec.SpecdecError, match=said) as caught:
        asked(grammar)
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, "[0-9]+", ["a"]])
def test_another_value_is_no_grammar(value) -> None:
    with pytest.raises(specdec.InvalidInput, match="give a Grammar, a JSON schema as a dict, or a function"):
        specdec.SamplingParams(grammar=value)
    with pytest.raises(specdec.InvalidInput, match="draft_mask is 1; give True or False"):
        specdec.SamplingParams(draft_mask=1)  # type: ignore[arg-type]
    for kind, text in (("gbnf", "a"), ("regex", " "), ("lark", 'start: "\ud800"')):
        with pytest.raises(specdec.InvalidInput, match="the kinds are json-schema, regex, lark|give the text|half of"):
            Grammar(kind, text)  # type: ignore[arg-type]
    for half in ("\ud83d", "\ude00\ud83d", "\ud83d\ude00\ude00"):
        with pytest.raises(specdec.InvalidInput, match="half of a surrogate pair"):
            specdec.SamplingParams(grammar={"enum": [half]})  # type: ignore[arg-type]


def test_two_halves_of_a_character_are_that_character() -> None:
    smile = Grammar.json_schema({"enum": ["\U0001f600"], "\U0001f600": 1})
    assert Grammar.json_schema({"enum": ["\ud83d\ude00"], "\ud83d\ude00": 1}) == smile
    events = asked({"enum": ["\ud83d\ude00"]})
    assert byte_tokenizer().decode(specdec.collect(events).token_ids[:-1]) == '"\U0001f600"'


def nested(depth: int) -> dict:
    found: dict = {}
    for _ in range(depth):
        found = {"not": found}
    return found


@pytest.mark.parametrize("schema", [{"enum": {1, 2}}, {"maximum": float("nan")}, nested(100_000), {("a",): 1}])
def test_a_dict_that_json_cannot_hold_is_refused(schema: dict) -> None:
    with pytest.raises(specdec.InvalidInput, match="grammar cannot be written as JSON .*; give a schema of plain"):
        specdec.SamplingParams(grammar=schema)  # type: ignore[arg-type]


def test_a_grammar_needs_an_end_a_tokenizer_and_the_library(monkeypatch) -> None:
    with pytest.raises(specdec.InvalidInput, match="set ignore_eos to False"):
        asked(Grammar("regex", "a"), ignore_eos=True)
    pair = specdec.Pair(target=table_model(random_table(4, 1, seed=0), eos=1))
    with pytest.raises(specdec.InvalidInput, match="the pair has no tokenizer; give a function of token ids"):
        make_request(pair, PROMPT % 4, specdec.SamplingParams(grammar=Grammar("regex", "a")))
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(specdec.InvalidInput, match="needs the package llguidance"):
        asked(Grammar("regex", "a"))
    assert asked(lambda ids: [EOS] if ids else [5])


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "(a+)+b"),
        Grammar("regex", "((a|a)*)*b"),
        Grammar("regex", "(a|b)*a(a|b){60}"),
        Grammar("regex", ".{1000}{1000}"),
        Grammar("json-schema", json.dumps({"enum": [str(i) for i in range(20_000)]})),
        Grammar("json-schema", '{"type": "string", "minLength": 1000000}'),
        Grammar("lark", 'start: start start | "a"'),
    ],
)
def test_an_ambiguous_or_large_grammar_is_followed_all_the_same(grammar: Grammar) -> None:
    events = asked(grammar)
    text = byte_tokenizer().decode(specdec.collect(events).token_ids)
    assert text and events[-1].finish_reason in ("length", "eos")


def test_a_dict_is_a_schema_and_settings_are_plain_values() -> None:
    schema = {"enum": ["caf\u00e9"]}
    params = specdec.SamplingParams(grammar=schema)  # type: ignore[arg-type]
    assert params.grammar == Grammar.json_schema(schema) == Grammar("json-schema", '{"enum": ["caf\u00e9"]}')
    assert pickle.loads(pickle.dumps(params)) == params and hash(params)
    assert Grammar.json_schema(True) == Grammar.json_schema(" true ") == Grammar.json_schema({})
    function = specdec.SamplingParams(grammar=len)  # type: ignore[arg-type]
    assert function.grammar == Grammar.function(len) != Grammar.function(max)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(function)) == function and (function.grammar.kind, function.grammar.text) == (
        "function", "len",
    )  # fmt: skip


def test_a_schema_that_is_too_deep_for_a_server_is_refused() -> None:
    deep = Grammar("json-schema", '{"not": ' * 100_000 + "1" + "}" * 100_000)
    for asked_in in (vllm_grammar, llamacpp_grammar):
        with pytest.raises(specdec.InvalidInput, match="grammar is no JSON schema"):
            asked_in(deep)


def test_a_page_takes_no_longer_grammar_than_it_reads_from_a_recording() -> None:
    assert LOCAL.grammar_characters <= LONGEST_TEXT
