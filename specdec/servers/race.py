"""Races and measurements on servers: the same prompt on each of them, in turns, after a warm-up.

Two servers may share one machine, so only one of them works at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from specdec.errors import InvalidInput, SpecdecError
from specdec.events import Event
from specdec.lanes.table import BASELINE, LOOP, LaneConfig, turned
from specdec.measure.metrics import in_microseconds
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import message_of
from specdec.measure.result import LaneEvents, collect
from specdec.servers.answer import Asked
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
        others = [server.name for server in servers[1:] if server.speculation is not True]
        hint = f"name {others[0]} first" if others else "start one without speculation, and name it first"
        raise InvalidInput(f"The first server, {names[0]}, is the plain one of a race, but it speculates; {hint}.")
    return {name: BASELINE.lane if place == 0 else SPECULATIVE for place, name in enumerate(names)}


def race_on_servers(
    servers: Sequence[Server], asked: Asked, tokens: ServerTokens, made: int = 0
) -> Iterator[tuple[str, list[Event]]]:
    """One run: the name of each server with the events of its call, in turns. Another server is first in each run.

    ``made``: how many runs there were. Before the first one each server writes a few tokens of the same text, because
    many engines compile at their first call.
    """
    lanes = lanes_of(servers)
    for server in servers if made == 0 else ():
        warm_up_server(server, asked)
    for server in turned(servers, made):
        yield server.name, list(server_lane(server, asked, tokens, lanes[server.name]))


def warm_up_server(server: Server, asked: Asked) -> None:
    most = min(WARM_UP_TOKENS, asked.params.max_new_tokens)
    server.ask(replace(asked, params=replace(asked.params, max_new_tokens=most)))


def against(plain: str, other: str, run: Mapping[str, Sequence[Event]]) -> LaneEvents:
    """The lanes of a run as those of a race of two: the plain server and one other."""
    return {BASELINE.key: list(run[plain]), SPECULATIVE: list(run[other])}


def configs_of(servers: Sequence[Server], guesses: Mapping[str, int]) -> dict[str, LaneConfig]:
    """The config of each server in a measurement: its lane and its K, by which the servers must differ.

    ``guesses``: K by the name of a server. Raises ``InvalidInput`` where a server's K is not known, or another has it.
    """
    found = {servers[0].name: BASELINE}
    for server in servers[1:]:
        if server.speculation is False or guesses.get(server.name) == 0:
            raise InvalidInput(
                f"The server {server.name} does not speculate; a measurement over prompts compares servers that do "
                "with the plain one, which is named first."
            )
        if server.name not in guesses:
            raise InvalidInput(
                f"The server {server.name} does not tell how many guesses a step makes; name it by that number, such "
                "as 5=URL."
            )
        config = LaneConfig(SPECULATIVE, guesses[server.name])
        if config in found.values():
            raise InvalidInput(
                f"Two servers make {guesses[server.name]} guesses a step; a measurement over prompts compares servers "
                "with different numbers of guesses."
            )
        found[server.name] = config
    return found


def server_trials(
    servers: Sequence[Server], plan: Plan, configs: Mapping[str, LaneConfig], seconds: float
) -> Generator[Trial, None, None]:
    """The calls of a plan on servers, each when it ends. ``seconds``: the deadline of a call.

    The servers are warm: whoever knows their K has asked each of them.
    """
    named = {config: server for server in servers if (config := configs[server.name])}
    first_seed = plan.params.seed or 0  # a plan always has one
    tokens = ServerTokens()
    for run, item, config in plan.steps():
        params = replace(plan.params, seed=(first_seed + run) % 2**63)
        asked = Asked(message_of(item.prompt, plan.chosen.chat), params, seconds)
        try:
            result = collect(server_lane(named[config], asked, tokens, config.lane))
        except SpecdecError as error:
            raise type(error)(f"Prompt {item.name!r}: {error}") from error
        assert result.metrics is not None  # an answer without text has failed before
        yield Trial(
            run=run, prompt=item.name, category=item.category, lane=config.lane,
            gamma=config.gamma if config.gamma is None else int(str(config.gamma)), token_ids=tuple(result.token_ids),
            finish_reason=result.finish_reason, greedy=params.greedy, metrics=in_microseconds(result.metrics),
        )  # fmt: skip
