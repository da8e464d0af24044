"""A lane on a server that tells token ids, such as vLLM, for ``benchmarks.peers``; read as ``specdec.servers`` does.

The server gets the ids of the prompt, and chooses how it drafts. Its rounds are the parts of its answer, and what it
drafted is not known.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from specdec.engine.request import Request, make_call
from specdec.errors import InvalidInput
from specdec.events import Finished, Round
from specdec.lanes.decoding_thread import Emit, PushedLane
from specdec.lanes.table import Lane
from specdec.servers.answer import Asked, require_stream
from specdec.servers.lane import connect

PATIENCE = 300.0  # seconds; a server may compile at its first request


def server_lane(number: int, name: str, address: str) -> Lane:
    """A row of the table of lanes for the server at ``address``, such as "http://127.0.0.1:8000"."""

    def begin(request: Request, *_: Any) -> PushedLane:
        return PushedLane(lambda emit: _ask(request, name, address, emit))

    return Lane(f"server-{number}", name, name, begin, "none", bench=None)


def _ask(request: Request, name: str, address: str, emit: Emit) -> None:
    call = make_call("generate", request)
    if not request.params.greedy or not request.params.ignore_eos:
        raise InvalidInput("A server writes greedy texts of a fixed length here.")
    server = connect(name, address)
    with server.client:
        path, body = server.engine.request(Asked("", request.params, PATIENCE), server.model)
        body["prompt"] = request.prompt_ids.tolist()
        with closing(server.client.stream(path, body, PATIENCE)) as events:
            answer = server.engine.read(events, name, request.params.max_new_tokens)
    require_stream(answer, name)
    if answer.ids is None:
        raise InvalidInput("The server tells no token ids; it needs vLLM 0.11 or newer.")
    emit(call.started)
    for index, piece in enumerate(answer.pieces):
        emit(Round(index, None, None, None, piece.ids or (), None, None, piece.seconds))
    emit(Finished("length", answer.pieces[0].seconds, answer.seconds))
