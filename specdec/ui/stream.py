"""One race as the growing string of JSON lines that the live view reads."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from specdec.errors import InvalidInput, SpecdecError
from specdec.events import Event, Finished, SamplingParams, Started
from specdec.models import Prompt
from specdec.race import race
from specdec.recording import Recorder
from specdec.ui.limits import Limits
from specdec.verdict import lane_end, verdict

LOG = logging.getLogger(__name__)

_numbers = itertools.count(1)


def stream(
    pair: Any,
    prompt: Prompt,
    gamma: int | str,
    params: SamplingParams,
    *,
    limits: Limits,
    stop: threading.Event,
    origin: str = "run",
) -> Iterator[str]:
    """Run a race; yield all its lines so far, each time there are new ones. ``stop`` ends it early.

    The last line is a ``verdict``, or an ``error`` whose message is a sentence to show.
    """
    text = _begin(origin)
    yield text
    lanes: dict[str, list[Event]] = {}
    began, stopped = time.monotonic(), None
    try:
        check(pair, prompt, params, limits)
        recorder = Recorder(pair.tokenizer)
        batches = race(pair, prompt, gamma=gamma, params=params)
        try:
            for batch in batches:
                text += "".join(_lines(batch, lanes, recorder))
                yield text
                if stop.is_set():
                    stopped = "Stopped"
                elif limits.seconds is not None and time.monotonic() - began > limits.seconds:
                    stopped = f"Stopped after {limits.seconds:.0f} s, this page's limit,"
                if stopped:
                    break
        finally:
            batches.close()
        if not lanes:
            raise InvalidInput("Stopped before the first token.")
        complete = "speculative" in lanes and isinstance(lanes["speculative"][-1], Finished)
        text += _line(verdict(lanes.get("generate", []), lanes.get("speculative", []), None if complete else stopped))
    except SpecdecError as error:
        text += _error(str(error))
    except Exception:
        LOG.exception("The race failed.")
        text += _error("The race failed; the log of the program says why.")
    yield text


def refusal(error: SpecdecError) -> str:
    """The lines of a race that never began."""
    return _begin("run") + _error(str(error))


def check(pair: Any, prompt: Prompt, params: SamplingParams, limits: Limits) -> None:
    """Refuse what this page does not offer; what the engine itself refuses, it refuses itself."""
    if params.max_new_tokens > limits.new_tokens:
        raise InvalidInput(f"New tokens {params.max_new_tokens} is above {limits.new_tokens}. Nothing ran.")
    if limits.prompt_tokens is not None:
        takes = f"this public page takes {limits.prompt_tokens} tokens. Nothing ran."
        written = prompt if isinstance(prompt, str) else prompt[0]["content"]
        if len(written) > 32 * limits.prompt_tokens:  # not worth counting
            raise InvalidInput(f"The prompt has {len(written)} characters; {takes}")
        if (found := len(pair.tokenizer(written).input_ids)) > limits.prompt_tokens:
            raise InvalidInput(f"The prompt has {found} tokens; {takes}")


def _lines(batch: list[Event], lanes: dict[str, list[Event]], recorder: Recorder) -> Iterator[str]:
    for event in batch:
        if isinstance(event, Started):
            lanes[event.lane] = []
        lane = next(reversed(lanes))
        lanes[lane].append(event)
        yield recorder.line(event)
        if isinstance(event, Finished) and (end := lane_end(lane, lanes[lane])):
            yield _line(end)


def _begin(origin: str) -> str:
    """The first line. It differs from run to run: so the reader sees that a new string began."""
    return _line({"event": "begin", "number": next(_numbers), "origin": origin, "at": time.time()})


def _error(message: str) -> str:
    return _line({"event": "error", "message": message})


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")).replace("<", "\\u003c") + "\n"
