"""The command that serves the page, as a process of its own."""

from __future__ import annotations

import asyncio
import signal

import psutil
import pytest

from specdec.cli.page import main
from tests.load.faults import is_free, stopped
from tests.load.served import Served
from tests.load.tiny import save_pair


def test_a_link_is_opened_to_this_machine_alone() -> None:
    """Other machines in the network could ask for any address."""
    with pytest.raises(SystemExit, match="--share"):
        main(["--share", "--host", "0.0.0.0"])


def test_a_page_that_is_stopped_tells_its_visitors_and_ends(tmp_path) -> None:
    """A running visitor keeps the result so far, a waiting one reads why nothing ran, and nothing is left over."""
    with Served(*save_pair(tmp_path), whole=True) as page:
        (running, *waiting), seconds, status = asyncio.run(stopped(page, signal.SIGTERM))
        assert "Stopped" in running and len(waiting) == 2
        assert all("is being stopped" in told and "Nothing ran." in told for told in waiting)
        assert (status, seconds < 30) == (0, True)  # a busy machine is no reason to fail
        assert is_free(page.port) and not psutil.pid_exists(page.pid)
