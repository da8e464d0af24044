"""How each engine is asked for a text that obeys a grammar. Each by its own documentation; vLLM's was tried.

vLLM 0.32 takes the white space of JSON from a setting of its start, and ignores that of a request. Its library for
grammars is xgrammar, or llguidance if it was started with ``GUIDANCE``. Only llguidance reads the white space that a
schema asks for, so only then is the text that of the other lanes. Where only one text may follow, llguidance allows one
token for it, and xgrammar also shorter ones; so greedy texts of the two may differ after that.
"""

from __future__ import annotations

import json
import re
from typing import Any

from specdec.errors import BadSetting
from specdec.events import JSON_STYLE, Grammar

GUIDANCE = {"backend": "guidance"}  # vLLM's setting ``structured_outputs_config``
# A ``~`` in Lark's notation, after the strings, expressions and comments that may hold one too; ``~ 3`` repeats.
_COMPLEMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\])+/|(~)(?!\s*\d)')


def allows_no_text(grammar: Grammar) -> bool:
    """Whether a grammar in Lark's notation allows bytes that are no text: with ``~``, or with an option of llguidance.

    llguidance writes special tokens in such bytes, so vLLM allows them too. The lanes on this machine leave them out.
    """
    if grammar.kind != "lark":
        return False
    return "allow_invalid_utf8" in grammar.text or any(found[1] for found in _COMPLEMENT.finditer(grammar.text))


def vllm_grammar(grammar: Grammar) -> dict[str, Any]:
    """The value of ``structured_outputs`` in a request to vLLM, or the arguments of its ``StructuredOutputsParams``."""
    name = {"json-schema": "json", "regex": "regex", "lark": "grammar"}.get(grammar.kind)
    if name is None:
        raise _only_texts()
    if name == "json":
        return {name: _styled(_schema(grammar))}
    return {name: grammar.text}


def sglang_grammar(grammar: Grammar) -> dict[str, Any]:
    """Fields of a request to SGLang."""
    if grammar.kind == "lark":
        raise BadSetting("grammar is in Lark's notation, and SGLang reads another one; give a JSON schema or a regex.")
    name = {"json-schema": "json_schema", "regex": "regex"}.get(grammar.kind)
    if name is None:
        raise _only_texts()
    return {name: grammar.text}


def llamacpp_grammar(grammar: Grammar) -> dict[str, Any]:
    """Fields of a request to llama.cpp."""
    if grammar.kind == "function":
        raise _only_texts()
    if grammar.kind != "json-schema":
        raise BadSetting(f"grammar is a {grammar.kind}, and llama.cpp takes no such text; give a JSON schema.")
    return {"json_schema": _schema(grammar)}


def _styled(schema: Any) -> Any:
    """The schema with the white space of the other lanes, unless it asks for its own. Other libraries ignore it."""
    if not isinstance(schema, dict):
        return schema
    own = schema.get("x-guidance")
    return schema | {"x-guidance": JSON_STYLE | (own if isinstance(own, dict) else {})}


def _schema(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.text)
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"grammar is no JSON schema: {error}.") from None


def _only_texts() -> BadSetting:
    return BadSetting("grammar is a function, which no server can be given; give a JSON schema or a regex.")
