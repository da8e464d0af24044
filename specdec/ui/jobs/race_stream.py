"""Writes a race as a growing string of JSON lines for the live view. The same lines are its recording."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gradio as gr

from specdec.errors import InvalidInput, SpecdecError, with_names
from specdec.events import Event, Finished, Round, SamplingParams
from specdec.facts import PairFacts
from specdec.measure.float32_check import float32_check
from specdec.measure.result import LaneEvents, started_of
from specdec.measure.task import Task
from specdec.models.pair import Pair
from specdec.report.losslessness import FLOAT32_FAILED, float32_note
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder, begin_line, event_lines, line, verdict_line
from specdec.report.verdict import Note, Verdict, another_run
from specdec.ui.fields import LABELS
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.grammar_cost import require_read_in_time
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_settings import RaceSettings

LOG = logging.getLogger(__name__)

_numbers = itertools.count(1)


# Gradio's page processes a whole value each time it grows, so a long race is sent in parts.
PART = 256_000  # characters; when a part is longer, a new one begins
OVERLAP = 128_000  # characters that the new part repeats, because a busy page may miss some values


class RaceStep(NamedTuple):
    """A race so far.

    text      its lines so far, or their latest part
    verdict   at its end; None before, and if it failed
    problem   why it failed, in a sentence; "" if it did not
    lanes     with the verdict, the events of each lane of the run that it shows, or of the first if it shows none
    """

    text: str
    verdict: Verdict | None = None
    problem: str = ""
    lanes: LaneEvents = MappingProxyType({})


class Ask(Protocol):
    """What a visitor asks of a race, on the page's own pair or on servers."""

    @property
    def runs(self) -> int: ...
    @property
    def until_clear(self) -> bool: ...
    @property
    def keys(self) -> list[str]:
        """The lanes of each run."""

    def settings(self) -> dict[str, Any]:
        """The settings for a link or a recording."""

    def again(self, made: int, seed: int | None) -> Any:
        """One more run after ``made`` ones."""


class Source(Protocol):
    """What runs a race: the page's own pair, or servers."""

    @property
    def facts(self) -> PairFacts: ...
    @property
    def tokenizer(self) -> Any:
        """For ``Recorder``."""

    def batches(self, asked: Any) -> Generator[list[Event], None, None]:
        """The events of all runs that are asked for; empty batches while none are new."""

    def ended(self, run: LaneEvents, recorder: Recorder) -> str | None:
        """A note on the shown run of a race whose lanes have all ended."""

    def token_seconds(self, runs: Sequence[LaneEvents]) -> float | None:
        """The time per token of the lanes that ended, if other jobs of the page may take as long."""


class OwnPair:
    """Runs a race on the loaded pair."""

    def __init__(self, context: JobContext):
        self._context, self.facts, self.tokenizer = context, context.slot.facts, context.pair.tokenizer

    def batches(self, asked: RaceSettings) -> Generator[list[Event], None, None]:
        return self._context.run_task(asked.task)

    def ended(self, run: LaneEvents, recorder: Recorder) -> str | None:
        return _float32(self._context, run, recorder)

    def token_seconds(self, runs: Sequence[LaneEvents]) -> float | None:
        return _token_seconds(runs)


def stream(
    context: JobContext, ask: RaceSettings, *, limits: Limits, origin: str = "run", names: Mapping[str, str] = LABELS
) -> Generator[RaceStep, None, None]:
    """Run a race on the loaded pair, as ``streamed`` says."""
    enforce_limits(
        context.pair, ask.message, ask.params, limits
    )  # before the prompt, which may be too long, is sent back
    yield from streamed(context, ask, OwnPair(context), limits=limits, origin=origin, names=names)


