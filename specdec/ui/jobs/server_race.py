"""A race on servers that run already, as a visitor asks for it, and a look at what a server tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from specdec.errors import BadSetting, InvalidInput, ServerFailed, SpecdecError
from specdec.events import Event, SamplingParams
from specdec.facts import PairFacts, ServerFacts
from specdec.lanes.table import BASELINE, ENGINE
from specdec.measure.prompts import message_of
from specdec.measure.result import LaneEvents
from specdec.report.link_settings import link_settings
from specdec.report.recording import Recorder
from specdec.servers.address import Address, connected
from specdec.servers.answer import Answer, Asked
from specdec.servers.lane import Server
from specdec.servers.race import SPECULATIVE, lanes_of, race_on_servers
from specdec.servers.tokens import ServerTokens
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_stream import RaceStep, streamed

SECONDS = 300.0  # the deadline of a call; a server's first one may compile for more than a minute
CHARACTERS = 8  # of a prompt for each token that a page allows: whoever asks a server cannot count its tokens
LOOK = "Once upon a time"  # what a server continues when it is checked
LOOKED = 8  # tokens


@dataclass(frozen=True, slots=True)
class ServerRace:
    """What a visitor asks of two servers, of which the first is the plain one: a race, a benchmark or a check."""

    servers: tuple[Address, Address]
    prompt: str
    params: SamplingParams = SamplingParams()
    chat: bool = False
    model: str | None = None
    runs: int = 1
    until_clear: bool = True
    made: int = 0  # runs before this one

    @property
    def keys(self) -> list[str]:
        return [BASELINE.key, SPECULATIVE]

    @property
    def tokens(self) -> int:
        """New tokens of both lanes, at most."""
        return self.params.max_new_tokens * len(self.keys)

    def settings(self) -> dict[str, Any]:
        """The settings for a recording. Neither the servers' names nor their addresses are among them."""
        return link_settings(self.prompt, self.chat, ENGINE, self.params, ENGINE, None, self.keys)

    def again(self, made: int, seed: int | None) -> ServerRace:
        return replace(self, made=made, params=replace(self.params, seed=seed), runs=1)


@dataclass(frozen=True)
class Turn:
    """How long a job may still ask servers: each call ends at its deadline, and soon after ``over`` is true."""

    context: JobContext
    limits: Limits

    def __post_init__(self) -> None:
        self.context.began = self.context.began or time.monotonic()  # it needs no lent device

    def asked(self, prompt: str, chat: bool, params: SamplingParams) -> Asked:
        return Asked(message_of(prompt, chat), params, self.left())

    def over(self) -> bool:
        most = self.limits.seconds
        return self.context.stop.is_set() or (most is not None and self.context.seconds > most)

    def left(self) -> float:
        """The deadline of a call that begins now, in seconds."""
        most = self.limits.seconds
        return SECONDS if most is None else max(1.0, min(SECONDS, most - self.context.seconds))


@contextmanager
def until_over(turn: Turn) -> Iterator[None]:
    """Take a failed call for the end of the job, not for a fault, where the job is over."""
    try:
        yield
    except ServerFailed:
        if not turn.over():
            raise


@dataclass
class Servers:
    """Runs a race on servers that are connected."""

    servers: Sequence[Server]
    turn: Turn
    tokenizer: ServerTokens = field(default_factory=ServerTokens)

    @property
    def facts(self) -> PairFacts:
        """Those of the server that speculates, as far as it tells them before a call."""
        return self.servers[-1].facts(Answer(None, (), "length", 0.0))

    def batches(self, asked: ServerRace) -> Generator[list[Event], None, None]:
        call = self.turn.asked(asked.prompt, asked.chat, asked.params)
        try:
            for run in range(asked.runs):
                for _, events in race_on_servers(self.servers, call, self.tokenizer, asked.made + run):
                    yield events
        except ServerFailed:
            if not self.turn.over():
                raise
            yield []  # the call was cut; what has ended before counts

    def ended(self, run: LaneEvents, recorder: Recorder) -> str | None:
        return None

    def token_seconds(self, runs: Sequence[LaneEvents]) -> float | None:
        return None  # other jobs run on this machine, not on the servers


def server_stream(context: JobContext, ask: ServerRace, *, limits: Limits) -> Generator[RaceStep, None, None]:
    """Race two servers, as ``streamed`` says."""
    turn = Turn(context, limits)
    with connected(ask.servers, ask.model, turn.over) as servers:
        lanes_of(servers)
        yield from streamed(context, ask, Servers(servers, turn), limits=limits, origin="servers")


def require_prompt(prompt: str, limits: Limits) -> None:
    """Raise ``InvalidInput`` for no prompt, or for one that is longer than this page takes."""
    if not prompt.strip():
        raise InvalidInput("The prompt is empty; write a text to continue. Nothing ran.")
    most = None if limits.prompt_tokens is None else CHARACTERS * limits.prompt_tokens
    if most is not None and len(prompt) > most:
        raise BadSetting(
            f"The prompt has {len(prompt)} characters; this public page takes at most {most}. Nothing ran."
        )


def look_at(address: Address, model: str | None, stopped: Callable[[], bool]) -> ServerFacts | str:
    """What a server tells of itself and in a short answer; a sentence if it does not answer as it should."""
    try:
        with connected([address], model, stopped) as (server,):
            answer = server.ask(Asked(LOOK, SamplingParams(max_new_tokens=LOOKED), SECONDS))
            return server.facts(answer)["server"]
    except SpecdecError as error:
        return str(error)
