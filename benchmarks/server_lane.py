"""A lane on a server that speaks OpenAI's completions and returns token ids, such as vLLM. For ``benchmarks.peers``.

The server chooses how it drafts. Its rounds are the parts of its answer, and what it drafted is not known.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

from specdec.engine.request import Request, make_call
from specdec.errors import InvalidInput
from specdec.events import Finished, Round
from specdec.lanes.decoding_thread import Emit, PushedLane
from specdec.lanes.table import Lane
from specdec.runtime.clock import CallClock

PATIENCE = 300  # seconds; a server may compile at its first request


def server_lane(number: int, name: str, address: str) -> Lane:
    """A row of the table of lanes for the server at ``address``, such as "http://127.0.0.1:8000"."""

    def begin(request: Request, *_: Any) -> PushedLane:
        return PushedLane(lambda emit: _stream(request, address, emit))

    return Lane(f"server-{number}", name, name, begin, "none", bench=None)


def _stream(request: Request, address: str, emit: Emit) -> None:
    call = make_call("generate", request)
    if not request.params.greedy or not request.params.ignore_eos:
        raise InvalidInput("A server writes greedy texts of a fixed length here.")
    model = json.load(_open(f"{address}/v1/models"))["data"][0]["id"]
    body = {
        "model": model,
        "prompt": request.prompt_ids.tolist(),
        "max_tokens": request.params.max_new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    emit(call.started)
    clock, index, first = CallClock(), 0, 0.0
    for ids in _parts(_open(f"{address}/v1/completions", body)):
        elapsed = clock.elapsed()
        first = first if index else elapsed
        emit(Round(index, None, None, None, ids, None, None, elapsed))
        index += 1
    emit(Finished("length", first, clock.elapsed()))


def _open(address: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    return urllib.request.urlopen(asked, timeout=PATIENCE)


def _parts(answer: Any) -> Iterator[tuple[int, ...]]:
    """The token ids of each part of a streamed answer that has any."""
    for line in answer:
        text = line.decode().strip().removeprefix("data:").strip()
        if not text or text == "[DONE]":
            continue
        found = json.loads(text)
        if "choices" not in found:
            raise InvalidInput(f"The server answered {text[:200]}.")
        for choice in found["choices"]:
            if "token_ids" not in choice:
                raise InvalidInput("The server returns no token ids; it needs vLLM 0.11 or newer.")
            if choice["token_ids"]:
                yield tuple(choice["token_ids"])
