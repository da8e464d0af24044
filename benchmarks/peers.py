"""Measures our lanes beside transformers' own ways to write the same text: ``python -m benchmarks.peers``.

All lanes run in one process and in turns, greedy, on the example prompts. Each writes every text once before, so that
compiling is done outside the measured runs; its time is listed separately. A lane that fails with this pair or on this
machine is listed with the reason. Puts its section into docs/performance.md.

``--server NAME=ADDRESS`` adds a lane on a server that serves the same target, such as vLLM, and may be given again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import inspect
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.document import PERFORMANCE, with_section
from benchmarks.server_lane import server_lane
from specdec.cli.arguments import leave_a_core, pair_of
from specdec.cli.parsers.shared import add_pair_arguments
from specdec.drafters.draft_model import DraftModel
from specdec.engine.request import Request, make_call, make_request
from specdec.errors import SpecdecError
from specdec.events import MAX_GAMMA, Event, SamplingParams
from specdec.forward.hf_private import compiled_everywhere
from specdec.lanes.decoding_thread import driven
from specdec.lanes.hf_generate import transformers_lane
from specdec.lanes.race import start
from specdec.lanes.table import BASELINE, LANES, Lane, LaneConfig, row_of
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.measure.result import collect
from specdec.measure.results.file import measured_on
from specdec.measure.summary import Summary, find, summarise
from specdec.measure.trials import INTERVAL, trials
from specdec.models.pair import Pair, silence_libraries
from specdec.report import numbers, provenance

COMPILED = ("generate-static-compiled", "assisted-draft-compiled")
KEYS = (
    *("generate", "generate-static", COMPILED[0], "assisted", COMPILED[1], "transformers-lookup"),
    *("speculative:0", "speculative", "prompt-lookup"),
)

DEFINITIONS = """\
- **tokens/s**: the tokens after each text's first event, by their seconds; all prompts of a run together. Those of the
  run with the median speed-up over plain `generate`, which itself has lowest to highest alone.
- **over plain `generate`**, **over assisted**: these tokens/s by those of transformers' plain `generate`, and of its
  assisted generation at the same γ, in the same run.
- **tokens a pass**: tokens that a pass of the target yields.
- **same text**: how many texts are those of plain `generate`, token for token.
- **compiling took**: how much longer the first calls took than the same calls in the median run. Each lane wrote every
  text once before the measured runs. The compiler's cache was empty.
- **static cache**: keys and values lie in buffers of {room} tokens from the start (`cache_implementation="static"`,
  `max_cache_len={room}`).
- **static cache, compiled**: `generate` itself compiles its passes over one token (torch.compile, default
  `CompileConfig`). transformers does so on a GPU; elsewhere it must be told to. The pass over
  the prompt is not compiled.
- **draft compiled**: `draft.compile(dynamic=True)`. transformers itself compiles nothing of assisted generation, which
  refuses static caches.
- **transformers' prompt lookup**: `prompt_lookup_num_tokens={gamma}`, `max_matching_ngram_size=3`, as ours.
"""
SERVERS = """\
- The last lanes are servers on the same machine, in processes of their own. They may use all cores, and their time
  includes the way of each part through HTTP.