def streamed(
    context: JobContext, ask: Ask, source: Source, *, limits: Limits, origin: str, names: Mapping[str, str] = LABELS
) -> Generator[RaceStep, None, None]:
    """Run a race. Yield its lines so far each time there are new ones. ``context.stop`` ends it early.

    Of a long race only the latest lines are yielded, after a ``part`` line with the number of the first of them. The
    last value has all lines again. The last line is a ``verdict``, or an ``error`` with a sentence to show.
    ``names`` are those of settings in that sentence (``with_names``).
    """
    number = next(_numbers)
    begun = begin_line(number, origin, source.facts, ask.settings(), ask.keys, ask.runs)
    written = _Written(number, begun)
    yield RaceStep(written.latest())
    runs: list[dict[str, list[Event]]] = []
    keys, asked, planned = ask.keys, ask, ask.runs
    stopped = None
    try:
        recorder = Recorder(source.tokenizer)
        while True:
            with closing(source.batches(asked)) as batches:
                for batch in batches:
                    if batch:  # during a warm-up they are empty
                        written.lines += event_lines(batch, runs, keys, recorder)
                        yield RaceStep(written.latest())
                    if context.stop.is_set():
                        stopped = "Stopped"
                    elif limits.seconds is not None and context.seconds > limits.seconds:
                        stopped = f"Stopped after {limits.seconds:.0f}\u00a0s, this page's limit,"
                    if stopped:
                        break
            if not runs:
                yield written.failed(f"{stopped or 'Stopped'} before the first token.")
                return
            ended = [lane for run in runs for lane, events in run.items() if isinstance(events[-1], Finished)]
            complete = len(ended) == len(keys) * planned
            verdict = race_verdict(runs, None if complete else stopped, recorder.text_of)
            once_more = ask.until_clear and planned < limits.runs and not context.lent  # a lent device is given back
            if stopped or not once_more or not another_run(verdict, context.seconds):
                break
            seed = started_of(next(iter(runs[0].values()))).params.seed
            asked, planned = ask.again(planned, seed), planned + 1
        if complete and verdict.shown is not None and (note := source.ended(runs[verdict.shown], recorder)):
            verdict = replace(verdict, notes=(*verdict.notes, Note("float32", note)))
        context.token_seconds = source.token_seconds(runs)
        context.counts.update(runs=len(runs), tokens={lane: _tokens(events) for lane, events in runs[-1].items()})
        last = RaceStep(written.all(verdict_line(verdict)), verdict, lanes=runs[verdict.shown or 0])
    except SpecdecError as error:
        context.problem = error
        last = written.failed(with_names(error, names))
    except gr.Error:  # Gradio shows it itself, when the quota of a shared GPU is used up
        raise
    except Exception as error:
        LOG.exception("The race failed.")
        context.problem = error
        last = written.failed("The race failed. The log of the program gives the reason.")
    yield last


class _Written:
    """The lines of a race so far, and the part of them that is sent to the page."""

    def __init__(self, number: int, begin: str):
        self.lines = [begin]
        self._number = number
        self._first = self._sent = self._length = 0

    def latest(self) -> str:
        """All lines, or those of the current part."""
        sent, self._sent = self._sent, len(self.lines)
        self._length += sum(map(len, self.lines[sent:]))
        if self._length > PART:
            while self._length > OVERLAP and self._first < sent:
                self._length -= len(self.lines[self._first])
                self._first += 1
        part = line({"event": "part", "number": self._number, "from": self._first}) if self._first else ""
        return part + "".join(self.lines[self._first :])

    def all(self, last: str) -> str:
        """All lines, and the last one."""
        return "".join([*self.lines, last])

    def failed(self, problem: str) -> RaceStep:
        """The end of a race that failed."""
        return RaceStep(self.all(_error_line(problem)), problem=problem)


def _tokens(events: Sequence[Event]) -> int:
    return sum(len(event.committed_ids) for event in events if isinstance(event, Round))


def _token_seconds(runs: Sequence[LaneEvents]) -> float | None:
    """The time per token of the lanes that ended, the prompt's included."""
    lanes = [(events, events[-1]) for run in runs for events in run.values()]
    ended = [(_tokens(events), last.elapsed_seconds) for events, last in lanes if isinstance(last, Finished)]
    tokens = sum(count for count, _ in ended)
    return sum(seconds for _, seconds in ended) / tokens if tokens else None


def _float32(context: JobContext, run: LaneEvents, recorder: Recorder) -> str | None:
    """The note on a difference between the texts. A failure here must not lose the race."""
    if context.lent:  # it would use up the visitor's time on the device
        return None
    try:
        found = next(iter(context.run_task(Task(partial(_checked, run=run), 0))))
        return float32_note(found, recorder.text_of) if found else None
    except Exception:
        LOG.exception("Looking at the difference in float32 failed.")
        return FLOAT32_FAILED


def _checked(pair: Pair, run: LaneEvents) -> Generator[Any, None, None]:
    yield float32_check(pair, run)


def refusal(error: SpecdecError | ValueError) -> str:
    """The lines of a refused race."""
    return line({"event": "begin", "number": next(_numbers)}) + _error_line(with_names(error, LABELS))


def enforce_limits(pair: Pair, prompt: str | list[dict[str, str]], params: SamplingParams, limits: Limits) -> None:
    """Raise ``InvalidInput`` for what is above this page's limits. The engine checks the rest."""
    limits.take(params.max_new_tokens, stop=params.stop, grammar=params.grammar)
    if params.grammar is not None:
        require_read_in_time(params.grammar)
    if limits.prompt_tokens is not None:
        takes = f"this public page takes at most {limits.prompt_tokens} tokens. Nothing ran."
        written = prompt if isinstance(prompt, str) else prompt[0]["content"]
        if len(written) > 32 * limits.prompt_tokens:  # too long to count its tokens
            raise InvalidInput(f"The prompt has {len(written)} characters; {takes}")
        if (found := pair.encode(prompt).shape[1]) > limits.prompt_tokens:
            raise InvalidInput(f"The prompt has {found} tokens; {takes}")


def _error_line(problem: str) -> str:
    return line({"event": "error", "message": problem})
