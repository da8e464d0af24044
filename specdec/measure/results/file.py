"""Keeps the trials of a measurement as a text or in a file, so that an interrupted measurement can be continued.

Continuing needs the pair that was measured. ``measure.results.format`` reads the same files without it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from specdec.engine.request import machine_facts, versions
from specdec.errors import InvalidInput
from specdec.measure.plan import Key, Plan, Trial
from specdec.measure.results.format import VERSION, About, results_line, trials_of
from specdec.models.pair import Pair

LARGEST = 256_000_000  # bytes of a results file that is read
UNASKED = ("at", "chosen")  # of the first line, may differ: the same prompts can be chosen in another way


class ResultsText:
    """Trials as JSON lines, after a first line that says what was measured.

    ``about`` is the part of that line about pair, machine, versions and time.
    """

    def __init__(self, pair: Pair, plan: Plan):
        self._plan = plan
        self._order = {(run, item.name, *config): at for at, (run, item, config) in enumerate(plan.steps())}
        self._head = _head(pair, plan)

    @property
    def about(self) -> About:
        head = self._head
        return {"at": head["at"], "pair": head["pair"], "machine": head["machine"], "versions": head["versions"]}

    def write(self, known: Iterable[Trial]) -> str:
        """Write each trial once, in the plan's order."""
        by_key = {trial.key: trial for trial in known}
        ordered = sorted(by_key.values(), key=lambda trial: self._order[trial.key])
        return results_line({"results": self._head}) + "".join(map(_trial_line, ordered))

    def read(self, text: str, name: str) -> list[Trial]:
        """Read the plan's trials from a text. A line that was cut short is dropped, and its trial runs again.

        The time at which the measurement began stays that of the text. Raises ``InvalidInput``, with the ``name`` of
        the text's file, if it belongs to another measurement.
        """
        head, *lines = text.splitlines() or [""]
        if not head:
            return []
        self._head["at"] = _same(name, head, from_json(results_line(self._head)))
        return trials_of(lines, self._plan, name)


class ResultsFile:
    """The same in a file. Trials that it contains are not measured again.

    Where several processes measure, each writes its own file beside this one until ``merge``.
    """

    def __init__(self, path: Path, pair: Pair, plan: Plan, process: int = 0):
        self.path, self.process = Path(path), process
        self._text = ResultsText(pair, plan)

    def read(self) -> list[Trial]:
        """Read the trials of all processes. Raises ``InvalidInput`` if they belong to another measurement."""
        found: dict[Key, Trial] = {}
        for path in (self.path, *self._others()):
            for trial in self._read(path):
                found.setdefault(trial.key, trial)
        return list(found.values())

    def begin(self, known: Iterable[Trial]) -> None:
        """Write the file of this process again with the known trials, and keep it open for more."""
        own = known if self.process == 0 else ()
        self._write(self._own, own)

    def add(self, trial: Trial) -> None:
        try:
            with self._own.open("a", encoding="utf-8") as file:
                file.write(_trial_line(trial))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _not_written(self._own, error) from error

    def merge(self, every: Iterable[Trial]) -> None:
        """Write all trials of all processes into one file, in the plan's order."""
        self._write(self.path, every)

    def clear(self) -> None:
        """Delete the files of other processes, whose trials are in the one file now."""
        for path in self._others():
            path.unlink(missing_ok=True)

    def _others(self) -> list[Path]:
        return sorted(self.path.parent.glob(glob.escape(self.path.name) + ".process*"))

    @property
    def _own(self) -> Path:
        return self.path.with_name(f"{self.path.name}.process{self.process}") if self.process else self.path

    def _write(self, path: Path, known: Iterable[Trial]) -> None:
        """Write a file in one step: if the process is killed, the old or the new file is there."""
        new = path.with_name(path.name + ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(self._text.write(known), encoding="utf-8")
            os.replace(new, path)
        except OSError as error:
            raise _not_written(path, error) from error

    def _read(self, path: Path) -> list[Trial]:
        return self._text.read(results_text(path), path.name) if path.exists() else []


def results_text(path: Path) -> str:
    """The text of a results file. Raises ``InvalidInput``."""
    try:
        if path.stat().st_size > LARGEST:
            raise InvalidInput(f"{path.name} is larger than {LARGEST // 10**6} MB. Name another file.")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or "it is not a file of this program"
        raise InvalidInput(f"Results cannot be read from {path.name} ({reason}). Name another file.") from error


def _not_written(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"Results cannot be written to {path} ({error.strerror}). Name another file.")


def measured_on(pair: Pair) -> About:
    """What figures are measured on: the pair, the machine, the versions, and the time."""
    return {"at": time.time(), "pair": pair.describe(), "machine": machine_facts(pair.device), "versions": versions()}


def _head(pair: Pair, plan: Plan) -> dict[str, Any]:
    """What two parts of one measurement must have in common, and the fields in ``UNASKED``."""
    kind = {"device": pair.device.type}  # without the number, which differs between the processes of a launch
    about = measured_on(pair)
    found: dict[str, Any] = {"version": VERSION, "weights": _weights(pair), **about}
    found |= {"pair": about["pair"] | kind, "machine": about["machine"] | kind}
    # Without sampling, the drawn seed does not matter.
    params = asdict(plan.params) | ({"seed": None} if plan.params.greedy else {})
    asked = {"prompts": [asdict(item) for item in plan.prompts], "configs": plan.configs, "runs": plan.runs}
    return found | asked | {"params": params, "chosen": asdict(plan.chosen)}


def _weights(pair: Pair) -> str:
    """A fingerprint of up to 16 values of every weight, because two checkpoints may have the same folder name."""
    digest = hashlib.sha256()
    heads = pair.draft.heads if pair.draft else ()
    for model in (*pair.models(drafting=True), *heads):
        for weight in model.parameters():
            # Offloaded values are elsewhere, and packed ones may be packed again at the first pass.
            if weight.device.type != "meta" and weight.is_floating_point():
                values = weight.detach().flatten()
                digest.update(values[:: max(1, len(values) // 16)][:16].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _same(name: str, text: str, ours: dict[str, Any]) -> float:
    """When the measurement with this first line began. Raises ``InvalidInput`` if it is another measurement."""
    try:
        theirs = from_json(text)["results"]
        differing = [name for name in ours if name not in UNASKED and theirs.get(name) != ours[name]]
        if not differing:
            return float(theirs["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidInput(f"{name} has no results of this program. Name another file.") from None
    raise InvalidInput(f"{name} has results of another measurement ({', '.join(differing)} differ). Name another file.")


def _trial_line(trial: Trial) -> str:
    return results_line(asdict(trial))
