"""Schemas and expressions whose texts are short, so that a random model comes to their end."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy
import torch
from jsonschema import Draft202012Validator
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from transformers import LogitsProcessor

from specdec.events import JSON_STYLE, Grammar

WORD = {"type": "string", "maxLength": 5}
NAME = {"type": "string", "pattern": "^[A-Z][a-z]{1,4}$"}
AGE = {"type": "integer", "minimum": 0, "maximum": 120}
DIGIT = {"type": "integer", "minimum": 1, "maximum": 9}
POINT = {"$ref": "#/$defs/point"}
COLOUR = {"enum": ["red", "green", "dark blue"]}


def of(**fields: Any) -> dict[str, Any]:
    """An object that has all of these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


SCHEMAS: dict[str, Any] = {
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "integer": AGE,
    "negative": {"type": "integer", "minimum": -30, "maximum": -7},
    "number": {"type": "number", "multipleOf": 5, "minimum": 0, "maximum": 50},
    "enum": COLOUR,
    "enum of kinds": {"enum": [1, "one", None, True, [1, 2], {"a": 1}]},
    "constant": {"const": {"kind": "fixed", "of": [1, 2, 3]}},
    "word": WORD,
    "pattern": NAME,
    "time": {"type": "string", "format": "time"},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "person": of(name=NAME, age=AGE),
    "optional": {**of(name=NAME, age=AGE), "required": ["age"]},
    "nested": of(person=of(name=NAME, age=AGE), colour=COLOUR),
    "deep": of(a=of(b=of(c=of(d={"type": "boolean"})))),
    "list": {"type": "array", "items": COLOUR, "minItems": 1, "maxItems": 3},
    "empty list": {"type": "array", "maxItems": 0},
    "tuple": {"type": "array", "prefixItems": [NAME, AGE, {"type": "boolean"}], "items": False, "minItems": 3},
    "list of objects": {"type": "array", "items": of(x=AGE, y=AGE), "minItems": 2, "maxItems": 2},
    "any of": {"anyOf": [NAME, AGE, {"type": "null"}]},
    "one of objects": {"anyOf": [of(kind={"const": "a"}, x=AGE), of(kind={"const": "b"}, word=NAME)]},
    "reference": {"$defs": {"point": of(x=AGE, y=AGE)}, **of(start=POINT, end=POINT)},
    "all of": {"allOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 40}]},
    "tool call": of(name={"enum": ["weather", "clock"]}, arguments=of(city=NAME, days=DIGIT)),
    "letters beyond ASCII": {"enum": ["na\u00efve", "\u65e5\u672c\u8a9e", "\U0001f642"]},
    "escapes": {"enum": ['say "hi"', "a\\b", "line\nbreak", "\u0000"]},
    "long key": of(**{"a rather long key that no token holds as a whole": {"type": "boolean"}}),
}  # fmt: skip

EXPRESSIONS: dict[str, str] = {
    "digits": "[0-9]{3}",
    "phone": r"\+[0-9]{2} [0-9]{3}-[0-9]{4}",
    "choice": "(yes|no|perhaps)",
    "prefixes": "(a|ab|abc|abcd)",
    "optional": "colou?r(ed)?",
    "up to": "x{0,6}",
    "nothing": "()",
    "words": "([a-z]{1,4} ){2}[a-z]{1,4}",
    "date": "20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]",
    "hex": "#[0-9a-f]{6}",
    "not": "[^a-z]{4}",
    "dot": ".{5}",
    "new line": "a\nb[\n\t ]c",
    "class": r"\w{2}\s\d{2}",
    "beyond ASCII": "(caf\u00e9|\u65e5\u672c|\U0001f642){2}",
    "nested": "((a|b)(c|d)){3}",
    "same beginnings": "(interest|interests|interested|interesting)",
    "quoted": '"[a-z ]{2,6}"',
    "address": "[a-z]{1,5}@[a-z]{1,5}\\.(com|org)",
    "even": "(ab){2,4}",
}

GRAMMARS = {name: Grammar.json_schema(schema) for name, schema in SCHEMAS.items()} | {
    f"/{name}/": Grammar("regex", text) for name, text in EXPRESSIONS.items()
}


def require_obeyed(name: str, text: str) -> None:
    """Hold a whole text against a grammar of ``GRAMMARS``, without llguidance."""
    if name in SCHEMAS:
        checker = Draft202012Validator.FORMAT_CHECKER
        Draft202012Validator(SCHEMAS[name], format_checker=checker).validate(json.loads(text))
    else:
        assert re.fullmatch(EXPRESSIONS[name.strip("/")], text)


class Afresh(LogitsProcessor):
    """What a grammar allows, read by llguidance from the first new token on at each place: no state, no way back."""

    def __init__(self, grammar: Grammar, tokenizer: Any, vocabulary: int, eos: Collection[int], prompt: int):
        self._reader = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=sorted(eos))
        self._text = (
            LLMatcher.grammar_from_json_schema(grammar.text, defaults=JSON_STYLE)
            if grammar.kind == "json-schema"
            else LLMatcher.grammar_from_regex(grammar.text)
        )
        self._vocabulary, self._eos, self._prompt = vocabulary, set(eos), prompt

    def allowed(self, new: Sequence[int]) -> set[int]:
        matcher = LLMatcher(self._reader, self._text)
        assert not matcher.is_error(), matcher.get_error()
        assert matcher.consume_tokens(list(itertools.takewhile(lambda token: token not in self._eos, new)))
        bits = numpy.unpackbits(numpy.frombuffer(matcher.compute_bitmask(), numpy.uint8), bitorder="little")
        return set(bits[: self._vocabulary].nonzero()[0].tolist())

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        allowed = sorted(self.allowed(input_ids[0, self._prompt :].tolist()))
        masked = torch.full_like(scores, float("-inf"))
        masked[:, allowed] = scores[:, allowed]
        return masked
