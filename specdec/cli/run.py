"""Race a pair on one prompt: ``specdec "Once upon a time" --gamma 5``."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from specdec.cli.arguments import leave_a_core, load_arguments, pair_of
from specdec.cli.exports import export_race
from specdec.cli.output import STYLES, Output, console_of, legend, prompt_of
from specdec.cli.parsers.shared import params_of
from specdec.cli.terminal import refused
from specdec.engine.acceptance import acceptance_of
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import Event, Finished, Round, SamplingParams, Started
from specdec.facts import PairFacts
from specdec.lanes.race import race
from specdec.lanes.table import BASELINE, key_of, race_configs, require_runs, row_of, turned
from specdec.measure.prompts import message_of
from specdec.measure.result import by_lane, started_of
from specdec.measure.results.file import measured_on
from specdec.models.pair import silence_libraries
from specdec.report.definitions import label_of
from specdec.report.provenance import pair_line
from specdec.report.race_export import FinishedRace
from specdec.report.race_verdict import SPECULATIVE, race_verdict
from specdec.report.recording import Recorder
from specdec.report.verdict import Verdict, another_run
from specdec.text import TextStream


def main(arguments: Namespace) -> None:
    silence_libraries()
    leave_a_core()
    console = console_of(highlight=False, soft_wrap=True)
    try:
        for needed in (BASELINE.key, SPECULATIVE):
            if needed not in arguments.lanes:
                raise InvalidInput(f"The verdict needs the lane {needed}; add it to --lanes.")
        keys = list(race_configs(arguments.lanes, arguments.gamma))
        if arguments.runs is not None:
            require_runs(arguments.runs)
            if arguments.json and arguments.runs > 1:
                raise InvalidInput("--json prints the events of one race; leave --runs out, or take --export.")
        acceptance_of(arguments.acceptance)
        text = prompt_of(arguments.prompt)
        prompt = message_of(text, arguments.chat)
        params = params_of(arguments)
        pair = pair_of(arguments)
        asked = {"gamma": arguments.gamma, "acceptance": arguments.acceptance}

        def run(made: int, params: SamplingParams) -> Iterator[Event]:
            """A race after ``made`` others. Another lane is first in each."""
            lanes = turned(arguments.lanes, made)
            return chain.from_iterable(race(pair, prompt, **asked, params=params, lanes=lanes))

        about, began = measured_on(pair) if arguments.export else None, time.perf_counter()
        first = run(0, params)
        shown = _printed(first, pair.tokenizer) if arguments.json else _shown(console, first, pair.tokenizer, keys)
        runs = [by_lane(shown, keys)]
        if arguments.json and not arguments.export:
            return
        text_of = Recorder(pair.tokenizer).text_of
        verdict = race_verdict(runs, text_of=text_of)
        seeded = replace(params, seed=started_of(runs[0][SPECULATIVE]).params.seed)
        while not arguments.json and _another(arguments.runs, runs, verdict, time.perf_counter() - began):
            console.print(f"Run {len(runs) + 1} ...", style="dim")
            runs.append(by_lane(run(len(runs), seeded), keys))
            verdict = race_verdict(runs, text_of=text_of)
        written = about is None or export_race(
            arguments.export,
            FinishedRace(
                load=load_arguments(arguments),
                about=about,
                prompt=text,
                chat=arguments.chat,
                gamma=arguments.gamma,
                params=params if params.greedy else seeded,
                acceptance=arguments.acceptance,
                lanes=arguments.lanes,
                runs=runs,
                verdict=verdict,
                recorder=Recorder(pair.tokenizer),
            ),
        )
        if not arguments.json:
            _print(console, verdict, started_of(runs[0][SPECULATIVE]).pair)
    except SpecdecError as error:
        raise refused(error) from error
    if not written:
        raise SystemExit(1)


def _another(asked: int | None, runs: Sequence[Any], verdict: Verdict, seconds: float) -> bool:
    """Whether to run the race again: as often as asked, else until its verdict is clear."""
    return another_run(verdict, seconds) if asked is None else len(runs) < asked


def _printed(events: Iterable[Event], tokenizer: Any) -> Iterator[Event]:
    """The events, while each is printed as a line."""
    recorder = Recorder(tokenizer)
    for event in events:
        sys.stdout.write(recorder.line(event))
        sys.stdout.flush()  # a program that reads them sees each when it comes
        yield event


def _shown(console: Output, events: Iterable[Event], tokenizer: Any, keys: Sequence[str]) -> Iterator[Event]:
    """The events, while the speculative lane's text is printed as it comes."""
    stream = TextStream(tokenizer)
    for event in events:
        if isinstance(event, Started):
            key = key_of(event.lane, event.gamma, keys)
            console.print(f"Running {row_of(key).choice} ...", style="dim")
            if key == SPECULATIVE:
                prompt = "".join(stream.push(token_id) for token_id in event.prompt_ids)
                console.write(prompt, STYLES["prompt"])
        if isinstance(event, Round) and key == SPECULATIVE:
            for token_id, kind in zip(event.committed_ids, event.committed_kinds, strict=True):
                console.write(stream.push(token_id), STYLES[kind])
        if isinstance(event, Finished) and key == SPECULATIVE:
            console.write(stream.finish() + "\n\n")
        yield event


def _print(console: Output, verdict: Verdict, facts: PairFacts) -> None:
    """Print the verdict on a race, and what raced."""
    console.print(legend())
    console.print(verdict.sentence, style="bold")
    for key, rate in (verdict.rates or {}).items():
        console.print(f"{rate}  {row_of(key).label}")
    for figure in verdict.figures or ():
        console.print(f"{figure['value']}  {label_of(figure)}")
    for sentence in verdict.below:
        console.print(sentence)
    if verdict.caption:
        console.print(f"{pair_line(facts)}. {verdict.caption}.", style="dim")
