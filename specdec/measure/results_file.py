"""The file that keeps the trials of a measurement, so that an interrupted one goes on where it was."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specdec.engine.request import machine, versions
from specdec.errors import InvalidInput
from specdec.measure.metrics import Metrics
from specdec.measure.plan import Key, Plan, Trial
from specdec.models.pair import Pair

VERSION = 2


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
        try:
            with self._own.open("a", encoding="utf-8") as file:
                file.write(_line(asdict(trial)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _not_written(self._own, error) from error

    def merge(self, every: Iterable[Trial]) -> None:
        """All trials of all processes into the one file, in the plan's order."""
        by_key = {trial.key: trial for trial in every}
        self._write(self.path, sorted(by_key.values(), key=lambda trial: self._order[trial.key]))

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
            raise _not_written(path, error) from error

    def _read(self, path: Path) -> Iterator[Trial]:
        if not path.exists():
            return
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        except OSError as error:
            reason = error.strerror or "it is no file of this program"
            raise InvalidInput(f"Results cannot be read from {path.name} ({reason}). Name another file.") from error
        if not lines:
            return
        if lines[0] != self._head:
            raise InvalidInput(_difference(path, lines[0], self._head))
        for text in lines[1:]:
            if trial := _trial(text):
                yield trial


def _not_written(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"Results cannot be written to {path} ({error.strerror}). Name another file.")


def measured_on(pair: Pair) -> dict[str, Any]:
    """What figures are measured on: the pair, the machine and the versions."""
    return {"pair": pair.describe(), "machine": machine(pair.device), "versions": versions()}


def _head(pair: Pair, plan: Plan) -> dict[str, Any]:
    kind = {"device": pair.device.type}  # each process of a launch has a number of its own
    about = measured_on(pair) | {"version": VERSION, "weights": _weights(pair)}
    about |= {"pair": about["pair"] | kind, "machine": about["machine"] | kind}
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
        return f"{path.name} holds no results of this program. Name another file."
    return f"{path.name} holds results of another measurement ({', '.join(names)} differ). Name another file."


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
