"""The page's endpoints for programs: ``/race`` and ``/decode``, with the page's own defaults and limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict, replace
from functools import partial
from inspect import cleandoc
from typing import Any

import gradio as gr

from specdec.engine.request import make_request
from specdec.errors import InvalidInput, SpecdecError, quoted
from specdec.events import Event, SamplingParams
from specdec.lanes.decoding_thread import Batches, driven
from specdec.lanes.race import named, start
from specdec.lanes.table import DEFAULT_KEYS, LANES, Lane, LaneConfig, row_of
from specdec.measure.prompts import message_of
from specdec.measure.result import Result, collect
from specdec.measure.task import Task
from specdec.models.pair import Pair, Prompt
from specdec.report.link_settings import GAMMA, NEW_TOKENS, grammar_in
from specdec.report.recording import Recorder
from specdec.ui.jobs.context import Job, JobContext, QueuePosition
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.race_settings import RaceSettings
from specdec.ui.jobs.race_stream import RaceStep, enforce_limits, stream
from specdec.ui.jobs.submit import UNLIMITED, followed


def add_endpoints(jobs: JobQueue, limits: Limits) -> None:
    """Add both endpoints to the Blocks that are being built."""
    names = {
        "lanes": _named_lanes(LANES),
        "default": " and ".join(DEFAULT_KEYS),
        "further": _named_lanes([lane for lane in LANES if not lane.race]),
        "limits": _said(limits),
    }
    for endpoint in (_decode_endpoint(jobs, limits), _race_endpoint(jobs, limits)):
        # The whole text is given, because Gradio reads only the lines above "Parameters:" from a function.
        gr.api(endpoint, api_description=cleandoc(endpoint.__doc__ or "").format(**names), **UNLIMITED)


def _decode_endpoint(jobs: JobQueue, limits: Limits) -> Callable[..., AsyncIterator[str]]:
    async def decode(
        request: gr.Request,
        prompt: str,
        gamma: int | str = GAMMA,
        max_new_tokens: int = NEW_TOKENS,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        ignore_eos: bool = False,
        lane: str = "speculative",
        chat: bool = False,
        stop: list[str] | None = None,
        grammar: str = "",
    ) -> AsyncIterator[str]:
        """Decode a prompt and stream the recording: each output is one or more JSON lines, one event per line.
        Lanes: {lanes}.{limits}

        Parameters:
            prompt: the text to continue
            gamma: draft tokens per round, 0 to 16, "auto" or "confidence:0.4"; for lanes that draft
            max_new_tokens: tokens to write at most
            temperature: 0 is greedy
            top_k: sample from the k most likely tokens; 0 is all
            top_p: sample from the most likely tokens that together have this probability
            min_p: leave out tokens whose probability is below this share of the highest one
            repetition_penalty: above 1 makes tokens that occurred before less likely
            seed: for sampling; without one a seed is drawn, and the recording names it
            ignore_eos: ignore the end of the text and write all max_new_tokens tokens
            lane: one of the lanes
            chat: send the prompt as a user's message, by the chat template of the target's tokenizer
            stop: strings; the text ends with the token that completes one of them, which is kept
            grammar: what the text must obey, as "json-schema:SCHEMA", "regex:EXPRESSION" or "lark:GRAMMAR"

        Returns:
            JSON lines; specdec.report.recording.read_recording reads them
        """
        with _sentences():
            _require("prompt", prompt, str, "a text")
            _require("lane", lane, str, "the name of a lane")
            _require("ignore_eos", ignore_eos, bool, "true or false")
            _require("chat", chat, bool, "true or false")
            _require("grammar", grammar, str, "a text")
            params = SamplingParams(
                max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, _strings("stop", stop),
                ignore_eos, grammar_in(grammar),
            )  # fmt: skip
            limits.take(params.max_new_tokens, stop=params.stop, grammar=params.grammar)
            config, message = row_of(lane).lane_config(gamma), message_of(prompt, chat)
            task = Task(
                partial(_decoded, prompt=message, params=params, config=config, seconds=limits.seconds),
                max_new_tokens,
            )
            settings = {"prompt": prompt, "chat": chat, "lane": lane, "gamma": config.gamma} | asdict(params)
            settings["grammar"] = grammar
            job = Job("decode", task.tokens, partial(_decode, prompt=message, params=params, task=task, limits=limits))
            async with aclosing(followed(jobs, request, replace(job, settings=settings))) as steps:
                async for lines in steps:
                    if not isinstance(lines, QueuePosition):
                        yield lines

    return decode


def _race_endpoint(jobs: JobQueue, limits: Limits) -> Callable[..., AsyncIterator[dict[str, Any]]]:
    async def race(
        request: gr.Request,
        prompt: str,
        gamma: int | str = GAMMA,
        max_new_tokens: int = NEW_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
        runs: int = 1,
        further_lanes: list[str] | None = None,
        chat: bool = False,
        stop: list[str] | None = None,
        grammar: str = "",
    ) -> AsyncIterator[dict[str, Any]]:
        """Race plain generate against speculative decoding; the last output is the verdict with each lane's text and
        figures. Further lanes: {further}.{limits}

        Parameters:
            prompt: the text to continue
            gamma: draft tokens per round, 0 to 16, "auto", or "confidence:0.4"
            max_new_tokens: tokens to write at most, in each lane
            temperature: 0 is greedy
            seed: for sampling; without one a seed is drawn
            runs: how often to run each lane; with several runs, figures are those of the run with the median speed-up
            further_lanes: lanes to run in addition to {default}
            chat: send the prompt as a user's message, by the chat template of the target's tokenizer
            stop: strings; a lane's text ends with the token that completes one of them, which is kept
            grammar: what the text must obey, as "json-schema:SCHEMA", "regex:EXPRESSION" or "lark:GRAMMAR"

        Returns:
            the fields of specdec.Verdict, among them kind, sentence, notes, and gain, engine and speculation in numbers
            results: for each lane its text, finish_reason and metrics, the numbers of specdec.Metrics: new_tokens,
                tokens_per_second, prefill_seconds (to the first token) and others; of several runs, of the run shown
        """
        with _sentences():
            _require("prompt", prompt, str, "a text")
            _require("runs", runs, int, "a whole number")
            _require("chat", chat, bool, "true or false")
            further = _strings("further_lanes", further_lanes)
            if len(further) > len(LANES):
                raise InvalidInput(f"further_lanes has {len(further)} names; there are {len(LANES)} lanes.")
            _require("grammar", grammar, str, "a text")
            params = SamplingParams(
                max_new_tokens, temperature, seed=seed, stop=_strings("stop", stop), grammar=grammar_in(grammar)
            )
            ask = RaceSettings(prompt, gamma, params, lanes=(*DEFAULT_KEYS, *further), runs=runs, chat=chat)
            limits.take(params.max_new_tokens, runs, stop=params.stop, grammar=params.grammar)
            work = partial(_race, ask=ask, limits=limits)
            job = Job("race of a program", ask.tokens, work, ask.settings() | {"stop": params.stop})
            problem = ""
            # Each step only shows the caller that the race goes on. The last output is the answer.
            async with aclosing(followed(jobs, request, job)) as steps:
                async for step in steps:
                    problem = step.problem if isinstance(step, RaceStep) else ""
                    yield step if isinstance(step, dict) else {"running": not isinstance(step, QueuePosition)}
            if problem:
                raise gr.Error(problem, print_exception=False)

    return race


def _race(context: JobContext, ask: RaceSettings, limits: Limits) -> Iterator[RaceStep | dict[str, Any]]:
    """The steps of a race. After them, if it did not fail, its verdict and what each lane wrote in the shown run."""
    last = RaceStep("")
    with closing(stream(context, ask=ask, limits=limits, names={})) as steps:  # a program knows the names of Python
        for last in steps:
            yield last
    if last.verdict is not None:
        results = {lane: _fields_of(collect(events, context.pair.tokenizer)) for lane, events in last.lanes.items()}
        yield asdict(last.verdict) | {"results": results}


def _fields_of(result: Result) -> dict[str, Any]:
    """What a program is told of a lane's result; ``metrics`` is None if no token was written."""
    metrics = result.metrics and asdict(result.metrics)
    return {"text": result.text, "finish_reason": result.finish_reason, "metrics": metrics}


