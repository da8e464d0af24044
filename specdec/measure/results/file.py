"""Keeps the trials of a pair's measurement in a file, so that an interrupted measurement can be continued.

Continuing needs the pair that was measured. ``measure.results.format`` reads the same files without it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from specdec.engine.request import machine_facts, versions
from specdec.errors import InvalidInput
from specdec.measure.plan import Key, Plan, Trial
from specdec.measure.results.format import About
from specdec.measure.results.text import ResultsText, plan_head, trial_line
from specdec.models.pair import Pair

LARGEST = 256_000_000  # bytes of a results file that is read


class ResultsFile:
    """A pair's results in a file. Trials that it contains are not measured again.

    Where several processes measure, each writes its own file beside this one until ``merge``.
    """

    def __init__(self, path: Path, pair: Pair, plan: Plan, process: int = 0):
        self.path, self.process = Path(path), process
        self._text = results_of_pair(pair, plan)

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
                file.write(trial_line(trial))
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


def results_of_pair(pair: Pair, plan: Plan) -> ResultsText:
    """The results of a plan that a pair runs. Two parts of one measurement must have the same weights, too."""
    about, kind = measured_on(pair), {"device": pair.device.type}  # the number differs between processes of a launch
    facts, machine = about["pair"] | kind, about["machine"] | kind
    head = plan_head({**about, "pair": facts, "machine": machine}, plan)  # type: ignore[typeddict-item]
    return ResultsText(plan, head | {"weights": _weights(pair)})


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
