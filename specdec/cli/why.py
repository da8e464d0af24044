"""Name what limits speculation: ``specdec why "Once upon a time"``, for a pair or for servers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

from specdec.cli.output import console_of, prompt_of
from specdec.cli.parsers.shared import grammar_of
from specdec.cli.servers import Run, asked_of, gathered, require_no_pair, require_no_server, split
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import SamplingParams
from specdec.lanes.table import require_runs
from specdec.measure.result import LaneEvents
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder
from specdec.servers.address import connected, named_addresses
from specdec.servers.race import against, lanes_of, race_on_servers
from specdec.servers.tokens import ServerTokens


def main(arguments: Namespace) -> None:
    console = console_of(piped=120, highlight=False, soft_wrap=True)
    try:
        require_runs(arguments.runs)
        params = SamplingParams(max_new_tokens=arguments.tokens, grammar=grammar_of(arguments))
        measure = _servers if any(named_addresses(arguments.words)) else _pair
        runs, text_of, ended = measure(arguments, params)
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
    verdict = race_verdict(runs, text_of=text_of)
    console.print(verdict.sentence, style="bold")
    for cause in verdict.why.get("causes", []) if verdict.why else []:
        console.print(f"- {cause}")
    if isinstance(ended, SpecdecError):
        raise refused(ended, OPTIONS) from ended
    if ended:
        raise ended


Measured = tuple[Sequence[LaneEvents], Callable[[int], str], BaseException | None]


def _servers(arguments: Namespace, params: SamplingParams) -> Measured:
    require_no_pair(arguments, "why", "gamma")
    named, rest = split(arguments.words)
    if len(named) != 2 or len(rest) != 1:
        raise InvalidInput('Give two servers and a prompt: plain=URL spec=URL "text".')
    asked, tokens = asked_of(arguments, params, prompt_of(rest[0])), ServerTokens()
    with connected(named, arguments.model) as servers:
        plain, other = lanes_of(servers)
        races = (dict(race_on_servers(servers, asked, tokens, made)) for made in range(arguments.runs))
        runs: list[Run] = []
        ended = gathered(races, runs, lambda _: None)
    return [against(plain, other, run) for run in runs], Recorder(tokens).text_of, ended


def _pair(arguments: Namespace, params: SamplingParams) -> Measured:
    from specdec.cli.arguments import leave_a_core, pair_of
    from specdec.lanes.race import race
    from specdec.lanes.table import DEFAULT_KEYS
    from specdec.measure.prompts import message_of
    from specdec.measure.result import flat, in_runs
    from specdec.models.pair import silence_libraries

    if len(arguments.words) != 1:
        raise InvalidInput("Give the prompt as one argument.")
    require_no_server(arguments)
    silence_libraries()
    leave_a_core()
    prompt = message_of(prompt_of(arguments.words[0]), arguments.chat)
    pair = pair_of(arguments)
    events = flat(race(pair, prompt, gamma=arguments.gamma, params=params, runs=arguments.runs))
    return in_runs(events, DEFAULT_KEYS), Recorder(pair.tokenizer).text_of, None
