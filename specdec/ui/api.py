"""The page's endpoints for programs: ``/race`` and ``/decode``, with the page's own defaults and limits."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import gradio as gr

from specdec.engine.request import make_request
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.lanes.driver import driven
from specdec.lanes.race import named, start
from specdec.lanes.table import DEFAULT_KEYS, LANES, Lane, row_of
from specdec.report.recording import Recorder
from specdec.ui.ask import GAMMA, NEW_TOKENS, Ask
from specdec.ui.limits import Limits
from specdec.ui.stream import check, stream
from specdec.ui.work import Work


def add_endpoints(work: Work, limits: Limits, **queue: Any) -> None:
    """Add both endpoints to the Blocks that are being built. ``queue`` holds their concurrency settings."""

    def decode(
        prompt: str,
        gamma: int | Literal["auto"] = GAMMA,
        max_new_tokens: int = NEW_TOKENS,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        ignore_eos: bool = False,
        lane: str = "speculative",
    ) -> Iterator[str]:
        """Decode a prompt and stream the recording: each output is one or more JSON lines, an event a line.
        Lanes: {lanes}.

        Parameters:
            prompt: the text to continue
            gamma: tokens the draft proposes a round, 0 to 16, or "auto"; not used by lanes that take none
            max_new_tokens: tokens to write at most
            temperature: 0 is greedy
            top_k: sample from the k most likely tokens; 0 is all
            top_p: sample from the most likely tokens that together have this probability
            min_p: leave out tokens less likely than this share of the most likely one
            repetition_penalty: above 1 makes tokens that occurred before less likely
            seed: for sampling; none draws one, which the recording names
            ignore_eos: write on past the end of the text
            lane: one of the lanes
        """
        with _sentences(), work.machine() as pair:
            _require("prompt", prompt, str, "a text")
            _require("lane", lane, str, "the name of a lane")
            _require("ignore_eos", ignore_eos, bool, "true or false")
            params = SamplingParams(
                max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, ignore_eos=ignore_eos
            )
            check(pair, prompt, params, limits)
            entrant = row_of(lane).entrant(gamma)
            events = start(make_request(pair, prompt, params), entrant)
            recorder = Recorder(pair.tokenizer)
            for batch in driven(events, interval=0.08, max_seconds=limits.seconds):
                if batch:
                    yield "".join(recorder.line(named(event, entrant)) for event in batch)

    def race(
        prompt: str,
        gamma: int | Literal["auto"] = GAMMA,
        max_new_tokens: int = NEW_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
        runs: int = 1,
        further_lanes: list[str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Race plain generate against speculative decoding; the last output is the verdict: its sentence, its
        figures and a row a lane. Further lanes: {further}.

        Parameters:
            prompt: the text to continue
            gamma: tokens the draft proposes a round, 0 to 16, or "auto"
            max_new_tokens: tokens to write at most, in each lane
            temperature: 0 is greedy
            seed: for sampling; none draws one
            runs: how often to run each lane; figures are then medians with lowest and highest
            further_lanes: those to run beside {default}
        """
        with _sentences(), work.machine() as pair:
            _require("prompt", prompt, str, "a text")
            _require("runs", runs, int, "a whole number")
            if runs > limits.runs:
                raise InvalidInput(f"runs {runs} is above {limits.runs}. Nothing ran.")
            _require("further_lanes", further_lanes or [], list, "a list of names")
            lanes = (*DEFAULT_KEYS, *map(str, further_lanes or ()))
            ask = Ask(prompt, gamma, SamplingParams(max_new_tokens, temperature, seed=seed), lanes=lanes, runs=runs)
            # Each step is yielded, so that a caller who leaves ends the race; only the last one is told of at length.
            for text in stream(pair, ask, limits=limits, stop=threading.Event()):
                last = text[text.rfind("\n", 0, -1) + 1 :]
                yield {"running": True}
            record = json.loads(last)
            if record.pop("event") == "error":
                raise gr.Error(record["message"], print_exception=False)
            yield record

    lanes = {
        "lanes": _named_lanes(LANES),
        "default": " and ".join(DEFAULT_KEYS),
        "further": _named_lanes([lane for lane in LANES if not lane.race]),
    }
    for endpoint in (decode, race):
        endpoint.__doc__ = (endpoint.__doc__ or "").format(**lanes)  # what a program is told of the endpoint
        gr.api(endpoint, **queue)


def _named_lanes(lanes: Sequence[Lane]) -> str:
    return ", ".join(f"{lane.key} ({lane.choice})" for lane in lanes)


def _require(name: str, value: Any, kind: type, wanted: str) -> None:
    """What the caller's JSON holds is not held to the types above by anyone else."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInput(f"{name} is {value!r}; give {wanted}.")


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """What specdec refuses reaches the caller as its sentence, without a traceback in the log."""
    try:
        yield
    except SpecdecError as error:
        raise gr.Error(str(error), print_exception=False) from error
