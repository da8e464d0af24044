"""Measurements over prompts on servers: each prompt on each of them, in turns."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from specdec.errors import InvalidInput, ServerFailed, SpecdecError
from specdec.events import Event
from specdec.facts import PairFacts
from specdec.lanes.table import BASELINE, ENGINE, LaneConfig
from specdec.measure.metrics import in_microseconds
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import message_of
from specdec.measure.result import collect, in_letters, started_of
from specdec.measure.results.format import About
from specdec.servers.answer import Asked
from specdec.servers.lane import MACHINE, Server, server_lane
from specdec.servers.race import SPECULATIVE, lanes_of, require_comparable
from specdec.servers.tokens import ServerTokens

UNTOLD = LaneConfig(SPECULATIVE, ENGINE)  # of the only server with speculation, where it does not tell its K


@dataclass(frozen=True)
class ServersPlan:
    """The plan of a measurement on servers, the config of each server by its name, and what is measured."""

    plan: Plan
    configs: dict[str, LaneConfig]
    about: About


def servers_plan(servers: Sequence[Server], asked: Plan, seconds: float) -> ServersPlan:
    """Ask each server for the first prompt of a plan without configs. That warms it up, and tells its K.

    ``seconds``: the deadline of a call. Raises ``InvalidInput`` for servers that cannot be compared.
    """
    lanes_of(servers)
    first = Asked(message_of(asked.prompts[0].prompt, asked.chosen.chat), asked.params, seconds)
    answers = {server.name: server.ask(first) for server in servers}
    require_comparable(servers, answers)
    guesses = {name: int(name) for name in answers if name.isdecimal()}
    guesses |= {name: answer.most_guesses for name, answer in answers.items() if answer.most_guesses}
    configs = configs_of(servers, guesses)
    last = servers[-1]
    facts = last.facts(answers[last.name])
    facts["server"]["ids"] = all(answer.ids is not None for answer in answers.values())
    if len(servers) > 2:  # each has its own number of guesses, by its row
        facts["server"]["guesses"] = None
    return ServersPlan(replace(asked, configs=tuple(configs.values())), configs, about_servers(facts))


def about_servers(facts: PairFacts) -> About:
    """What is measured now. ``facts``: those of a server's lane."""
    return {"at": time.time(), "pair": facts, "machine": MACHINE, "versions": {}}


def configs_of(servers: Sequence[Server], guesses: Mapping[str, int]) -> dict[str, LaneConfig]:
    """The config of each server in a measurement: its lane and its K, by which the servers must differ.

    ``guesses``: K by the name of a server. Raises ``InvalidInput`` where another server has the same, or where one of
    several does not tell it.
    """
    found = {servers[0].name: BASELINE}
    for server in servers[1:]:
        if server.speculation is False or guesses.get(server.name) == 0:
            raise InvalidInput(
                f"The server {server.name} does not speculate; a measurement over prompts compares servers that do "
                "with the plain one, which is named first."
            )
        if server.name not in guesses and len(servers) > 2:
            raise InvalidInput(
                f"The server {server.name} does not tell how many guesses a step makes; name it by that number, such "
                "as 5=URL."
            )
        config = LaneConfig(SPECULATIVE, guesses[server.name]) if server.name in guesses else UNTOLD
        if config in found.values():
            raise InvalidInput(
                f"Two servers make {guesses[server.name]} guesses a step; a measurement over prompts compares servers "
                "with different numbers of guesses."
            )
        found[server.name] = config
    return found


def server_trials(servers: Sequence[Server], asked: ServersPlan, seconds: float) -> Generator[Trial, None, None]:
    """The calls of a plan on servers, those of one prompt when all of them have ended.

    Where one of a prompt's answers tells no token ids, its texts are kept and compared as letters: servers may cut one
    text into different pieces. ``seconds``: the deadline of a call.
    """
    plan = asked.plan
    named = {config: server for server in servers if (config := asked.configs[server.name])}
    first_seed = plan.params.seed or 0  # a plan always has one
    tokens = ServerTokens()
    lanes: list[tuple[LaneConfig, list[Event]]] = []  # of one prompt
    for run, item, config in plan.steps():
        params = replace(plan.params, seed=(first_seed + run) % 2**63)
        call = Asked(message_of(item.prompt, plan.chosen.chat), params, seconds)
        try:
            lanes.append((config, list(server_lane(named[config], call, tokens, config.lane))))
        except SpecdecError as error:
            raise type(error)(f"Prompt {item.name!r}: {error}") from error
        if len(lanes) < len(plan.configs):
            continue
        letters = in_letters(*(events for _, events in lanes))
        read = {its for _, events in lanes if (its := started_of(events).prompt_ids)}
        if not letters and len(read) > 1:
            raise ServerFailed(
                f"Prompt {item.name!r}: the servers read it as other tokens, so they cannot be compared."
            )
        for config, events in lanes:
            result = collect(events)
            assert result.metrics is not None  # an answer without text has failed before
            ids = result.token_ids
            if letters:
                ids = [ord(letter) for letter in b"".join(map(tokens, ids)).decode(errors="replace")]
            yield Trial(
                run=run, prompt=item.name, category=item.category, lane=config.lane,
                gamma=None if config == BASELINE else str(config.gamma) if config == UNTOLD else int(str(config.gamma)),
                token_ids=tuple(ids), finish_reason=result.finish_reason, greedy=params.greedy,
                metrics=in_microseconds(result.metrics),
            )  # fmt: skip
        lanes.clear()
