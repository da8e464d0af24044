"""Races on servers: the same prompt on each of them, in turns, after a warm-up.

Two servers may share one machine, so only one of them works at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from specdec.errors import InvalidInput
from specdec.events import Event
from specdec.lanes.table import BASELINE, LOOP, turned
from specdec.measure.result import LaneEvents
from specdec.servers.answer import Answer, Asked, require_one_prompt
from specdec.servers.lane import Server, server_lane
from specdec.servers.tokens import ServerTokens

WARM_UP_TOKENS = 16
SPECULATIVE = LOOP.lane


def lanes_of(servers: Sequence[Server]) -> dict[str, str]:
    """The lane of each server by its name: the first is the plain one. Raises ``InvalidInput`` if that cannot be."""
    names = [server.name for server in servers]
    if len(servers) < 2 or len(set(names)) < len(names):
        raise InvalidInput("Name two or more servers, each once: plain=URL spec=URL.")
    if servers[0].speculation is True:
        raise _not_plain(servers)
    return {name: BASELINE.lane if place == 0 else SPECULATIVE for place, name in enumerate(names)}


def require_comparable(servers: Sequence[Server], answers: Mapping[str, Answer]) -> None:
    """What first answers, by the names of their servers, must not show; some servers tell nothing before.

    Raises ``ServerFailed`` where two servers read the prompt as other tokens, and ``InvalidInput`` where the plain one,
    which is the first, makes guesses.
    """
    require_one_prompt(answers)
    plain = answers[servers[0].name]
    if any(step.drafted for step in plain.steps or ()) or (plain.counts and plain.counts.drafted):
        raise _not_plain(servers)


def _not_plain(servers: Sequence[Server]) -> InvalidInput:
    others = [server.name for server in servers[1:] if server.speculation is not True]
    hint = f"name {others[0]} first" if others else "start one without speculation, and name it first"
    return InvalidInput(f"The first server, {servers[0].name}, is the plain one of a race, but it speculates; {hint}.")


def race_on_servers(
    servers: Sequence[Server], asked: Asked, tokens: ServerTokens, made: int = 0
) -> Iterator[tuple[str, list[Event]]]:
    """One run: the name of each server with the events of its call, in turns. Another server is first in each run.

    ``made``: how many runs there were. Before the first one each server writes a few tokens of the same text, because
    many engines compile at their first call. Raises as ``require_comparable`` does.
    """
    lanes = lanes_of(servers)
    if made == 0:
        require_comparable(servers, {server.name: warm_up_server(server, asked) for server in servers})
    for server in turned(servers, made):
        yield server.name, list(server_lane(server, asked, tokens, lanes[server.name]))


def warm_up_server(server: Server, asked: Asked) -> Answer:
    most = min(WARM_UP_TOKENS, asked.params.max_new_tokens)
    return server.ask(replace(asked, params=replace(asked.params, max_new_tokens=most)))


def against(plain: str, other: str, run: Mapping[str, Sequence[Event]]) -> LaneEvents:
    """The lanes of a run as those of a race of two: the plain server and one other."""
    return {BASELINE.key: list(run[plain]), SPECULATIVE: list(run[other])}
