"""Reads kept measurements: what was measured where, and its trials. Needs no torch.

A results file has everything; a link holds the same lines with the figures only, which the browser packs. Both may come
from a stranger, so every value that is shown is checked. Reading them does not need the pair that was measured.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict  # pydantic supports the standard one only from Python 3.12 on

from specdec.engine.policy import policy_of
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, SamplingParams
from specdec.facts import OPEN, MachineFacts, PairFacts
from specdec.lanes.table import ENGINE, LaneConfig, row_of
from specdec.measure.metrics import Metrics, in_microseconds, with_rates
from specdec.measure.plan import Key, Plan, Trial
from specdec.measure.prompts import LONGEST_NAME, Choice, PromptItem

VERSION = 4  # of files
CALLS_OF_LINK = 500  # in a link; without a bound a short one can take minutes to show
MOST_PROMPTS, MOST_CALLS, MOST_TOKENS = 10_000, 100_000, 1_000_000
MOST_HEAD = 100_000  # bytes of the first line besides the prompts and the grammar's text
MOST_GRAMMAR = 100_000  # characters of that text, as in a recording of a race
MOST_OTHERS = 100  # lines of a file that are no calls; an interrupted measurement leaves one for each process
SHOWN_OF_DRAFT = {"kind", "text", "name", "layers", "dtype", "agreement", "one_pass", "most_guesses"}
# Figures of a call that a link leaves out: rates that follow from the others, and what only a file shows.
NOT_IN_LINK = {
    "alpha", "draft_acceptance_rate", "tokens_per_second", "overhead_share", "tested_at", "kept_at", "overlap_at",
    "passes_of",
}  # fmt: skip
LARGEST = 1e12  # the largest count or number of seconds

Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Text = Annotated[str, Field(max_length=1000)]  # may be a path
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Moment = Annotated[float, Field(ge=0, lt=1e11)]  # seconds since 1970


@with_config(OPEN)
class Head(TypedDict):
    """The first line of results: what was measured. ``at`` is the time of its beginning, in seconds since 1970."""

    version: Literal[4]
    at: Moment
    pair: PairFacts
    machine: MachineFacts
    versions: Annotated[dict[Name, Name], Field(max_length=20)]
    prompts: Annotated[list[PromptItem], Field(min_length=1, max_length=MOST_PROMPTS), FailFast()]
    configs: Annotated[list[tuple[Name, int | Name | None]], Field(min_length=1, max_length=200)]
    runs: Annotated[int, Field(ge=1, le=1000)]
    params: SamplingParams
    chosen: Choice


HEAD: TypeAdapter[Head] = TypeAdapter(Head)
TRIAL: TypeAdapter[Trial] = TypeAdapter(Trial)


class About(TypedDict):
    """What figures are measured on. ``at``: the time of the beginning, in seconds since 1970."""

    at: Moment
    pair: PairFacts
    machine: MachineFacts
    versions: dict[str, str]


@dataclass(frozen=True)
class Results:
    """What was measured and where, the plan, and the trials that exist."""

    about: About
    plan: Plan
    trials: list[Trial]


def read_results(text: str, name: str, most: int = MOST_CALLS) -> Results:
    """Read the results of a file. A line that was cut short or is no trial of the plan is dropped.

    Raises ``InvalidInput``, with the ``name`` of the file, for anything else, also a plan of more than ``most`` calls.
    """
    lines = (found[0] for found in re.finditer(r"[^\n]+", text))  # as needed: a file may have a million
    head = next(lines, "")
    try:
        about, plan = checked_head(from_json(head)["results"], most)
    except InvalidInput as error:
        raise InvalidInput(f"{name} cannot be opened: {error}") from error
    except (ValueError, TypeError, KeyError):
        raise InvalidInput(f"{name} has no results of this program. Open other results.") from None
    found = trials_of(lines, plan, name)
    if not found:
        raise InvalidInput(f"{name} has no finished call. Open other results.")
    return Results(about, plan, found)


def checked_head(found: Any, most: int) -> tuple[About, Plan]:
    """Read the first line of a file and its plan. Raises ``InvalidInput``, whose message is a part of a sentence."""
    if not isinstance(found, dict):
        raise InvalidInput("it cannot be read.")
    version = found.get("version")
    if isinstance(version, int) and version != VERSION:
        raise InvalidInput(f"its version is {version}, and this program reads version {VERSION}.")
    # Without what nobody reads, and counted before it is validated: a forged line can be long.
    found = {name: found[name] for name in Head.__required_keys__ if name in found}
    prompts, lanes, runs = (found.get(name) for name in ("prompts", "configs", "runs"))
    if isinstance(prompts, list) and isinstance(lanes, list) and isinstance(runs, int):
        if len(prompts) > MOST_PROMPTS:
            raise InvalidInput(f"it has more than {MOST_PROMPTS:,} prompts.")
        if len(prompts) * len(lanes) * runs > most:
            raise InvalidInput(f"it plans more than {most:,} calls.")
    if len(_grammar_text(found)) > MOST_GRAMMAR:
        raise InvalidInput(f"its grammar has more than {MOST_GRAMMAR:,} characters.")
    if len(to_json(found | {"prompts": []})) - len(to_json(_grammar_text(found))) > MOST_HEAD:
        raise InvalidInput(f"its first line has more than {MOST_HEAD:,} bytes besides its prompts and its grammar.")
    try:
        head = HEAD.validate_json(to_json(found), strict=True)  # validated as JSON, because a tuple is a list there
    except ValidationError as error:
        where = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        raise InvalidInput(f"its field {where[0]!r} cannot be read.") from error
    configs = tuple(_config(lane, gamma) for lane, gamma in head["configs"])
    names = {item.name for item in head["prompts"]}
    if len(set(configs)) < len(configs) or len(names) < len(head["prompts"]):
        raise InvalidInput("it names a lane or a prompt twice.")
    if head["params"].max_new_tokens > MOST_TOKENS:
        raise InvalidInput(f"its calls have more than {MOST_TOKENS:,} tokens.")
    about: About = {
        "at": head["at"],
        "pair": head["pair"],
        "machine": head["machine"],
        "versions": head["versions"],
    }
    return about, Plan(tuple(head["prompts"]), configs, head["params"], head["runs"], head["chosen"])


def _grammar_text(head: dict[str, Any]) -> str:
    """The grammar's text in a first line that is not validated yet; empty if there is none."""
    match head.get("params"):
        case {"grammar": {"text": str(text)}}:
            return text
    return ""


