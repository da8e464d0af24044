"""On ZeroGPU all work runs in a forked process. The page's own process waits and runs no pass.

``zero_program`` does this with a stand-in for the package ``spaces``. This file checks its results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import ran

from specdec import errors

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("zero")]  # one run of the program
TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The results of the page's process."""
    done = ran(str(TESTS / "ui" / "jobs" / "zero_program.py"), cwd=TESTS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"log": done.stderr}


@pytest.mark.parametrize("kind", ["race", "trials", "what if", "self-test"])
def test_every_kind_of_work_gives_the_same_result_on_zerogpu(page: dict[str, Any], kind: str) -> None:
    """Every kind of work gives the same result on ZeroGPU: greedy texts token for token, and the draws of a seed."""
    assert page[kind] == page["here"][kind]


def test_one_worker_does_it_and_no_pass_runs_here(page: dict[str, Any]) -> None:
    """One worker runs all passes, as the program's own process refuses them. It is forked once and kept."""
    assert page["elsewhere"] and page["one worker"]
    assert page["started"] == page["here"]["started"]
    assert {"engine", "own_forward"} <= {*page["started"], *page["started"]["target"]}


def test_an_ended_iterator_ends_the_task(page: dict[str, Any]) -> None:
    """Stop or a leaving visitor ends the task. The worker is kept, and its next task is right."""
    assert page["empty steps"]  # here a race can be stopped while a lane warms up
    assert page["stopped"] == page["left"] == [True, True]
    assert page["after a stop"] == [page["here"]["race"], True]


def test_errors_arrive_as_they_are(page: dict[str, Any]) -> None:
    """Errors arrive with their class and sentence, after the earlier steps, and the worker stays usable."""
    assert page["refused"] == {
        "class": "BadSetting", "says": page["here"]["refused"], "title": None, "steps": 0,
    }  # fmt: skip
    assert page["not numbers"]["class"] == "NotNumbers" and page["not numbers"]["steps"] == 1
    assert page["not numbers"]["says"] == str(errors.NotNumbers("target"))
    assert page["same worker"]


def test_an_unforeseen_error_has_one_sentence_and_the_log_has_the_rest(page: dict[str, Any]) -> None:
    assert page["fault"] == {
        "class": "DeviceFailed", "says": "It failed on the GPU. The log of the program gives the reason.",
        "title": None, "steps": 1,
    }  # fmt: skip
    assert "ZeroDivisionError: a fault" in page["log"]


def test_a_refused_gpu_says_so_in_its_own_words(page: dict[str, Any]) -> None:
    assert page["quota"]["class"] == "Error" and page["quota"]["steps"] == 0
    assert page["quota"]["title"] == "ZeroGPU quota exceeded" and "exceeded your quota" in page["quota"]["says"]


def test_a_killed_worker_is_told_and_replaced(page: dict[str, Any]) -> None:
    assert page["killed"]["class"] == "DeviceFailed" and "GPU task aborted" in page["killed"]["says"]
    assert page["after a kill"] == [page["here"]["race"], True]


def test_the_seconds_asked_for_follow_what_tasks_took(page: dict[str, Any]) -> None:
    assert page["learned"] == [60, 10]
    assert all(10 <= seconds <= 60 for seconds in page["asked"])
