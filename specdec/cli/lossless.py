"""Whether a server that speculates writes what a plain one writes: ``specdec lossless plain=URL spec=URL``."""

from __future__ import annotations

import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace

from specdec.cli.output import Output, console_of, prompt_of, require_one_source
from specdec.cli.parsers.shared import params_of
from specdec.cli.servers import asked_of, gathered, split
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.measure.prompts import read_prompts
from specdec.report.court import NEAR_TIE, court_counts, court_headline, finding_sentence, sampled_sentences
from specdec.report.recording import plain_json
from specdec.servers.address import connected
from specdec.servers.court import DRAWN_TOKENS, Drawn, TextFinding, draws, greedy_court, samples_of
from specdec.servers.lane import Server
from specdec.servers.race import lanes_of

FAULT = 2  # the exit status where a fault was found
LEAST_DRAWS = 50


def main(arguments: Namespace) -> None:
    console = console_of(piped=120, highlight=False, soft_wrap=True)
    try:
        named, rest = split(arguments.words)
        if len(named) != 2:
            raise InvalidInput("Give two servers: the plain one, and one that speculates.")
        params = params_of(arguments)
        require_one_source(rest, arguments.prompts)
        prompts = [(f"prompt {at}", prompt_of(text)) for at, text in enumerate(rest, start=1)]
        prompts = prompts or [(item.name, item.prompt) for item in read_prompts(arguments.prompts)]
        if not params.greedy:
            _require_samples(rest, arguments.draws)
        with connected(named, arguments.model) as servers:
            lanes_of(servers)
            judge = _greedy if params.greedy else _sampled
            fault = judge(console, arguments, servers, params, prompts)
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
    if fault:
        raise SystemExit(FAULT)


def _require_samples(given: Sequence[str], draws: int) -> None:
    """Raise ``InvalidInput`` for what two samples cannot be drawn from."""
    if len(given) > 1:
        raise InvalidInput(f"With a temperature, continuations of one prompt are compared; {len(given)} are given.")
    if draws < LEAST_DRAWS:
        raise InvalidInput(f"--draws must be {LEAST_DRAWS} or more, for a difference to be found at all.")


def _greedy(
    console: Output,
    arguments: Namespace,
    servers: Sequence[Server],
    params: SamplingParams,
    prompts: Sequence[tuple[str, str]],
) -> bool:
    """Compare greedy texts, print what was found, and return whether a fault was."""
    plain, other = servers
    asked = [(name, asked_of(arguments, params, text)) for name, text in prompts]
    findings: list[TextFinding] = []

    def tell(found: TextFinding) -> None:
        if not arguments.json:
            console.print(finding_sentence(found, plain.name, other.name), style="dim")

    ended = gathered(greedy_court(plain, other, asked), findings, tell)
    if arguments.json:
        sys.stdout.write(plain_json([asdict(found) for found in findings], indent=1) + "\n")
    else:
        console.print(court_headline(findings, plain.name, other.name), style="bold")
        said = [court_counts(findings), *([NEAR_TIE] if any(found.margin is not None for found in findings) else [])]
        console.print(" ".join(said))
    if ended:
        raise ended
    return any(found.verdict == "fault" for found in findings)


def _sampled(
    console: Output,
    arguments: Namespace,
    servers: Sequence[Server],
    params: SamplingParams,
    prompts: Sequence[tuple[str, str]],
) -> bool:
    """Compare samples of the first prompt, print what was found, and return whether they differ."""
    from specdec.measure.detectable import LEVEL
    from specdec.measure.losslessness import compare_samples  # needs torch

    seed = secrets.randbits(32) if params.seed is None else params.seed
    asked = asked_of(arguments, replace(params, max_new_tokens=DRAWN_TOKENS), prompts[0][1])
    drawn: dict[str, list[Drawn]] = {server.name: [] for server in servers}
    for name, each in draws(servers, asked, arguments.draws, seed):
        drawn[name].append(each)
    samples, (plain, other) = samples_of(drawn), (server.name for server in servers)
    found = compare_samples(samples[plain], samples[other], seed)
    if arguments.json:
        sys.stdout.write(plain_json(asdict(found) | {"draws": arguments.draws, "seed": seed}, indent=1) + "\n")
    else:
        first, *more = sampled_sentences(found, LEVEL, arguments.draws, DRAWN_TOKENS, (plain, other))
        console.print(first, style="bold")
        console.print(" ".join(more))
    return found.p_value < LEVEL
