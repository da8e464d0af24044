"""A measurement of many calls: prompts x entrants x runs, one call after another, and the file that keeps the results.

Each run plays every entrant on every prompt, in an order that rotates, so that the machine's drift falls on all alike.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from specdec.engine.request import machine, versions
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import Event, SamplingParams
from specdec.lanes.race import enter
from specdec.lanes.transformers_lanes import driven
from specdec.measure.metrics import Metrics
from specdec.measure.prompts import PromptItem
from specdec.measure.result import collect
from specdec.models.pair import Pair

VERSION = 1
INTERVAL = 0.08  # seconds between two looks at a lane, as on the page: the consumer must not wake at every event
WARM_UP_TOKENS = 16
LEAST_TOKENS = 32  # below this a rate over the tokens after the first says little

Entrant = tuple[str, int | str | None]  # a lane and its draft length
Key = tuple[int, str, str, int | str | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One call: what it wrote and its figures. ``gamma`` is None where the lane has no draft length."""

    run: int
    prompt: str
    category: str
    lane: str
    gamma: int | str | None
    token_ids: tuple[int, ...]
    finish_reason: str | None
    greedy: bool
    metrics: Metrics

    @property
    def key(self) -> Key:
        return self.run, self.prompt, self.lane, self.gamma

    @property
    def entrant(self) -> Entrant:
        return self.lane, self.gamma


@dataclass(frozen=True)
class Plan:
    """What is to be measured. All entrants of a run share its seed."""

    prompts: tuple[PromptItem, ...]
    entrants: tuple[Entrant, ...]
    params: SamplingParams
    runs: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.runs, bool) or not isinstance(self.runs, int) or self.runs < 1:
            raise InvalidInput(f"runs is {self.runs!r}; give a whole number, 1 or more.")
        if self.params.max_new_tokens < LEAST_TOKENS:
            raise InvalidInput(f"{self.params.max_new_tokens} new tokens are too few to measure; use {LEAST_TOKENS}.")
        if self.params.seed is None:
            object.__setattr__(self, "params", replace(self.params, seed=secrets.randbits(32)))

    def steps(self) -> Iterator[tuple[int, PromptItem, Entrant]]:
        """Every call, in order; the first of a prompt rotates from run to run and from prompt to prompt."""
        for run in range(self.runs):
            for place, item in enumerate(self.prompts):
                shift = (run + place) % len(self.entrants)
                for entrant in self.entrants[shift:] + self.entrants[:shift]:
                    yield run, item, entrant

    def __len__(self) -> int:
        return self.runs * len(self.prompts) * len(self.entrants)


def entrants_of(lanes: Sequence[str], gammas: Sequence[int | str]) -> tuple[Entrant, ...]:
    """``lanes`` with every draft length that means something to them; gamma 0 is our own loop without a draft."""
    found: list[Entrant] = []
    for lane in lanes:
        if lane in ("generate", "gamma-0", "draft-alone"):
            found.append((lane, None))
        else:
            found += [(lane, g) for g in gammas if g != 0 and (lane != "assisted" or isinstance(g, int))]
    if 0 in gammas:
        found.append(("gamma-0", None))
    return tuple(dict.fromkeys(found))


def trials(
    pair: Pair, plan: Plan, done: Collection[Key] = (), prompts: Collection[str] | None = None
) -> Iterator[Trial | None]:
    """Run what is not ``done`` of a plan; yield each call as it ends, and None in between, so that one may stop.

    ``prompts`` are the names of those to run, None for all. Every entrant is warmed up by a few tokens first. What
    the engine refuses, it refuses before anything runs.
    """
    steps = [
        (run, item, entrant)
        for run, item, entrant in plan.steps()
        if (run, item.name, *entrant) not in done and (prompts is None or item.name in prompts)
    ]
    # Every length is checked on one prompt, and every prompt on one length of each lane: a prompt is long to encode.
    one_each = {lane: (lane, gamma) for lane, gamma in plan.entrants}.values()
    for place, item in enumerate(plan.prompts):
        for lane, gamma in one_each if place else plan.entrants:
            try:
                enter(pair, item.message(pair.tokenizer), lane, gamma, plan.params)
            except SpecdecError as error:
                raise type(error)(f"Prompt {item.name!r}, lane {lane}: {error}") from error

    def run_steps() -> Iterator[Trial | None]:
        short = replace(plan.params, max_new_tokens=WARM_UP_TOKENS)
        for lane, gamma in plan.entrants if steps else ():
            prompt = steps[0][1].message(pair.tokenizer)
            for _ in driven(enter(pair, prompt, lane, gamma, short), INTERVAL):
                yield None
        for run, item, (lane, gamma) in steps:
            params = replace(plan.params, seed=(plan.params.seed + run) % 2**63)
            events: list[Event] = []
            for batch in driven(enter(pair, item.message(pair.tokenizer), lane, gamma, params), INTERVAL):
                events += batch
                yield None
            result = collect(events)
            ids, reason = tuple(result.token_ids), result.finish_reason
            yield Trial(run, item.name, item.category, lane, gamma, ids, reason, params.greedy, result.metrics)

    return run_steps()


