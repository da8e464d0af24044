"""Race servers that run already: ``specdec servers plain=URL spec=URL "Once upon a time"``."""

from __future__ import annotations

import time
from argparse import Namespace
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from specdec.cli.exports import export_race, export_trials
from specdec.cli.output import STYLES, Output, console_of, legend, prompt_of
from specdec.cli.parsers import parser_of
from specdec.cli.parsers.servers import RUNS
from specdec.cli.parsers.shared import Parser, add_pair_arguments, params_of
from specdec.cli.terminal import OPTIONS, refused
from specdec.errors import InvalidInput, SpecdecError
from specdec.events import Event, Round, SamplingParams
from specdec.lanes.table import LaneConfig, require_runs
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import Choice, PromptItem, message_of, read_prompts
from specdec.measure.result import LaneEvents, started_of
from specdec.measure.results.text import ResultsText, plan_head
from specdec.measure.summary import summarise
from specdec.report import provenance, sentences
from specdec.report.benchmark import terminal_table
from specdec.report.definitions import label_of
from specdec.report.race_export import FinishedRace
from specdec.report.race_verdict import SPECULATIVE, race_verdict
from specdec.report.recording import Recorder
from specdec.report.sweep import marked, overall, sweep_rows, sweep_table
from specdec.report.verdict import Verdict, another_run
from specdec.servers.address import Address, connected, named_addresses, require_names
from specdec.servers.answer import Asked
from specdec.servers.bench import about_servers, server_trials, servers_plan
from specdec.servers.lane import Server
from specdec.servers.race import against, lanes_of, race_on_servers
from specdec.servers.tokens import ServerTokens
from specdec.text import whole_text

Step = TypeVar("Step")
Run = dict[str, list[Event]]  # the events of each server by its name


def require_no_pair(arguments: Namespace, command: str, *more: str) -> None:
    """Refuse an option of a pair, or one named in ``more``, beside servers: it would have no effect."""
    of_pair, defaults = Parser(), parser_of(command).parse_args([""])
    add_pair_arguments(of_pair)
    for name in (*vars(of_pair.parse_args([])), *more):
        if getattr(arguments, name) != getattr(defaults, name):
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} is of a pair, and servers run as they were started; leave it out.")


def require_no_server(arguments: Namespace) -> None:
    """Refuse the name of a server's model where no server is given."""
    if arguments.model is not None:
        raise InvalidInput("--model is of servers, and none is named; --target and --draft name a pair.")


def main(arguments: Namespace) -> None:
    console = console_of(piped=120, highlight=False, soft_wrap=True)
    try:
        named, rest = split(arguments.words)
        params = params_of(arguments)
        if arguments.runs is not None:
            require_runs(arguments.runs)
        items = _prompts(arguments, rest)  # first, so that wrong words are refused before any server is asked
        prompt = "" if items else prompt_of(rest[0])
        with connected(named, arguments.model) as servers:
            if items:
                written = _measure(console, arguments, servers, params, items)
            else:
                written = _race(console, arguments, servers, params, prompt)
    except SpecdecError as error:
        raise refused(error, OPTIONS) from error
    if not written:
        raise SystemExit(1)


def split(words: Sequence[str]) -> tuple[list[Address], list[str]]:
    """The servers, and the words that name none. Raises ``InvalidInput`` for servers that cannot be compared."""
    found = named_addresses(words)
    servers = [address for address in found if address]
    require_names(servers)
    return servers, [word for word, address in zip(words, found, strict=True) if not address]


def _prompts(arguments: Namespace, rest: Sequence[str]) -> list[PromptItem]:
    """The prompts of a measurement; none for a race, whose prompt is the only word in ``rest``."""
    if not arguments.prompts:
        if len(rest) != 1:
            raise InvalidInput('Give the prompt as one argument after the servers: plain=URL spec=URL "text".')
        return []
    if rest:
        raise InvalidInput("Give a prompt or --prompts FILE, not both.")
    return read_prompts(arguments.prompts)


def gathered(steps: Iterable[Step], found: list[Step], tell: Callable[[Step], None]) -> BaseException | None:
    """Add each step to ``found`` when it ends, and tell it.

    Returns the failure of a server, or the Ctrl-C, that ended them early: whoever has shown what was measured before it
    raises it. Raises it at once if there is nothing to show.
    """
    try:
        for step in steps:
            found.append(step)
            tell(step)
    except (SpecdecError, KeyboardInterrupt) as error:
        if not found:
            raise
        return error
    return None


def asked_of(arguments: Namespace, params: SamplingParams, prompt: str) -> Asked:
    return Asked(message_of(prompt, arguments.chat), params, arguments.seconds)


