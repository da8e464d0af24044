"""The schema of a recording's lines, which Python reads them with and the browser checks them with.

A link packs a race, and a results file, by the order of the fields in it. A lane's lines have the fields of its events,
and the last line has those of ``Verdict``. The other lines about a whole race are defined below. The scripts get the
schema as ``recording_schema.js`` and the types as ``recording.d.ts``, both in ``ui/assets/race``. After a change, write
them with ``python -m specdec.report.schema``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict  # pydantic supports the standard one only from Python 3.12 on

from specdec.errors import InvalidInput
from specdec.events import DraftToken, Event, Finished, Round, Started
from specdec.facts import OPEN
from specdec.measure.results import format as results_format
from specdec.report.verdict import STRICT, LaneEnd, Verdict

# Raise it when a line of an older version could be read wrongly, never for a new field with a default: recordings of
# another version are refused, those that ship included.
VERSION = 5
# Fields by type that came within this version: recordings may lack them.
ADDED = {"VerdictLine": {"checks"}, "Why": {"causes"}}
ASSETS = Path(__file__).parents[1] / "ui" / "assets" / "race"

# A browser draws what it reads. More than this in one place is no recording of a race.
LONGEST_TEXT, MOST_ITEMS, LARGEST_NUMBER = 100_000, 1_000_000, 1e15
LARGEST_WHOLE = 2**53 - 1  # the largest whole number that a browser keeps exactly

Tokens: TypeAlias = dict[str, str]  # the bytes of each token id, one character for each byte
Plain: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLine(Started):
    event: Literal["started"]
    version: int = VERSION
    tokens: Tokens = field(default_factory=dict)
    head: list[str] = field(default_factory=list)
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine(Round):
    event: Literal["round"]
    draft: Annotated[tuple[DraftToken, ...], Field(max_length=64)] | None
    drafted_by: Annotated[str, Field(max_length=100)] | None = None
    tokens: Tokens = field(default_factory=dict)
    __pydantic_config__ = STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLine(Finished):
    event: Literal["finished"]
    __pydantic_config__ = STRICT


@with_config(OPEN)
class Begin(TypedDict):
    """The first line of a race. That of a refused race has only its number, and is never saved."""

    event: Literal["begin"]
    version: int
    at: Annotated[float, Field(ge=0, lt=1e11)]
    pair: str
    settings: dict[str, Plain]
    lanes: Annotated[list[str], Field(min_length=1, max_length=100)]
    runs: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine(Verdict):
    """The last line of a race."""

    event: Literal["verdict"]
    __pydantic_config__ = STRICT | ConfigDict(json_schema_serialization_defaults_required=True)


@with_config(OPEN)
class ErrorLine(TypedDict):
    """The line in place of a verdict if a race failed: the reason."""

    event: Literal["error"]
    message: str


# Before a part of a long race that is sent to the page: the number of its first line. Never saved.
Part = TypedDict("Part", {"event": Literal["part"], "number": int, "from": int})

Line = Annotated[
    StartedLine | RoundLine | FinishedLine | Begin | LaneEnd | VerdictLine | ErrorLine | Part,
    Field(discriminator="event"),
]
_LINES: TypeAdapter[Any] = TypeAdapter(Line)
_EVENTS: dict[type, type] = {StartedLine: Started, RoundLine: Round, FinishedLine: Finished}


def parse(text: str | bytes, number: int) -> Any:
    """Read a line of a recording: one of the types above. The error names ``number``."""
    try:
        return _LINES.validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidInput(f"Line {number} is not a line of a recording: its {place(error)} is wrong.") from error


def place(error: ValidationError) -> str:
    """The field that is wrong, or "kind" for a line of an unknown kind."""
    where = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    return str(where[1]) if len(where) > 1 else "kind"


def event_of(parsed: Any) -> Event | None:
    """The event of a line; None for a line about the whole race."""
    kind = _EVENTS.get(type(parsed))
    return None if kind is None else kind(**{f.name: getattr(parsed, f.name) for f in fields(kind)})


# The code below writes the files for the scripts.


class _Bounded(GenerateJsonSchema):
    """The schema without titles, and with a bound on every text, list and number that has none."""

    def str_schema(self, schema: Any) -> dict[str, Any]:
        return {"maxLength": LONGEST_TEXT} | super().str_schema(schema)

    def list_schema(self, schema: Any) -> dict[str, Any]:
        return {"maxItems": MOST_ITEMS} | super().list_schema(schema)

    def tuple_schema(self, schema: Any) -> dict[str, Any]:
        return {"maxItems": MOST_ITEMS} | super().tuple_schema(schema)

    def int_schema(self, schema: Any) -> dict[str, Any]:
        return {"minimum": -LARGEST_WHOLE, "maximum": LARGEST_WHOLE} | super().int_schema(schema)

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {"minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER} | super().float_schema(schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        # Unknown fields are refused in all of them. pydantic 2.12 does so too, but leaves it out of the schema of those
        # that have the setting from the dataclass around them.
        return super().dataclass_schema(schema) | {"additionalProperties": False}


_DROPPED = {"title", "description", "default", "propertyNames"}


def schema() -> dict[str, Any]:
    """The versions, the type of a line by the kind that its field ``event`` names, and all types.

    Those of a results file are ``Head``, its first line, and ``Trial``.
    """
    # In the form in which they are written.
    written: list[tuple[str, Any, TypeAdapter[Any]]] = [("line", "serialization", _LINES)]
    written += [("head", "serialization", results_format.HEAD), ("trial", "serialization", results_format.TRIAL)]
    found, whole = TypeAdapter.json_schemas(written, ref_template="{model}", schema_generator=_Bounded)
    lines = found["line", "serialization"]["discriminator"]["mapping"]
    types = {name: _bare(part) for name, part in whole["$defs"].items()}
    for name, added in ADDED.items():
        types[name]["required"] = [field for field in types[name]["required"] if field not in added]
    return {"version": VERSION, "results": results_format.VERSION, "lines": lines, "types": types}


def _bare(part: Any) -> Any:
    """A schema without parts that check nothing. The type comes first, so that later checks can rely on it."""
    if isinstance(part, list):
        return [_bare(each) for each in part]
    if not isinstance(part, dict):
        return part
    first = {"type": part["type"]} if "type" in part else {}
    kept = first | {key: _bare(value) for key, value in part.items() if key not in _DROPPED | {"properties"}}
    if "properties" in part:
        kept["properties"] = {name: _bare(value) for name, value in part["properties"].items()}
    return kept


def typescript(found: dict[str, Any]) -> str:
    """The schema as types for the scripts' type checker."""
    parts = []
    for name, part in found["types"].items():
        if "properties" not in part:
            parts.append(f"export type {name} = {_type(part)};\n")
            continue
        required = part.get("required", [])
        rows = (
            f"  {json.dumps(key)}{'' if key in required else '?'}: {_type(value)};\n"
            for key, value in part["properties"].items()
        )
        parts.append(f"export interface {name} {{\n{''.join(rows)}}}\n")
    union = " | ".join(found["lines"].values())
    return "".join([f"// {_MADE}\n", *parts, f"export type Line = {union};\n"])


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        return part["$ref"]
    if "const" in part:
        return json.dumps(part["const"])
    if "enum" in part:
        return " | ".join(map(json.dumps, part["enum"]))
    if "anyOf" in part:
        return " | ".join(map(_type, part["anyOf"]))
    if part.get("type") == "array":
        if "prefixItems" in part:
            return f"[{', '.join(map(_type, part['prefixItems']))}]"
        return f"Array<{_type(part['items'])}>"
    if part.get("type") == "object":
        more = part.get("additionalProperties")
        return f"Record<string, {_type(more) if isinstance(more, dict) else 'any'}>"
    return {"integer": "number", "number": "number", "null": "null"}.get(part.get("type", ""), part.get("type", "any"))


_MADE = "Made by python -m specdec.report.schema; a test keeps it as the code says."


def files() -> dict[str, str]:
    """The generated files by name."""
    found = schema()
    return {
        "recording_schema.js": f"// {_MADE}\nexport const SCHEMA = {_script(found)};\n",
        "recording.d.ts": typescript(found),
    }


def _script(found: dict[str, Any]) -> str:
    """The schema as data, with a line for each type, so that a change of one shows in one line."""
    types = "".join(f"    {json.dumps(name)}: {json.dumps(part)},\n" for name, part in found["types"].items())
    head = "".join(f"  {json.dumps(name)}: {json.dumps(part)},\n" for name, part in found.items() if name != "types")
    return f'{{\n{head}  "types": {{\n{types}  }}\n}}'


if __name__ == "__main__":
    for _name, _text in files().items():
        (ASSETS / _name).write_text(_text, encoding="utf-8")