class ResultsFile:
    """Trials as JSON lines under a first line that says of what; what is in it is not measured again.

    A line that a kill cut short is dropped, and its trial runs again. Where several processes measure, each writes a
    file of its own beside this one until ``merge``.
    """

    def __init__(self, path: Path, pair: Pair, plan: Plan, process: int = 0):
        self.path, self.process = Path(path), process
        self._order = {(run, item.name, *entrant): at for at, (run, item, entrant) in enumerate(plan.steps())}
        self._head = _line(_head(pair, plan))

    def read(self) -> list[Trial]:
        """All trials found, of every process. Raises ``InvalidInput`` if they are of another measurement."""
        found: dict[Key, Trial] = {}
        for path in (self.path, *self._others()):
            for trial in self._read(path):
                found.setdefault(trial.key, trial)
        return [trial for trial in found.values() if trial.key in self._order]

    def begin(self, known: Iterable[Trial]) -> None:
        """Write the file of this process anew, with the trials that are known, and keep it open for more."""
        own = known if self.process == 0 else ()
        self._write(self._own, own)

    def add(self, trial: Trial) -> None:
        with self._own.open("a", encoding="utf-8") as file:
            file.write(_line(asdict(trial)))
            file.flush()
            os.fsync(file.fileno())

    def merge(self, every: Iterable[Trial]) -> None:
        """All trials of all processes into the one file, in the plan's order."""
        every = {trial.key: trial for trial in every}
        self._write(self.path, sorted(every.values(), key=lambda trial: self._order[trial.key]))

    def clear(self) -> None:
        """The files of other processes go; their trials are in the one file."""
        for path in self._others():
            path.unlink(missing_ok=True)

    def _others(self) -> list[Path]:
        return sorted(self.path.parent.glob(glob.escape(self.path.name) + ".process*"))

    @property
    def _own(self) -> Path:
        return self.path.with_name(f"{self.path.name}.process{self.process}") if self.process else self.path

    def _write(self, path: Path, known: Iterable[Trial]) -> None:
        """In one step: a kill leaves the old file or the new one."""
        new = path.with_name(path.name + ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(self._head + "".join(_line(asdict(trial)) for trial in known), encoding="utf-8")
            os.replace(new, path)
        except OSError as error:
            raise InvalidInput(f"Results cannot be written to {path} ({error}). Name another file.") from error

    def _read(self, path: Path) -> Iterator[Trial]:
        if not path.exists():
            return
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError as error:
            raise InvalidInput(f"Results cannot be read from {path} ({error}). Name another file.") from error
        if not lines:
            return
        if lines[0] != self._head:
            raise InvalidInput(_difference(path, lines[0], self._head))
        for text in lines[1:]:
            if trial := _trial(text):
                yield trial


def _head(pair: Pair, plan: Plan) -> dict[str, Any]:
    kind = {"device": pair.device.type}  # each process of a launch has a number of its own
    about = {"version": VERSION, "pair": pair.describe() | kind, "machine": machine(pair.device) | kind}
    about |= {"versions": versions(), "weights": _weights(pair)}
    # A drawn seed is no part of what was asked for when sampling is off.
    params = asdict(plan.params) | ({"seed": None} if plan.params.greedy else {})
    asked = {"prompts": [asdict(item) for item in plan.prompts], "entrants": plan.entrants, "runs": plan.runs}
    return {"results": about | asked | {"params": params}}


def _weights(pair: Pair) -> str:
    """A fingerprint of up to 16 values of every weight: names of folders do not tell two checkpoints apart."""
    digest = hashlib.sha256()
    for model in pair.models(drafting=True):
        for weight in model.parameters():
            # Offloaded values are not here, and packed ones may be packed anew at a first pass.
            if weight.device.type != "meta" and weight.is_floating_point():
                values = weight.detach().flatten()
                digest.update(values[:: max(1, len(values) // 16)][:16].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _difference(path: Path, found: str, wanted: str) -> str:
    try:
        theirs, ours = json.loads(found)["results"], json.loads(wanted)["results"]
        names = [name for name in ours if theirs.get(name) != ours[name]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{path} holds no results of this program. Name another file."
    return f"{path} holds results of another measurement ({', '.join(names)} differ). Name another file."


def _trial(text: str) -> Trial | None:
    """A line of a results file; None for one that is not whole."""
    try:
        record = json.loads(text)
        fields = {"token_ids": tuple(record["token_ids"]), "metrics": Metrics(**record["metrics"])}
        return Trial(**record | fields)
    except (ValueError, TypeError, KeyError):
        return None


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"