"""


def peers(pair: Pair, room: int) -> list[Lane]:
    """transformers' other ways to write the same text, as rows of the table of lanes.

    ``room``: tokens of every static cache, prompt and text together. With the same room for all prompts, one compiled
    pass fits all of them.
    """
    static = {"cache_implementation": "static", "max_cache_len": room}
    # With a static cache, generate compiles its passes over one token: always on a GPU, elsewhere if it is told to.
    anywhere = compiled_everywhere()
    # It compiles nothing of assisted generation, which refuses static caches. There the draft is compiled here.
    draft = copy.copy(pair.draft.model) if isinstance(pair.draft, DraftModel) else None
    if draft is not None:
        # Beyond a limit nothing is compiled. torch 2.11 has no such option.
        options = {"recompile_limit": 64, "isolate_recompiles": True}
        known = inspect.signature(torch.compile).parameters
        draft.compile(dynamic=True, **{name: value for name, value in options.items() if name in known})

    def static_eager(request: Request, *_: Any) -> Iterator[Event]:
        return transformers_lane(make_call("generate", request), **static, disable_compile=True)

    def static_compiled(request: Request, *_: Any) -> Iterator[Event]:
        call = make_call("generate", request)
        return transformers_lane(call, **static, disable_compile=False, compile_config=anywhere)

    def draft_compiled(request: Request, gamma: Any, *_: Any) -> Iterator[Event]:
        return transformers_lane(make_call("assisted", request, gamma), assistant_model=draft)

    def no_draft_model(_: Pair) -> str | None:
        return None if draft is not None else "It needs a draft model."

    def row(name: str, label: str, begin: Any, lengths: Any = "none", **facts: Any) -> Lane:
        return Lane(name, label, label, begin, lengths, bench=None, **facts)

    return [
        row("generate-static", "transformers' generate, static cache", static_eager),
        row(COMPILED[0], "transformers' generate, static cache, compiled", static_compiled),
        row(COMPILED[1], "transformers' assisted, draft compiled", draft_compiled, "fixed", refusal=no_draft_model),
    ]


@contextlib.contextmanager
def on_the_table(further: Sequence[Lane]) -> Iterator[None]:
    """Add ``further`` rows to the table of lanes within this block."""
    LANES.extend(further)
    try:
        yield
    finally:
        LANES[:] = [row for row in LANES if row not in further]


def first_calls(
    pair: Pair, configs: Sequence[LaneConfig], requests: Sequence[Request]
) -> tuple[dict[LaneConfig, float], dict[LaneConfig, str]]:
    """Let each config write every text once.

    Returns the seconds of those that could, and the reasons of the others.
    """
    took: dict[LaneConfig, float] = {}
    failed: dict[LaneConfig, str] = {}
    for config in configs:
        reason = config.row.refusal(pair)
        try:
            if reason is None:
                calls = [collect(driven(start(r, config), INTERVAL)).metrics for r in requests]
                took[config] = sum(call.prefill_seconds + call.decode_seconds for call in calls)
        except SpecdecError as error:
            reason = str(error)
        except Exception as error:  # any error of a compiler or another library goes into the table
            reason = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no reason given')}"
        if reason is not None:
            failed[config] = reason
    return took, failed


def compiling(took: Mapping[LaneConfig, float], found: Sequence[Trial]) -> dict[LaneConfig, float]:
    """How many seconds longer the first calls of compiled lanes took than the same calls in the median run."""
    extra = {}
    for config, first in took.items():
        runs: dict[int, float] = {}
        for trial in found:
            if trial.lane_config == config:
                seconds = trial.metrics.prefill_seconds + trial.metrics.decode_seconds
                runs[trial.run] = runs.get(trial.run, 0.0) + seconds
        if config.lane in COMPILED:
            extra[config] = max(0.0, first - median(runs.values()))
    return extra


def section(
    about: Mapping[str, Any],
    command: str,
    plan: Plan,
    gamma: int,
    room: int,
    found: Sequence[Trial],
    compiled: Mapping[LaneConfig, float],
    failed: Mapping[LaneConfig, str],
) -> str:
    """The section of the document: the table, what was measured and how, and the meaning of its columns."""
    machine, versions = about["machine"], about["versions"]
    plain, beside = summarise(found), summarise(found, LaneConfig("assisted", gamma))
    lines = [
        "## Beside transformers' own ways",
        "",
        f"Pair: {provenance.pair_line(about['pair'])}. Machine: {machine['cpu']}, {machine['cores']} cores, of which "
        f"the passes use {machine['threads']}{', ' + machine['gpu'] if 'gpu' in machine else ''}. Versions: "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + ".",
        "",
        f"{len(plan.prompts)} prompts, {plan.params.max_new_tokens} greedy tokens each, no early end, γ {gamma}; "
        f"{plan.runs} run{'s' * (plan.runs != 1)} in one process, in turns of rotating order; medians over the runs "
        "with (lowest–highest).",
        "",
        "```bash",
        command,
        "```",
        "",
        "| Lane | γ | tokens/s | over plain `generate` | over assisted | tokens a pass | same text | compiling took |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_line(config, plain, beside, compiled) for config in plan.configs),
        "",
        *(f"Not measured: {_name(config)}. {reason}\n" for config, reason in failed.items()),
        DEFINITIONS.format(room=room, gamma=gamma)
        + (SERVERS if any(config.lane.startswith("server-") for config in plan.configs) else ""),
    ]
    return "\n".join(lines)


def _line(config: LaneConfig, plain: list[Summary], beside: list[Summary], compiled: Mapping[LaneConfig, float]) -> str:
    ours, theirs = find(plain, config), find(beside, config)
    assert ours is not None and theirs is not None  # every config of the plan has run
    cells = [
        _name(config),
        "" if config.gamma is None else str(config.gamma),
        numbers.ends(ours.rates, numbers.rate)
        if config == BASELINE
        else numbers.spread(ours.rates, numbers.rate, ours.figure("tokens_per_second")),
        "1" if config == BASELINE else numbers.times(ours.gains),
        "1" if config.lane == "assisted" else numbers.times(theirs.gains),
        numbers.number(ours.figure("mean_acceptance_length"), 2),
        f"{ours.same} of {ours.compared}",
        f"{compiled[config]:.0f} s" if config in compiled else "",
    ]
    return f"| {' | '.join(cells)} |"


def _name(config: LaneConfig) -> str:
    choice = config.row.choice
    if config.lane.startswith("server-"):
        return choice
    return choice if choice.startswith(("our ", "transformers'")) else f"our {choice}"


def measured(
    pair: Pair,
    items: Sequence[PromptItem],
    params: SamplingParams,
    gamma: int,
    runs: int,
    command: str,
    servers: Sequence[Lane] = (),
) -> str:
    """Run everything and return the section."""
    requests = [make_request(pair, item.message(pair.tokenizer), params) for item in items]
    room = max(len(request.prompt_ids) for request in requests) + params.max_new_tokens
    with on_the_table([*peers(pair, room), *servers]):
        every = [row_of(key).lane_config(gamma) for key in (*KEYS, *(server.key for server in servers))]
        took, failed = first_calls(pair, every, requests)
        if BASELINE in failed:
            raise SystemExit(f"Plain generate is what all others are compared with, and it failed: {failed[BASELINE]}")
        plan = Plan(tuple(items), tuple(took), params, runs)
        found = list(filter(None, trials(pair, plan)))
        about = measured_on(pair)
        return section(about, command, plan, gamma, room, found, compiling(took, found), failed)


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__.split("\n\n")[0])
    add_pair_arguments(parser)
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--server", action="append", default=[], metavar="NAME=ADDRESS", help="one more lane")
    parser.add_argument("--document", type=Path, default=PERFORMANCE, help="the document that holds the section")
    arguments = parser.parse_args(argv)
    path = arguments.document
    if not path.is_file():
        parser.error(f"there is no document {path}; create it, or name another")
    if not 1 <= arguments.gamma <= MAX_GAMMA:
        parser.error(f"--gamma is {arguments.gamma}; give a whole number from 1 to {MAX_GAMMA}")
    for text in arguments.server:
        if "=http" not in text:
            parser.error(f"--server is {text}; give NAME=ADDRESS, such as vLLM=http://127.0.0.1:8000")
    servers = [server_lane(at, *text.split("=", 1)) for at, text in enumerate(arguments.server)]
    with_section(path.read_text(encoding="utf-8"), "peers", "")  # refuse a lost mark before the measurement
    silence_libraries()
    leave_a_core()
    command = shlex.join(["python", "-m", "benchmarks.peers", *argv])
    try:
        params = SamplingParams(arguments.tokens, ignore_eos=True)
        with tempfile.TemporaryDirectory() as folder:  # an old cache would hide the time of compiling
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            pair, items = pair_of(arguments), read_prompts(EXAMPLES)
            text = measured(pair, items, params, arguments.gamma, arguments.runs, command, servers)
    except SpecdecError as error:
        raise SystemExit(f"peers: {error}") from error
    print(text)
    path.write_text(with_section(path.read_text(encoding="utf-8"), "peers", text), encoding="utf-8")


if __name__ == "__main__":
    main()
