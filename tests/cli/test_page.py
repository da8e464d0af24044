"""The command that serves the page, as a process of its own."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from specdec.cli import page
from specdec.cli.parsers import parser_of
from specdec.ui.server import launch
from tests.load.faults import is_free, stopped
from tests.load.served import Served
from tests.load.tiny import save_pair


@pytest.fixture(autouse=True)
def process(monkeypatch) -> None:
    """Leave the logs and threads of this process as they are."""
    monkeypatch.setattr(page, "log_to_terminal", lambda: None)
    monkeypatch.setattr(page, "leave_a_core", lambda: None)


def run_page(*words: str) -> None:
    page.main(parser_of("page").parse_args(words))


def test_a_link_is_opened_to_this_machine_alone() -> None:
    """Other machines in the network could ask for any address."""
    with pytest.raises(SystemExit, match="--share"):
        run_page("--share", "--host", "0.0.0.0")


@pytest.mark.parametrize(
    ("arguments", "space", "public", "proxies"),
    [
        ([], "", False, 0),
        (["--host", "0.0.0.0"], "", True, 0),
        (["--behind-proxy"], "", True, 1),
        (["--behind-proxy", "2", "--host", "0.0.0.0"], "", True, 2),
        (["--share"], "", True, None),
        ([], "somebody/specdec", True, None),
    ],
)
def test_the_page_knows_who_is_in_front_of_it(monkeypatch, arguments, space, public, proxies) -> None:
    limits, options = started(monkeypatch, arguments, SPACE_ID=space)[0]
    assert (limits.public, options["proxies"]) == (public, proxies)


def test_the_model_of_named_servers_is_an_option(monkeypatch) -> None:
    """A server may have several, and a page with named servers has no field for it."""
    servers = ["--server", "plain=http://127.0.0.1:1", "--server", "spec=http://127.0.0.1:2"]
    for given in (None, "llama"):
        options = started(monkeypatch, [*servers, *(["--model", given] if given else [])])[0][1]
        assert [(each.name, each.model) for each in options["servers"]] == [("plain", given), ("spec", given)]
    with pytest.raises(SystemExit, match="--model is of servers"):
        run_page("--model", "llama")


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.5", ""])
def test_a_number_of_proxies_that_cannot_be_is_refused(count, capsys) -> None:
    with pytest.raises(SystemExit):
        run_page(f"--behind-proxy={count}")
    assert "give how many trusted proxies" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "served"),
    [("/tool", "/tool"), ("/tool/", "/tool"), ("/a/b.c_d~@+-1", "/a/b.c_d~@+-1"), ("/", ""), ("", "")],
)
def test_the_page_is_served_under_a_path(monkeypatch, path, served) -> None:
    """The option and Gradio's variable do the same, and the option comes first."""
    assert started(monkeypatch, ["--root-path", path])[1]["root_path"] == served
    assert started(monkeypatch, [], GRADIO_ROOT_PATH=path)[1]["root_path"] == served
    assert started(monkeypatch, ["--root-path", "/other"], GRADIO_ROOT_PATH=path)[1]["root_path"] == "/other"


@pytest.mark.parametrize(
    "path",
    [
        "tool", "/tool?a=1", "/tool#a", "https://example.com/tool", "//tool", "/a//b", "/a/../b", "/.", "/a b", "/t%20",
        "\\tool", "/t\n", "/t\u00e9", "tool/", "/..",
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_is_refused(monkeypatch, path, capsys) -> None:
    for arguments, variable in (([f"--root-path={path}"], ""), ([], path)):
        monkeypatch.setenv("GRADIO_ROOT_PATH", variable)
        with pytest.raises(SystemExit):
            run_page(*arguments)
        assert "give a path such as /tool" in capsys.readouterr().err


def started(monkeypatch, arguments: list[str], **environment: str) -> tuple[tuple[Any, dict], dict]:
    """The limits and options with which the command builds the page, and the options with which it serves it."""
    calls = []
    monkeypatch.setattr(page, "Slot", lambda plan: None)
    monkeypatch.setattr(page, "build", lambda slot, limits, run, journal, **options: calls.append((limits, options)))
    monkeypatch.setattr(page, "serve_until_stopped", lambda page, **options: calls.append(options))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run_page(*arguments)
    built, served = calls
    return built, served


@pytest.mark.parametrize(
    ("arguments", "space", "said"),
    [
        ([], "", False),
        (["--host", "0.0.0.0"], "", True),
        (["--behind-proxy"], "", True),
        (["--share"], "", True),
        (["--host", "0.0.0.0", "--auth", "me:secret"], "", False),
        ([], "somebody/specdec", False),
    ],
)
def test_a_page_that_anyone_can_use_says_so(monkeypatch, capsys, arguments, space, said) -> None:
    monkeypatch.delenv("SPECDEC_AUTH", raising=False)
    started(monkeypatch, arguments, SPACE_ID=space)
    assert ("Anyone who has the address can use this page" in capsys.readouterr().err) == said


def test_a_page_whose_device_is_lost_ends_with_status_1(monkeypatch) -> None:
    """Even if a pass hangs, so that a Space starts it again."""
    closed: list[str] = []
    jobs = SimpleNamespace(close=lambda why, seconds: closed.append(why) or False)
    served = SimpleNamespace(jobs=jobs, demo=SimpleNamespace(close=lambda: closed.append("demo")))
    monkeypatch.setattr(launch, "serve", lambda page: page.jobs.on_lost())
    monkeypatch.setattr(launch.signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(launch.sandbox, "end", lambda: None)
    monkeypatch.setattr(launch, "LAST_WORDS", 0)
    statuses: list[int] = []

    def leave(status: int) -> None:
        statuses.append(status)
        raise SystemExit(status)

    monkeypatch.setattr(launch.os, "_exit", leave)
    with pytest.raises(SystemExit):
        launch.serve_until_stopped(served)
    assert statuses == [1] and "is being stopped" in closed[0] and closed[1] == "demo"


@pytest.mark.full
def test_a_page_that_is_stopped_tells_its_visitors_and_ends(tmp_path) -> None:
    """A running visitor keeps the result so far, a waiting one reads why nothing ran, and nothing is left over."""
    with Served(*save_pair(tmp_path), whole=True) as served:
        (running, *waiting), seconds, status = asyncio.run(stopped(served, signal.SIGTERM))
        assert "Stopped" in running and len(waiting) == 2
        assert all("is being stopped" in told and "Nothing ran." in told for told in waiting)
        assert (status, seconds < 30) == (0, True)  # a busy machine is no reason to fail
        assert is_free(served.port) and not psutil.pid_exists(served.pid)
