"""Two more questions to servers that run already, as visitors ask them: their speed under load, and their texts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from specdec.measure.losslessness import SampleComparison, compare_samples
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.servers.address import connected
from specdec.servers.court import DRAWN_TOKENS, Drawn, TextFinding, draws, greedy_court, samples_of
from specdec.servers.lane import Server
from specdec.servers.load import CALLS_EACH, LoadRun, under_load, warmed_up
from specdec.servers.race import lanes_of
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.server_race import ServerRace, Turn, until_over


@dataclass
class LoadSoFar:
    """What is measured of ``planned`` runs. ``guesses``: those of ``warmed_up``."""

    planned: int
    runs: list[LoadRun] = field(default_factory=list)
    guesses: dict[str, int | None] = field(default_factory=dict)


@dataclass
class TextsSoFar:
    """What is known of ``planned`` greedy texts, or of as many pairs of continuations."""

    planned: int
    findings: list[TextFinding] = field(default_factory=list)
    drawn: int = 0
    compared: SampleComparison | None = None


def load_tokens(ask: ServerRace, levels: Sequence[int], runs: int) -> int:
    """The new tokens of all calls of ``load_steps``, at most."""
    return sum(levels) * CALLS_EACH * runs * len(ask.servers) * ask.params.max_new_tokens


def load_steps(
    context: JobContext, ask: ServerRace, levels: Sequence[int], runs: int, limits: Limits
) -> Iterator[LoadSoFar]:
    """Measure both servers with ``levels`` calls at once, in turns, and yield what is known after each measurement.

    The prompts are the examples.

    A Stop and the page's limit end it early; what was measured before stays.
    """
    found, turn = LoadSoFar(len(levels) * runs * len(ask.servers)), Turn(context, limits)
    with until_over(turn), connected(ask.servers, ask.model, turn.over) as servers:
        lanes_of(servers)
        asked = [turn.asked(item.prompt, ask.chat, ask.params) for item in read_prompts(EXAMPLES)]
        found.guesses = warmed_up(servers, asked[0])
        for run in under_load(servers, asked, levels, runs):
            found.runs.append(run)
            yield found


def text_steps(context: JobContext, ask: ServerRace, count: int, limits: Limits) -> Iterator[TextsSoFar]:
    """Compare what both servers write, and yield what is known so far.

    Greedily that is the example prompts; with a temperature ``count`` short continuations of the prompt from each.
    """
    turn = Turn(context, limits)
    with until_over(turn), connected(ask.servers, ask.model, turn.over) as servers:
        lanes_of(servers)
        yield from _greedy(servers, ask, turn) if ask.params.greedy else _sampled(servers, ask, count, turn)


def _greedy(servers: Sequence[Server], ask: ServerRace, turn: Turn) -> Iterator[TextsSoFar]:
    prompts = [(item.name, turn.asked(item.prompt, ask.chat, ask.params)) for item in read_prompts(EXAMPLES)]
    found = TextsSoFar(len(prompts))
    plain, other = servers
    for each in greedy_court(plain, other, prompts):
        found.findings.append(each)
        yield found


def _sampled(servers: Sequence[Server], ask: ServerRace, count: int, turn: Turn) -> Iterator[TextsSoFar]:
    found, seed = TextsSoFar(count), secrets.randbits(32)
    asked = turn.asked(ask.prompt, ask.chat, replace(ask.params, max_new_tokens=DRAWN_TOKENS))
    drawn: dict[str, list[Drawn]] = {server.name: [] for server in servers}
    for name, each in draws(servers, asked, count, seed):
        drawn[name].append(each)
        if name != servers[0].name:
            found.drawn += 1
            yield found
    plain, other = samples_of(drawn).values()
    found.compared = compare_samples(plain, other, seed)
    yield found
