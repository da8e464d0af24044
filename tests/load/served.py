"""A page in its own process, so that its memory, threads and files can be measured and it can get signals."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["specdec.cli.page", "specdec.cli.bench", "tests.load.injected"])
START = 180.0  # seconds: a busy machine is no reason to fail


class Footprint(NamedTuple):
    memory: int  # bytes, resident
    threads: int
    files: int  # open files and sockets
    children: int

    def __str__(self) -> str:
        return f"{self.memory / 1e6:.0f} MB, {self.threads} threads, {self.files} files, {self.children} children"


class Served:
    """``with Served(public=True) as page``: its address is ``page.address``. ``arguments`` are those of the command.

    Each page is a fork of a process that has imported everything already, as dozens are served; ``whole`` starts the
    command as a person does. ``fault`` is a file that names a fault for the next pass (see ``faults``).
    """

    def __init__(self, *arguments: str, public: bool = False, whole: bool = False, fault: Path | None = None):
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._log = Path(tempfile.mkstemp(prefix="specdec-load-", suffix=".log")[1])
        command = ["page", "--host", "127.0.0.1", "--port", str(self.port), *arguments]
        environment = {"SPACE_ID": "somebody/specdec"} if public else {}
        self._popen, self._fork = None, None
        if whole:
            log = self._log.open("w")
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "specdec", *command],
                cwd=ROOT, env=os.environ | ENVIRONMENT | environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            self.pid = self._popen.pid
        else:
            os.environ.update(ENVIRONMENT)  # the forking process reads it from here
            self._fork = FORKS.Process(target=_page, args=(command, environment, self._log, fault), daemon=True)
            self._fork.start()
            self.pid = self._fork.pid or 0

    def __enter__(self) -> Served:
        self.wait_until_up()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.ended(0) is None:
            self.send(signal.SIGTERM)
        if self.ended(15) is None:
            self.send(signal.SIGKILL)
            self.ended(15)
        if not any(error):
            self._log.unlink()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self, seconds: float) -> int | None:
        """The exit status, or None if the process has not ended within ``seconds``."""
        if self._fork is not None:
            self._fork.join(seconds)
            return self._fork.exitcode
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None

    def wait_until_up(self) -> None:
        """Wait until the page answers and its start-up race has ended."""
        end = time.monotonic() + START
        while time.monotonic() < end:
            if (status := self.ended(0)) is not None:
                raise RuntimeError(f"The page ended with {status}:\n{self.log[-2000:]}")
            try:
                if self.health().get("running", "") is None:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise RuntimeError(f"The page did not come up:\n{self.log[-2000:]}")

    def health(self) -> dict[str, Any]:
        """The answer of /healthz, with the HTTP status under "status"."""
        answer = httpx.get(f"{self.address}/healthz", timeout=30)
        return answer.json() | {"status": answer.status_code}

    def footprint(self) -> Footprint:
        process = psutil.Process(self.pid)
        memory = process.memory_info().rss
        return Footprint(memory, process.num_threads(), process.num_fds(), len(process.children(recursive=True)))

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


def settled(page: Served, seconds: float = 60.0, at_most: Footprint | None = None) -> Footprint:
    """The footprint once nothing runs or waits, and threads and files are no more than those of ``at_most`` if given.

    Connections that visitors left open are closed after a while. After ``seconds`` the footprint is taken anyway.
    """
    end = time.monotonic() + seconds
    while True:
        health, found = page.health(), page.footprint()
        quiet = health["running"] is None and not health["waiting"]
        small = at_most is None or (found.threads <= at_most.threads and found.files <= at_most.files)
        if (quiet and small) or time.monotonic() > end:
            return found
        time.sleep(0.5)


def _page(command: list[str], environment: dict[str, str], log: Path, fault: Path | None) -> None:
    """The command, in a fork."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(environment)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    from specdec.cli import main
    from specdec.report import verdict
    from tests.load.injected import inject

    verdict.LEAST_RUNS = verdict.MOST_RUNS = 1  # runs of a race

    if fault is not None:
        inject(fault)
    main(command)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
