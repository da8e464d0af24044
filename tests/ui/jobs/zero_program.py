"""A page's process on ZeroGPU with a stand-in for ``spaces``. It prints the results for ``test_zerogpu``, as JSON.

It is a separate process, because a fork of one whose libraries keep threads may wait for them for ever.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import spaces_standin as spaces

sys.modules["spaces"] = spaces

import gradio as gr  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import specdec  # noqa: E402
from specdec.errors import NotNumbers  # noqa: E402
from specdec.events import Event  # noqa: E402
from specdec.lanes.decoding_thread import Batches, driven  # noqa: E402
from specdec.lanes.race import race  # noqa: E402
from specdec.lanes.table import LaneConfig  # noqa: E402
from specdec.measure.losslessness import self_test  # noqa: E402
from specdec.measure.plan import Plan, Trial  # noqa: E402
from specdec.measure.prompts import PromptItem  # noqa: E402
from specdec.measure.task import Task  # noqa: E402
from specdec.measure.trials import trials  # noqa: E402
from specdec.measure.whatif import Calibration, Costs, what_if  # noqa: E402
from specdec.models.loading import EMBEDDED  # noqa: E402
from specdec.ui.jobs.zerogpu import seconds_for, zero_run  # noqa: E402

PROMPT = "Once upon a time"
PARAMS = specdec.SamplingParams(max_new_tokens=32, seed=1, ignore_eos=True)
CONFIGS = (LaneConfig("generate"), LaneConfig("speculative", 3))
PLAN = Plan((PromptItem("a", "b", PROMPT),), CONFIGS, PARAMS, runs=2)
HERE = os.getpid()


def recorded(pair: specdec.Pair, params: specdec.SamplingParams) -> Batches:
    """The run that "What if" reads."""
    return driven(specdec.speculative(pair, PROMPT, gamma=Calibration(), params=params), 0.08)


def process(pair: specdec.Pair) -> Iterator[int]:
    """The process that runs a task."""
    yield os.getpid()


def endless(pair: specdec.Pair, closed: Path) -> Iterator[list[Event]]:
    """Leaves a file when it is closed."""
    try:
        while True:
            yield []
            time.sleep(0.02)
    finally:
        closed.touch()


def not_numbers(pair: specdec.Pair) -> Iterator[None]:
    yield None
    raise NotNumbers("target")


def faulty(pair: specdec.Pair) -> Iterator[None]:
    yield None
    raise ZeroDivisionError("a fault")


def killed(pair: specdec.Pair) -> Iterator[int]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)
    yield 2


RACE = Task(partial(race, prompt=PROMPT, gamma=3, params=PARAMS), tokens=3 * 32)
TRIALS = Task(partial(trials, plan=PLAN), tokens=4 * 32)
WHAT_IF = Task(partial(recorded, params=replace(PARAMS, max_new_tokens=128)), tokens=128)
SELF_TEST = Task(partial(self_test, params=specdec.SamplingParams(temperature=1.0, top_k=3, seed=5), draws=50), 600)


def texts(steps: Any) -> list[list[int]]:
    """The new ids of each lane of a race."""
    found: list[list[int]] = []
    for event in (event for batch in steps for event in batch):
        if isinstance(event, specdec.Started):
            found.append([])
        elif isinstance(event, specdec.Round):
            found[-1] += event.committed_ids
    return found


def measured(steps: Any) -> list[Any]:
    return [(t.run, t.lane, t.gamma, list(t.token_ids)) for t in steps if isinstance(t, Trial)]


def outcomes(steps: Any) -> dict[str, Any]:
    events = [event for batch in steps for event in batch]
    found = [outcome for outcome in what_if(events, Costs.of(events)) if outcome.name != "oracle"]  # it reads the clock
    return {"text": texts([events]), "tokens": {outcome.name: outcome.tokens_per_pass for outcome in found}}


def findings(steps: Any) -> dict[str, Any]:
    *_, last = steps
    return last.record()


def error_of(task: Task[Any]) -> dict[str, Any]:
    """How a task fails, and after how many steps."""
    steps = 0
    try:
        for _ in run(task):
            steps += 1
    except Exception as error:
        found = {"class": type(error).__name__, "says": str(error), "title": getattr(error, "title", None)}
        return found | {"steps": steps}
    return {}


def worker() -> int:
    """The process of a task that is started now."""
    (found,) = run(Task(process, 1))
    return found


def not_here(*args: Any, **kwargs: Any) -> Any:
    """Stands for a pass, which the page's process cannot run without a GPU."""
    assert os.getpid() != HERE, "a pass in the page's process"
    return linear(*args, **kwargs)


torch.set_num_threads(1)
logging.basicConfig(level=logging.WARNING)  # as the page does, to stderr
pair = specdec.load_pair(EMBEDDED / "draft", specdec.EarlyExit(1))  # its passes are short
run = zero_run(pair)
linear, F.linear = F.linear, not_here
found: dict[str, Any] = {}

# Every kind of work, in one worker.
found["first seconds"] = seconds_for(RACE)
steps = list(run(RACE))
found["race"] = texts(steps)
found["started"] = next(event.pair for batch in steps for event in batch if isinstance(event, specdec.Started))
found["empty steps"] = steps.count([])
found["learned"] = seconds_for(Task(RACE.run, 10_000_000)), seconds_for(Task(RACE.run, 1))
found["trials"] = measured(run(TRIALS))
found["what if"] = outcomes(run(WHAT_IF))
found["self-test"] = findings(run(SELF_TEST))
first = worker()
found["elsewhere"] = first != HERE
found["one worker"] = spaces.forks == [first]

# Stop, and a visitor who leaves.
with tempfile.TemporaryDirectory() as folder:
    for name, leave in {
        "stopped": lambda steps: steps.close(),
        "left": lambda steps: threading.Thread(target=steps.close).start(),
    }.items():
        steps = run(Task(partial(endless, closed=Path(folder) / name), 1))
        next(steps)
        leave(steps)
        for other in threading.enumerate():
            if other is not threading.current_thread() and not other.daemon:
                other.join()
        found[name] = (Path(folder) / name).exists(), spaces.idle() == [first]
    steps = run(RACE)
    while not any(isinstance(event, specdec.Round) for event in next(steps)):
        pass
    steps.close()
    found["after a stop"] = texts(run(RACE)), worker() == first

# Failing tasks.
found["refused"] = error_of(Task(partial(race, prompt=PROMPT, gamma=99), 1))
found["not numbers"] = error_of(Task(not_numbers, 1))
found["fault"] = error_of(Task(faulty, 1))
found["same worker"] = worker() == first
spaces.refusal = quota = gr.Error("You have exceeded your quota.", title="ZeroGPU quota exceeded")
found["quota"] = error_of(RACE)
found["killed"] = error_of(Task(killed, 1))
found["after a kill"] = texts(run(RACE)), worker() not in (first, HERE)
found["asked"] = spaces.asked

# The same work in this process.
F.linear = linear
found["here"] = {
    "race": texts(RACE.run(pair)),
    "trials": measured(TRIALS.run(pair)),
    "what if": outcomes(WHAT_IF.run(pair)),
    "self-test": findings(SELF_TEST.run(pair)),
    "started": pair.describe(),
    "params": asdict(PARAMS),
}
try:
    race(pair, PROMPT, gamma=99)
except specdec.InvalidInput as error:
    found["here"]["refused"] = str(error)
print(json.dumps(found))