def _decode(
    context: JobContext,
    prompt: str | list[dict[str, str]],
    params: SamplingParams,
    task: Task[list[Event]],
    limits: Limits,
) -> Iterator[str]:
    """The events of a task as lines, until the job is stopped."""
    enforce_limits(context.pair, prompt, params, limits)
    recorder = Recorder(context.pair.tokenizer)
    with closing(context.run_task(task)) as batches:
        for batch in batches:
            if batch:
                yield "".join(map(recorder.line, batch))
            if context.stop.is_set():
                return


def _decoded(pair: Pair, prompt: Prompt, params: SamplingParams, config: LaneConfig, seconds: float | None) -> Batches:
    for batch in driven(start(make_request(pair, prompt, params), config), interval=0.08, max_seconds=seconds):
        yield [named(event, config) for event in batch]


def _said(limits: Limits) -> str:
    """The limits of a public page in a sentence, after a space; "" for a page of one's own, whose limits are wide."""
    if not limits.public:
        return ""
    return (
        f" This page allows at most {limits.new_tokens} new tokens, {limits.prompt_tokens} prompt tokens, "
        f"{limits.runs} runs and {limits.stop_strings} stop strings of {limits.stop_characters} characters each."
    )


def _named_lanes(lanes: Sequence[Lane]) -> str:
    return ", ".join(f"{lane.key} ({lane.choice})" for lane in lanes)


def _require(name: str, value: Any, kind: type, wanted: str) -> None:
    """Refuse a value of another type, because Gradio does not check JSON against the annotations above."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInput(f"{name} is {quoted(value)}; give {wanted}.")


def _strings(name: str, value: Any) -> tuple[str, ...]:
    """The strings of a list; none for null. Raises ``InvalidInput`` for anything else."""
    given = () if value is None else value
    if not (isinstance(given, (list, tuple)) and all(isinstance(text, str) for text in given)):
        raise InvalidInput(f"{name} is {quoted(value)}; give a list of strings.")
    return tuple(given)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Send an error of specdec to the caller as its sentence, without a traceback in the log."""
    try:
        yield
    except SpecdecError as error:
        raise gr.Error(str(error), print_exception=False) from error
