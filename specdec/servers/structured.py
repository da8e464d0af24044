"""How each engine is asked for a text that obeys a grammar. Each by its own documentation; vLLM's was tried."""

from __future__ import annotations

import json
from typing import Any

from specdec.errors import BadSetting
from specdec.events import Grammar


def vllm_grammar(grammar: Grammar) -> dict[str, Any]:
    """The value of ``structured_outputs`` in a request to vLLM, or the arguments of its ``StructuredOutputsParams``."""
    name = {"json-schema": "json", "regex": "regex", "lark": "grammar"}.get(grammar.kind)
    if name is None:
        raise _only_texts()
    if name == "json":
        return {name: _schema(grammar), "disable_any_whitespace": True}  # as in the other lanes
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


def _schema(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.text)
    except ValueError as error:
        raise BadSetting(f"grammar is no JSON schema: {error}.") from None


def _only_texts() -> BadSetting:
    return BadSetting("grammar is a function, which no server can be given; give a JSON schema or a regex.")
