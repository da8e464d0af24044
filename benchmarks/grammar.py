"""Measures what a draft gains by obeying the grammar: ``python -m benchmarks.grammar [--target FOLDER]``.

Greedy texts of five JSON schemas, with a draft that obeys the schema and with one that guesses freely, in turns with
plain ``generate`` under the same schema and with our loop without a draft. With ``--target`` a chat model, asked in a
message, with prompt lookup; else the embedded pair. Puts a table into docs/performance.md: kept guesses, tokens that
the schema forced, tokens of a target pass, the gain by speculation alone, how many texts came to their end as JSON, and
what a mask costs beside a target pass over one row.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any

import torch

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked
from specdec.engine.request import make_request
from specdec.events import FORCED, Event, Finished, Round
from specdec.lanes.table import BASELINE, FREE_DRAFT, LOOP, turned
from specdec.measure.metrics import compute_metrics
from specdec.measure.prompts import message_of
from specdec.models.pair import Pair
from specdec.report import numbers

TOKENS, GAMMA = 160, 5
NAME = {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"}
AGE = {"type": "integer", "minimum": 1, "maximum": 99}


def of(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def words(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^[A-Za-z ,.]{{10,{most}}}$"}


SCHEMAS = {
    "person": (
        "Max Miller, who is 41, is a baker in Rome. Describe him.",
        of(name=NAME, surname=NAME, age=AGE, trade={"enum": ["baker", "teacher", "nurse", "pilot"]}, city=NAME),
    ),
    "tool call": (
        "What will the weather be in Paris in the next three days?",
        of(tool={"enum": ["get_weather", "get_time"]}, arguments=of(city=NAME, days=AGE, unit={"enum": ["celsius"]})),
    ),
    "list": (
        "Name three animals and the number of their legs.",
        {"type": "array", "items": of(animal=words(20), legs=AGE), "minItems": 3, "maxItems": 3},
    ),
    "nested": (
        "Anna, who is 34, and Paul, who is 36, live in Oslo with their dog Rex.",
        of(home=of(city=NAME, people={"type": "array", "items": of(name=NAME, age=AGE), "minItems": 2, "maxItems": 2}),
           pet=of(name=NAME, kind={"enum": ["dog", "cat"]})),
    ),
    "free text": (
        "Write about a walk in the forest.",
        of(title=words(30), text=words(160), stars={"enum": [1, 2, 3, 4, 5]}),
    ),
}  # fmt: skip
LANES = (BASELINE.key, LOOP.key, "speculative", FREE_DRAFT)


def main() -> None:
    given = asked(__doc__, "target")
    pair = specdec.load_pair(given.target, specdec.PromptLookup()) if given.target else specdec.load_pair()
    rows, masks = [], []
    for name, (prompt, schema) in SCHEMAS.items():
        message = message_of(f"{prompt} Answer in JSON.", bool(given.target))
        runs = [raced(pair, message, schema, run) for run in range(given.runs)]
        rows += [[name, *cells(runs, lane, pair.tokenizer)] for lane in ("speculative", FREE_DRAFT)]
        masks += mask_seconds(pair, message, schema, runs[0]["speculative"])
    one = median(seconds(run[LOOP.key]) for run in runs)
    columns = (
        "Schema",
        "Draft",
        "kept",
        "forced",
        "tokens a target pass",
        "from speculation",
        "over plain generate",
        "JSON",
    )
    target = " --target FOLDER" if given.target else ""
    text = f"`python -m benchmarks.grammar --runs {given.runs}{target}`, greedy, at most {TOKENS} tokens.\n\n"
    text += table(columns, rows, left=2)
    cost = f"{median(masks) * 1e6:.0f} \u00b5s"
    text += (
        f"\nA mask takes {cost} a row, {numbers.percent(median(masks) / one)} of a round of our loop without a draft.\n"
    )
    write("grammar:chat" if given.target else "grammar", text)


def raced(pair: Pair, message: Any, schema: Any, run: int) -> dict[str, list[Event]]:
    """The events of each lane in one run."""
    params = specdec.SamplingParams(TOKENS, seed=0, grammar=specdec.Grammar.json_schema(schema))
    lanes = turned(LANES, run)
    found: dict[str, list[Event]] = defaultdict(list)
    events = list(chain.from_iterable(specdec.race(pair, message, gamma=GAMMA, params=params, lanes=lanes)))
    starts = [at for at, event in enumerate(events) if isinstance(event, specdec.Started)]
    for key, start, end in zip(lanes, starts, [*starts[1:], None], strict=True):
        found[key] = events[start:end]
    return found


def cells(runs: Sequence[Mapping[str, list[Event]]], lane: str, tokenizer: Any) -> list[str]:
    """A row of the table."""
    first = compute_metrics(runs[0][lane])
    rounds = [event for event in runs[0][lane] if isinstance(event, Round)]
    forced = sum(len(event.draft or ()) for event in rounds if event.drafted_by == FORCED)
    gains = {
        base: [seconds(run[base]) / seconds(run[lane]) for run in runs] for base in (LOOP.key, BASELINE.key)
    }  # fmt: skip
    whole = sum(is_json(run[lane], tokenizer) for run in runs)
    return [
        "obeys" if lane == "speculative" else "free",
        numbers.percent(first.alpha),
        numbers.percent(forced / first.new_tokens),
        numbers.number(first.mean_acceptance_length, 2),
        numbers.times(gains[LOOP.key]),
        numbers.times(gains[BASELINE.key]),
        f"{whole} of {len(runs)}",
    ]


def seconds(events: Sequence[Event]) -> float:
    """Seconds a token after the first."""
    found = compute_metrics(events).seconds_per_token
    assert found is not None, "a text of one token"
    return found


def is_json(events: Sequence[Event], tokenizer: Any) -> bool:
    end = events[-1]
    if not isinstance(end, Finished) or end.finish_reason != "eos":
        return False
    json.loads(tokenizer.decode(specdec.collect(events).token_ids[:-1]))
    return True


def mask_seconds(pair: Pair, message: Any, schema: Any, events: Sequence[Event]) -> list[float]:
    """Seconds to know and to apply the mask of one row, at each place of a text that was written."""
    params = specdec.SamplingParams(TOKENS, seed=0, grammar=specdec.Grammar.json_schema(schema))
    request = make_request(pair, message, params)
    assert request.constraint is not None
    masks = request.constraint.masks(0)
    logits, ids, found = torch.zeros(1, pair.vocabulary), list(specdec.collect(events).token_ids), []
    for end in range(1, len(ids)):
        began = time.perf_counter()
        masks.apply(logits, ids[:end])
        found.append(time.perf_counter() - began)
    return found


if __name__ == "__main__":
    main()
