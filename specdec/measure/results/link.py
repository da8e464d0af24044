"""Writes results as a short text for a link or a small file: what verdict, table and chart need, without any text.

Each call has counts and microseconds, one column for each figure. It also has the number of its text among the texts of
its prompt: equal numbers mean equal texts. Sampled texts are not compared, so they have no number.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from specdec.errors import InvalidInput
from specdec.measure.metrics import SECONDS, Metrics
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.format import Results, checked_head, shown_head, sound

LONGEST = 4096  # characters of the results in a link
INFLATED, CALLS = 200_000, 500  # bytes and calls of such results; without a bound a short link can take minutes to show
DAMAGED = "The link is damaged: a part of it may be missing."

Value = Annotated[int, Field(ge=0, le=10**15)] | None
_COLUMNS: TypeAdapter[list[list[Value]]] = TypeAdapter(list[Annotated[list[Value], Field(max_length=CALLS)]])


def _count(name: str) -> Callable[[Metrics], int | None]:
    return lambda lane: getattr(lane, name)


def _microseconds(name: str) -> Callable[[Metrics], int | None]:
    return lambda lane: None if (value := getattr(lane, name)) is None else round(1e6 * value)


_COUNTS = (
    "new_tokens", "decode_tokens", "target_passes", "accepted", "rejected", "discarded", "whole_passes",
)  # fmt: skip
_FIGURES: dict[str, Callable[[Metrics], int | None]] = {
    **{name: _count(name) for name in _COUNTS},
    "whole_tokens": lambda lane: round((lane.mean_acceptance_length or 0) * lane.whole_passes),
    **{name: _microseconds(name) for name in SECONDS},
}


def short(results: Results) -> str:
    """The results as JSON."""
    by_key = {trial.key: trial for trial in results.trials}
    keys = _keys(results.plan)
    made = [trial for key in keys if (trial := by_key.get(key))]
    numbers: defaultdict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    texts = [numbers[t.prompt].setdefault(t.token_ids, len(numbers[t.prompt])) if t.greedy else None for t in made]
    columns = [[figure(trial.metrics) for trial in made] for figure in _FIGURES.values()]
    missing = [at for at, key in enumerate(keys) if key not in by_key]
    found = {"head": shown_head(results), "missing": missing, "calls": [texts, *columns]}
    return json.dumps(found, separators=(",", ":"), allow_nan=False)


def read_short(text: str | bytes) -> Results:
    """Read the results of a text that ``short`` made. Raises ``InvalidInput``."""
    try:
        found = from_json(text)
        about, plan = checked_head(found["head"])
        if len(plan) > CALLS:
            raise InvalidInput(f"It plans {len(plan):,} calls, more than the {CALLS} of a link.")
        if len(found["calls"]) != 1 + len(_FIGURES):
            raise InvalidInput(DAMAGED)
        missing, columns = set(_COLUMNS.validate_python([found["missing"]], strict=True)[0]), found["calls"]
        keys = [key for at, key in enumerate(_keys(plan)) if at not in missing]
        texts, *figures = _COLUMNS.validate_python(columns, strict=True)
        if [len(column) for column in columns] != [len(keys)] * (1 + len(_FIGURES)) or not keys:
            raise InvalidInput(DAMAGED)
        categories = {item.name: item.category for item in plan.prompts}
        trials = []
        for (run, prompt, lane, gamma), number, *values in zip(keys, texts, *figures, strict=True):
            metrics = _metrics(dict(zip(_FIGURES, values, strict=True)))
            ids = () if number is None else (number,)
            trial = Trial(run, prompt, categories[prompt], lane, gamma, ids, None, plan.params.greedy, metrics)
            if (checked := sound(trial)) is None:
                raise InvalidInput(DAMAGED)
            trials.append(checked)
    except InvalidInput:
        raise
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(DAMAGED) from error
    return Results(about, plan, trials)


def link_text(results: Results) -> str | None:
    """The short text, packed for an address; None if it is too long for one."""
    text = short(results).encode()
    packer = zlib.compressobj(9, wbits=-15)
    packed = base64.urlsafe_b64encode(packer.compress(text) + packer.flush()).decode().rstrip("=")
    fits = len(packed) <= LONGEST and len(text) <= INFLATED and len(results.plan) <= CALLS
    return packed if fits else None


def read_link(text: str) -> Results:
    """Read the results of an address. Raises ``InvalidInput``."""
    if len(text) > LONGEST:
        raise InvalidInput(f"The link has {len(text):,} characters of results, more than the {LONGEST:,} of a link.")
    try:
        unpacker = zlib.decompressobj(wbits=-15)
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = unpacker.decompress(packed, INFLATED)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InvalidInput(DAMAGED) from error
    if not unpacker.eof:
        raise InvalidInput(DAMAGED)
    return read_short(found)


def _keys(plan: Plan) -> list[tuple[int, str, str, Any]]:
    """The keys of a plan's calls: all lanes of a prompt together, in the same order in every run."""
    cells = [(run, item.name) for run in range(plan.runs) for item in plan.prompts]
    return [(*cell, *entrant) for cell in cells for entrant in plan.entrants]


def _metrics(values: dict[str, int | None]) -> Metrics:
    """The figures of a call. Rates follow from them. The time outside the passes is not shown and stays unknown."""
    tokens, passes = values.pop("whole_tokens"), values["whole_passes"]
    seconds = {name: None if (value := values.pop(name)) is None else value / 1e6 for name in SECONDS}
    given: dict[str, Any] = values | seconds
    if None in (tokens, *(given[name] for name in given if name not in _UNKNOWN)):
        raise InvalidInput(DAMAGED)
    mean = tokens / passes if tokens is not None and passes else None
    given |= dict.fromkeys(("alpha", "draft_acceptance_rate", "tokens_per_second", "overhead_share"))
    return Metrics(mean_acceptance_length=mean, **given)


# What assisted generation, or a call on a GPU, does not report.
_UNKNOWN = {"accepted", "rejected", "discarded", "draft_seconds", "verify_seconds", "reread_seconds", "cpu_seconds"}
