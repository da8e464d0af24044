"""One schema of recordings: the Python reader, the scripts' check and their types agree."""

from __future__ import annotations

import re

import pytest

import specdec
from specdec.report import schema


@pytest.mark.parametrize("name", schema.files())
def test_the_files_of_the_scripts_are_those_of_the_code(name: str) -> None:
    """The scripts' files are up to date; ``python -m specdec.report.schema`` writes them."""
    assert (schema.ASSETS / name).read_text(encoding="utf-8") == schema.files()[name]


def words(part: dict) -> set[str]:
    """The JSON Schema keywords in a part of our schema, without names of fields and types."""
    found = set(part)
    for word in ("items", "additionalProperties"):
        if isinstance(part.get(word), dict):
            found |= words(part[word])
    for each in [*part.get("anyOf", []), *part.get("prefixItems", []), *part.get("properties", {}).values()]:
        found |= words(each)
    return found


def test_the_scripts_know_every_word_of_the_schema() -> None:
    """The scripts know every keyword of the schema. An unknown one would break every file and link."""
    script = (schema.ASSETS / "schema.js").read_text(encoding="utf-8")
    known = set(re.findall(r"^  (\$?\w+): \(value", script.split("const WORDS")[1], re.M))
    used = set().union(*(words(part) for part in schema.schema()["types"].values()))
    assert used <= known


def test_every_text_list_and_number_is_bounded() -> None:
    """Every text, list and number has a bound, so that a forged file cannot make the page draw without end."""

    def loose(part: dict) -> bool:
        bounds = {"string": {"maxLength", "const", "enum"}, "array": {"maxItems"}}
        bounds |= {"integer": {"maximum", "const"}, "number": {"maximum"}}
        mine = part.get("type") in bounds and not bounds[part["type"]] & set(part)
        inner = [*part.get("anyOf", []), *part.get("prefixItems", []), *part.get("properties", {}).values()]
        inner += [part[word] for word in ("items", "additionalProperties") if isinstance(part.get(word), dict)]
        return mine or any(map(loose, inner))

    assert [name for name, part in schema.schema()["types"].items() if loose(part)] == []


def test_a_recording_may_lack_what_a_verdict_got_later() -> None:
    """Within a version, the reader and the scripts take a verdict without those fields, and with them."""
    types = schema.schema()["types"]
    assert "chart" in types["VerdictLine"]["required"]
    for name, added in schema.ADDED.items():
        assert not added & set(types[name]["required"]) and added < set(types[name]["properties"])
    line = '{"event":"verdict","kind":"faster","sentence":"a","notes":[],"stopped":false}'
    assert schema.parse(line, 1).checks is None


def test_an_event_is_read_with_its_own_types() -> None:
    line = (
        '{"event":"round","index":0,"draft":[],"token_id":5,"token_kind":"target","committed_ids":[5],'
        '"draft_seconds":0,"verify_seconds":null,"elapsed_seconds":1,"tokens":{"5":"a"}}'
    )
    event = schema.event_of(schema.parse(line, 1))
    assert event == specdec.Round(0, (), 5, "target", (5,), 0.0, None, 1.0)
    with pytest.raises(specdec.InvalidInput, match="its committed_ids"):
        schema.parse(line.replace("[5]", '["5"]'), 1)
    with pytest.raises(specdec.InvalidInput, match="its mood"):
        schema.parse(line.replace('"index"', '"mood":1,"index"'), 1)
