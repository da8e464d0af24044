"""Reads and writes a kept result of the test of losslessness: for the recorded one, and for links.

A link may come from a stranger, so every value that is shown is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict  # pydantic reads the standard one from Python 3.12 on

from specdec.errors import InvalidInput
from specdec.facts import OPEN
from specdec.measure.losslessness import MOST_COMMON, LosslessnessResult, testable
from specdec.measure.results.format import LARGEST, About

MOST_TEXT, MOST_CHECKS = 1000, 20  # characters of a text; checks of steps
SHARES = {
    "total_variation", "noise_mean", "noise_bound", "p_value", "detectable", "alpha", "lossy_alpha", "level",
}  # fmt: skip


@with_config(OPEN)
class LosslessnessRecord(TypedDict):
    """What a test found, and what it was measured on."""

    about: About
    findings: LosslessnessResult


_RECORD: TypeAdapter[LosslessnessRecord] = TypeAdapter(LosslessnessRecord)


def losslessness_text(record: LosslessnessRecord) -> str:
    """The record as a line of JSON."""
    return to_json({"about": record["about"], "findings": asdict(record["findings"])}).decode() + "\n"


def read_losslessness(text: str, name: str) -> LosslessnessRecord:
    """Read a record. Raises ``InvalidInput``, with the ``name`` of its file, for anything else."""
    try:
        record = _RECORD.validate_json(text)
    except ValidationError as error:
        where = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        place = f": its field {'.'.join(map(str, where))[:80]!r} cannot be read" if where else ""
        raise InvalidInput(f"{name} is no result of the test of losslessness{place}.") from None
    found = record["findings"]
    few = len(found.common) <= MOST_COMMON and (found.steps is None or len(found.steps.checks) <= MOST_CHECKS)
    counted = all(max(each.plain, each.lossless, each.lossy) <= found.draws for each in found.common)
    known = found.lane in testable() and found.draws > 0
    if not (few and counted and known and all(_possible(*one) for one in _walk([record["about"], asdict(found)]))):
        raise InvalidInput(f"{name} has a value that no test of losslessness has.")
    return record


def _walk(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each plain value with the name of its field."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _walk(part, key)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _walk(part, name)
    else:
        yield name, value


def _possible(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return math.isfinite(value) and 0 <= value <= (1 if name in SHARES else LARGEST)
    return True