def figures_only(results: Results) -> str:
    """The text of a results file with only what verdict, table and chart need, for a link: no prompt and no text.

    Instead of its tokens, each call has the number of its text among the texts of its prompt: equal numbers mean equal
    texts. Sampled texts are not compared, so they have none.
    """
    numbers: defaultdict[str, dict[tuple[int, ...], int]] = defaultdict(dict)
    lines = [results_line({"results": _shown_head(results)})]
    for trial in results.trials:
        known = numbers[trial.prompt]
        ids = (known.setdefault(trial.token_ids, len(known)),) if trial.greedy else ()
        record = asdict(replace(trial, token_ids=ids, finish_reason=None, metrics=_six_decimals(trial.metrics)))
        record["metrics"] = {name: value for name, value in record["metrics"].items() if name not in NOT_IN_LINK}
        lines.append(results_line(record))
    return "".join(lines)


def results_line(record: dict[str, Any]) -> str:
    """A record as a line of a results file."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"


def _six_decimals(lane: Metrics) -> Metrics:
    mean = lane.mean_acceptance_length
    return replace(in_microseconds(lane), mean_acceptance_length=None if mean is None else round(mean, 6))


def _shown_head(results: Results) -> dict[str, Any]:
    """The first line without the prompts' texts and other values that are not shown."""
    plan = results.plan
    prompts = [{"name": item.name, "category": item.category, "prompt": ""} for item in plan.prompts]
    params: dict[str, Any] = {
        "max_new_tokens": plan.params.max_new_tokens,
        "temperature": float(plan.params.temperature),
    }
    if plan.params.grammar is not None:
        params["grammar"] = asdict(plan.params.grammar)
    head: dict[str, Any] = {"version": VERSION, **results.about, "pair": _shown_pair(results.about["pair"])}
    head |= {"prompts": prompts, "configs": plan.configs, "runs": plan.runs, "chosen": plan.chosen, "params": params}
    found = HEAD.validate_json(to_json(head), strict=True)
    return from_json(HEAD.dump_json(found)) | {"params": params}


def _shown_pair(facts: PairFacts) -> dict[str, Any]:
    """The facts about a pair that tables and sentences need."""
    target = {name: facts["target"][name] for name in ("name", "layers", "dtype", "bits")}
    draft = facts["draft"] and {name: value for name, value in facts["draft"].items() if name in SHOWN_OF_DRAFT}
    server = {"server": facts["server"]} if "server" in facts else {}
    return {name: facts[name] for name in ("name", "device", "compiled")} | {"target": target, "draft": draft} | server


def _config(lane: str, gamma: int | str | None) -> LaneConfig:
    config = LaneConfig(lane, gamma)
    if row_of(config.key).lengths == "none":
        if gamma is not None:
            raise InvalidInput(f"its lane {lane} has a draft length.")
    elif gamma is None:
        raise InvalidInput(f"its lane {lane} has no draft length.")
    elif gamma != ENGINE:
        policy_of(gamma)
    return config


def trials_of(lines: Iterable[str], plan: Plan, name: str) -> list[Trial]:
    """The plan's trials among the lines of the file called ``name``, each once.

    Raises ``InvalidInput`` if too many lines are no trials of the plan.
    """
    categories, configs = {item.name: item.category for item in plan.prompts}, set(plan.configs)
    found: dict[Key, Trial] = {}
    others = 0
    for text in lines:
        trial = _trial(text)
        if (
            trial is not None
            and trial.run in range(plan.runs)
            and trial.lane_config in configs
            and trial.category == categories.get(trial.prompt)
            and trial.greedy == plan.params.greedy
        ):
            found.setdefault(trial.key, trial)
        elif (others := others + 1) > MOST_OTHERS:
            raise InvalidInput(f"{name} is damaged: more than {MOST_OTHERS} of its lines are no calls of its plan.")
    return list(found.values())


def _trial(text: str) -> Trial | None:
    """Read a line of a file; None if it is incomplete."""
    try:
        return sound(TRIAL.validate_json(text, strict=True))
    except ValidationError:
        return None


def sound(trial: Trial) -> Trial | None:
    """The trial with rates computed from its counts; None if a number of it is impossible."""
    rated = replace(trial, metrics=with_rates(trial.metrics))
    figures = asdict(rated.metrics)
    outside = figures.pop("overhead_share")  # by the clock, the passes may take a little longer than the whole
    numbers = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in figures.values())
    if not all(value is None or 0 <= value <= LARGEST for value in numbers):
        return None
    tested, kept = trial.metrics.tested_at, trial.metrics.kept_at
    overlaps = trial.metrics.overlap_at or tested
    if not len(tested) == len(kept) == len(overlaps) or any(map(operator.gt, kept, tested)):
        return None
    if max(len(tested), len(trial.metrics.passes_of)) > MAX_GAMMA + 2:
        return None
    return rated if outside is None or math.isfinite(outside) else None
