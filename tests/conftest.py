"""Two processes share the tests, with one core each: small models do not run faster on two."""

from __future__ import annotations

import gc
import os
import time
from weakref import WeakKeyDictionary

import pytest
import torch
from needed import missing_chromium, missing_node

from specdec.forward import lean_check
from specdec.forward.native import passes
from specdec.lanes import decoding_thread
from specdec.measure.gain import RunMetrics
from specdec.report import verdict
from specdec.servers import answer

STEP = 5  # percent between two lines about the progress

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)
    # Gradio takes the first free port from here on; two processes that take the same one wait seconds for it.
    os.environ["GRADIO_SERVER_PORT"] = str(7860 + 100 * int(worker.removeprefix("gw")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also the tests that the short suite leaves out")
    parser.addoption("--hours", action="store_true", help="--full, with the longest texts and tables; takes hours")


def pytest_configure(config: pytest.Config) -> None:
    """Tell the test modules how much is asked for, before they are imported. ``comparison`` has the answer."""
    hours = config.getoption("hours")
    for name, asked in (("SPECDEC_FULL", hours or config.getoption("full")), ("SPECDEC_HOURS", hours)):
        os.environ.pop(name, None)
        if asked:
            os.environ[name] = "1"
    if "PYTEST_XDIST_WORKER" not in os.environ and config.option.verbose < 0:
        config.pluginmanager.register(Progress(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are marked ``full``, unless all were asked for."""
    if config.getoption("full") or config.getoption("hours"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """Leave what is loaded so far out of later collections of garbage, which tests ask for hundreds of times."""
    gc.collect()
    gc.freeze()


WAITS = {"browser", "lanes", "load", "ui"}  # folders of tests that look at when batches come


@pytest.fixture(autouse=True)
def hurried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere nobody looks at a lane while it runs, so nothing waits between two of its batches."""
    if not WAITS & set(request.path.parts):
        drain = decoding_thread._drain
        monkeypatch.setattr(decoding_thread, "_drain", lambda events, interval: drain(events, 0.0))


@pytest.fixture(autouse=True)
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests share the machine, and some models sleep in place of work. So only the judge's own tests call it busy.

    The stand-ins of servers answer at one moment, which is late on a busy machine, and is no sign of a proxy there. A
    race of a test runs once, unless the test looks at how often it runs.
    """
    if "judge" not in request.path.name:
        monkeypatch.setattr(RunMetrics, "busy", False)
    monkeypatch.setattr(answer, "HELD_SECONDS", 60.0)
    monkeypatch.setattr(verdict, "LEAST_RUNS", 1)
    monkeypatch.setattr(verdict, "MOST_RUNS", 1)


@pytest.fixture
def torch_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lean models are built anew, and torch runs their passes: equal to those of ``forward`` to the last bit."""
    monkeypatch.setattr(passes, "why_torch", lambda dtype, device: "Not in this test.")
    monkeypatch.setattr(lean_check, "_stacks", WeakKeyDictionary())


class Progress:
    """Says at the beginning what will be skipped, and then from time to time how far the tests are."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._began, self._done, self._said = config, time.monotonic(), 0, 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        for what, missing in (("browser", missing_chromium()), ("script", missing_node())):
            if missing:
                self._say(f"The {what} tests are skipped: {missing}.")

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return ("passed", "", "PASSED") if report.passed and report.when == "call" else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        self._done += 1
        percent = 100 * self._done // max(1, self._session.testscollected)
        if percent >= self._said + STEP:
            self._said = percent
            seconds = int(time.monotonic() - self._began)
            self._say(f"{percent:3} %  {seconds // 60}:{seconds % 60:02}")

    def _say(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