def _race(
    console: Output, arguments: Namespace, servers: Sequence[Server], params: SamplingParams, prompt: str
) -> bool:
    """Race on one prompt, print it, and write the files. False if a file could not be written."""
    asked, tokens, began = asked_of(arguments, params, prompt), ServerTokens(), time.perf_counter()
    names = list(lanes_of(servers))
    plain, others = names[0], names[1:]
    runs: list[Run] = []
    verdicts: dict[str, Verdict] = {}
    text_of = Recorder(tokens).text_of

    def races() -> Iterator[Run]:
        while not runs or _another(arguments.runs, len(runs), verdicts.values(), time.perf_counter() - began):
            console.print(f"Run {len(runs) + 1} ..." if runs else "Warming up, then run 1 ...", style="dim")
            yield dict(race_on_servers(servers, asked, tokens, len(runs)))

    def judge(_: Run) -> None:
        for name in others:
            verdicts[name] = race_verdict([against(plain, name, run) for run in runs], text_of=text_of)

    ended = gathered(races(), runs, judge)
    written = True
    for name in others:
        lanes = [against(plain, name, run) for run in runs]
        console.print("")
        _print_text(console, prompt + "\n\n" * arguments.chat, lanes[verdicts[name].shown or 0][SPECULATIVE], tokens)
        _print_verdict(console, name, verdicts[name], lanes)
        finished = _finished(arguments, params, prompt, lanes, verdicts[name], tokens)
        files = [path if len(others) == 1 else path.with_stem(f"{path.stem}-{name}") for path in arguments.export]
        written &= export_race(files, finished)
    if ended:
        raise ended
    return written


def _another(asked: int | None, made: int, verdicts: Iterable[Verdict], seconds: float) -> bool:
    """Whether to run all servers again: as often as asked, else until each verdict is clear."""
    return any(another_run(verdict, seconds) for verdict in verdicts) if asked is None else made < asked


def _print_text(console: Output, prompt: str, events: Sequence[Event], tokens: ServerTokens) -> None:
    """The text of a lane, coloured by its rounds."""
    console.write(prompt, STYLES["prompt"])
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    for event in events:
        if isinstance(event, Round):
            for token_id, kind in zip(event.committed_ids, event.committed_kinds, strict=True):
                console.write(decoder.decode(tokens(token_id)), STYLES.get(kind, ""))
    console.write("\n\n")


def _print_verdict(console: Output, name: str, verdict: Verdict, runs: Sequence[LaneEvents]) -> None:
    started = {key: started_of(events) for key, events in runs[verdict.shown or 0].items()}
    if started[SPECULATIVE].pair["server"]["exact"] == "rounds":
        console.print(legend())
    console.print(f"{name}: {verdict.sentence}", style="bold")
    for key, rate in (verdict.rates or {}).items():
        console.print(f"{rate}  {'plain server' if key != SPECULATIVE else name}")
    for figure in verdict.figures or ():
        console.print(f"{figure['value']}  {label_of(figure)}")
    for sentence in verdict.below:
        console.print(sentence)
    for key, start in started.items():
        told = start.pair["server"]
        exact = sentences.EXACTNESS[told["exact"]]
        side = name if key == SPECULATIVE else "plain"
        console.print(f"{side}: {provenance.server_line(told)}. {exact}", style="dim")
    if verdict.caption:
        console.print(f"{verdict.caption}. {sentences.AT_THE_CLIENT}", style="dim")


def _finished(
    arguments: Namespace,
    params: SamplingParams,
    prompt: str,
    lanes: Sequence[LaneEvents],
    verdict: Verdict,
    tokens: ServerTokens,
) -> FinishedRace:
    started = started_of(lanes[0][SPECULATIVE])
    return FinishedRace(
        load={}, about=about_servers(started.pair), prompt=prompt, chat=arguments.chat, gamma=started.gamma,
        params=params, acceptance=started.acceptance, lanes=list(lanes[0]), runs=lanes, verdict=verdict,
        recorder=Recorder(tokens),
    )  # fmt: skip


def _measure(
    console: Output,
    arguments: Namespace,
    servers: Sequence[Server],
    params: SamplingParams,
    prompts: Sequence[PromptItem],
) -> bool:
    """Measure over prompts, print the table of the servers by their K, and write the files."""
    choice = Choice(whole_text(arguments.prompts.name), None, arguments.chat)
    asked = servers_plan(
        servers, Plan(choice.of(prompts), (), params, arguments.runs or RUNS, choice), arguments.seconds
    )
    plan, found = asked.plan, list[Trial]()

    def tell(_: Trial) -> None:
        console.print(f"{len(found)} of {len(plan)} calls", style="dim")

    ended = gathered(server_trials(servers, asked, arguments.seconds), found, tell)
    results = ResultsText(plan, plan_head(asked.about, plan))
    written = export_trials(arguments.export, asked.about, plan, found, None, results)
    _print_table(console, servers, asked.configs, found, plan)
    if ended:
        raise ended
    return written


def _print_table(
    console: Output,
    servers: Sequence[Server],
    configs: Mapping[str, LaneConfig],
    found: Sequence[Trial],
    plan: Plan,
) -> None:
    rows = sweep_rows(summarise(found), one_pass=False)  # a server does not tell what a draft costs
    console.print(terminal_table(sweep_table(rows, marked(rows, found, plan), servers=True)))
    for server in servers:
        engine = " ".join(filter(None, [server.engine.name, server.version]))
        console.print(f"{server.name}: {configs[server.name].label}, {engine}, model {server.model}", style="dim")
    result = overall(found, plan, {}, on_servers=True)
    console.print(" ".join(filter(None, [result.headline, *(note.text for note in result.notes)])))
