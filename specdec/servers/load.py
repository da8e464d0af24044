"""Servers under load: how fast each is with 1, 2, 4 ... calls at once.

The loop is closed: each worker sends its next prompt when its last answer has ended. Servers are measured in turns,
because they may share a machine.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from specdec.errors import InvalidInput, SpecdecError
from specdec.lanes.table import turned
from specdec.servers.answer import Answer, Asked, Counts, require_written
from specdec.servers.lane import Server
from specdec.servers.probe import difference
from specdec.servers.race import require_comparable
from specdec.servers.vllm import Vllm

CALLS_EACH = 3  # of each worker at one level; only the time in which all of them work is counted
MOST_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One server at one level, once.

    - ``server``: its name; ``at_once``: how many calls it had at once; ``run``: 0, 1, ...
    - ``tokens``, ``seconds``: what all calls together wrote while all workers were at work, and how long that was.
    - ``token_seconds``: of each call, seconds per token after the first.
    - ``first_seconds``: of each call, seconds to the first token. A call whose text came at one moment is in neither:
      a busy machine read it late, or something on the way held it back. It counts in the rate all the same.
    - ``counts``: the server's counters over the whole level; None if it has none. They include other users' calls.
    - ``told``: whether it told how many tokens it wrote; else a piece of text counts for one.
    """

    server: str
    at_once: int
    run: int
    tokens: int
    seconds: float
    token_seconds: tuple[float, ...]
    first_seconds: tuple[float, ...]
    counts: Counts | None
    told: bool = True

    @property
    def rate(self) -> float:
        """Tokens per second of all calls together."""
        return self.tokens / self.seconds if self.seconds else 0.0


def levels_to(most: int) -> list[int]:
    """1, 2, 4 ... up to ``most``, which is the last. Raises ``InvalidInput`` for a number that is none."""
    if not 1 <= most <= MOST_AT_ONCE:
        raise InvalidInput(f"{most} calls at once are asked for; give 1 to {MOST_AT_ONCE}.")
    powers = list(itertools.takewhile(lambda level: level < most, (2**i for i in itertools.count())))
    return [*powers, most]


def warmed_up(servers: Sequence[Server], asked: Asked) -> dict[str, int | None]:
    """Ask each server once, because many engines compile at their first call.

    Returns how many guesses a step of each makes, as far as it tells, and 0 for the plain one, which is the first.
    Nothing where one of them is no vLLM: only that takes a number of guesses for each load. Raises as
    ``require_comparable`` does.
    """
    answers = {server.name: server.ask(asked) for server in servers}
    require_comparable(servers, answers)
    if not all(isinstance(server.engine, Vllm) for server in servers):
        return {}
    return {name: answer.most_guesses for name, answer in answers.items()} | {servers[0].name: 0}


def under_load(
    servers: Sequence[Server], prompts: Sequence[Asked], levels: Sequence[int], runs: int
) -> Iterator[LoadRun]:
    """Measure every server at every level, ``runs`` times, and yield each measurement when it ends.

    Each has answered before: many engines compile at their first call. A run goes on with the prompts where the one
    before it ended, so that few calls at once meet all of them too.
    """
    for at_once in levels:
        for run in range(runs):
            for server in turned(servers, run):
                yield _measure(server, prompts, at_once, run)


@dataclass(frozen=True, slots=True)
class _Call:
    """When a call began and ended on the shared clock, and its answer."""

    began: float
    ended: float
    answer: Answer

    def tokens_between(self, start: float, end: float) -> int:
        sized = zip(self.answer.pieces, self.answer.sizes, strict=True)
        return sum(size for piece, size in sized if start < self.began + piece.seconds <= end)


def _measure(server: Server, prompts: Sequence[Asked], at_once: int, run: int) -> LoadRun:
    before = server.counted()
    together = threading.Barrier(at_once)
    uncounted = replace(server, counting=False)  # the counters are read once for the whole level
    failed = threading.Event()  # then no worker calls again

    def work(worker: int) -> list[_Call]:
        together.wait()
        found = []
        for number in range(CALLS_EACH):
            if failed.is_set():
                break
            turn = worker + (run * CALLS_EACH + number) * at_once
            try:
                answer = uncounted.ask(prompts[turn % len(prompts)])
                require_written(answer, server.name)
            except BaseException:
                failed.set()
                raise
            found.append(_Call(answer.began, answer.began + answer.seconds, answer))
        return found

    with ThreadPoolExecutor(at_once) as pool:
        try:
            by_worker = list(pool.map(work, range(at_once)))
        except BaseException as error:  # also Ctrl-C, which reaches this thread alone
            failed.set()
            together.abort()
            if isinstance(error, RuntimeError) and not isinstance(error, SpecdecError):  # a thread could not start
                raise InvalidInput(
                    f"This machine cannot make {at_once} calls at once ({error}); ask for fewer."
                ) from None
            raise
    # From the last worker's first token until the first worker has nothing left to do.
    start = max(calls[0].began + calls[0].answer.pieces[0].seconds for calls in by_worker)
    end = min(calls[-1].ended for calls in by_worker)
    every = [call for calls in by_worker for call in calls]
    in_time = [call.answer for call in every if not call.answer.held_back]
    after = server.counted()
    return LoadRun(
        server=server.name,
        at_once=at_once,
        run=run,
        tokens=sum(call.tokens_between(start, end) for call in every) if end > start else 0,
        seconds=max(end - start, 0.0),
        token_seconds=tuple(found for answer in in_time if (found := _a_token(answer)) is not None),
        first_seconds=tuple(answer.pieces[0].seconds for answer in in_time),
        counts=difference(before, after),
        told=all(call.answer.ids is not None or call.answer.tokens is not None for call in every),
    )


def _a_token(answer: Answer) -> float | None:
    """Seconds per token after the first; None for an answer of one piece."""
    tokens = sum(answer.sizes[1:])
    return (answer.pieces[-1].seconds - answer.pieces[0].seconds) / tokens if tokens else None
