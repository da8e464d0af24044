"""Runs the parts of a campaign, each in a process of its own and within its time, and keeps what they find.

A part is a generator. Each value that it yields is all that it has found so far, and is written into the file of its
step at once. So a part that fails, hangs or loses the GPU costs no other part anything, and a campaign that is cut off
loses the part it was in at most. Processes are forked, so packages are imported once. The first process itself never
uses the GPU: a forked process could not use it then.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from specdec.forward.native.build import SWITCH
from specdec.report.recording import plain_json

Found = dict[str, Any]
START = 3.0  # seconds until a new process has begun to compute on a GPU
RESERVE = 4.0  # seconds that are left at the end of a campaign
STEPS = ("facts", "right", "faults", "table", "recordings")
PRINTED = 4_000  # last characters of what a failed part printed that are kept


@dataclass(frozen=True)
class Setting:
    """Where a part runs and writes. A ``rehearsal`` runs the same code on a CPU, with tiny models."""

    out: Path
    rehearsal: bool

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.rehearsal else "cuda", None if self.rehearsal else 0)

    def wait(self) -> None:
        """Wait until the device has done its work."""
        if not self.rehearsal:
            torch.cuda.synchronize()

    def memory(self) -> int:
        """Bytes that tensors take on the device; 0 in a rehearsal."""
        return 0 if self.rehearsal else torch.cuda.memory_allocated()


@dataclass(frozen=True)
class Part:
    """A piece of a step.

    - ``work``: yields what it has found so far. ``line`` in it is a sentence for the table at the end.
    - ``seconds``: how long it is expected to take on an H100 (``estimate``).
    - ``most``: seconds after which it is ended.
    """

    step: str
    name: str
    work: Callable[[Setting], Iterator[Found]]
    seconds: float
    most: float


class Results:
    """The files of a campaign: one for each step, with its parts by name.

    A part has ``state`` (done, failed, out of time, ended, left out), ``seconds``, ``found`` and, where it failed,
    ``error`` and the end of what it ``printed``.
    """

    def __init__(self, folder: Path, rehearsal: bool):
        self.folder, self.rehearsal = folder, rehearsal
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, step: str) -> Found:
        """The parts of a step that are known, by name. Raises ``SystemExit`` for files of the other kind."""
        path = self.folder / f"{step}.json"
        try:
            known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError:  # cut off while it was written: the step runs again
            return {}
        if known and known["rehearsal"] is not self.rehearsal:
            kinds = (
                "a rehearsal" if known["rehearsal"] else "a run on a GPU",
                "a rehearsal" if self.rehearsal else "one",
            )
            raise SystemExit(f"{self.folder} holds {kinds[0]}, and this is {kinds[1]}. Name another folder with --out.")
        return known.get("parts", {})

    def write(self, part: Part, record: Found) -> None:
        parts = self.read(part.step) | {part.name: record}
        path = self.folder / f"{part.step}.json"
        new = path.with_suffix(".new")
        new.write_text(plain_json({"step": part.step, "rehearsal": self.rehearsal, "parts": parts}, indent=1))
        os.replace(new, path)


def run(parts: Sequence[Part], setting: Setting, ends: float) -> list[tuple[Part, Found]]:
    """Run the parts in order until the clock (``time.monotonic``) is at ``ends``.

    A part that would not end in time is left out. Parts that the folder holds already do not run again.
    """
    results = Results(setting.out, setting.rehearsal)
    ended = []
    for part in parts:
        record = results.read(part.step).get(part.name)
        if record is None or record["state"] != "done":
            left = ends - RESERVE - time.monotonic()
            if left < part.seconds:
                sentence = f"It is expected to take {part.seconds:.0f} s, and {max(0.0, left):.0f} s were left."
                record = {"state": "left out", "seconds": 0.0, "found": {}, "error": sentence}
                results.write(part, record)
            else:
                record = run_part(part, setting, min(part.most, left), lambda found, p=part: results.write(p, found))
        ended.append((part, record))
        print(line_of(part, record), flush=True)
    return ended


def line_of(part: Part, record: Found) -> str:
    """One line about a part that has ended."""
    seconds = f"{record['seconds']:6.1f} s (expected {part.seconds:.0f})"
    return f"{part.step:<11} {part.name:<28} {seconds}  {line_of_record(record)}"


def line_of_record(record: Found) -> str:
    """What a part has found, in a sentence; before it the reason, if it did not end."""
    says = record["found"].get("line") or ""
    if record["state"] == "done":
        return says
    last = (record.get("error") or "").strip().splitlines()
    return f"{record['state'].upper()}: {last[-1] if last else ''} {says}".strip()


def run_part(part: Part, setting: Setting, most: float, write: Callable[[Found], None]) -> Found:
    """Run one part in a process of its own. ``write`` gets its record each time there is something new."""
    log, printed = tempfile.mkstemp()
    context = multiprocessing.get_context("fork" if can_fork(setting.rehearsal) else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(part, setting, sender, printed))
    began = time.monotonic()
    record: Found = {"state": "ended", "seconds": 0.0, "found": {}, "error": "It was cut off."}
    write(record)
    process.start()
    assert process.pid is not None
    sender.close()
    try:
        while receiver.poll(max(0.0, began + most - time.monotonic())):
            record |= receiver.recv()
            record["seconds"] = time.monotonic() - began
            write(record)
            if record["state"] in ("done", "failed"):
                break
        else:
            record |= {"state": "out of time", "error": f"It was ended after {most:.0f} s."}
    except EOFError:  # the process died
        process.join(5)
        record |= {"error": f"Its process ended with exit status {process.exitcode}."}
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):  # compilers that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        receiver.close()
    with open(log, encoding="utf-8", errors="replace") as text:
        if record["state"] != "done":
            record["printed"] = text.read()[-PRINTED:]
    os.unlink(printed)
    record["seconds"] = time.monotonic() - began
    write(record)
    return record


def _child(part: Part, setting: Setting, sender: Connection, printed: str) -> None:
    with contextlib.suppress(PermissionError):  # a new process may lead its group already
        os.setsid()
    log = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):  # what it prints, and what a library or the driver prints
        os.dup2(log, number)
    found: Found = {}
    try:
        if setting.rehearsal:
            os.environ[SWITCH] = "0"  # the stand-in for a capture records torch's operators
            torch.set_num_threads(1)  # a forked process cannot use the threads of the first one
        for found in part.work(setting):
            sender.send({"state": "ended", "found": found})
        sender.send({"state": "done", "found": found, "error": None})
    except BaseException:
        sender.send({"state": "failed", "found": found, "error": traceback.format_exc()})
    sender.close()


@functools.cache
def can_fork(rehearsal: bool) -> bool:
    """Whether a forked process can use the device. Some programs use the GPU when they are imported."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        with contextlib.suppress(Exception):
            torch.zeros(1, device="cpu" if rehearsal else "cuda").add_(1).cpu()
            os.write(writer, b"y")
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader, "rb") as answer:
        return answer.read() == b"y"
