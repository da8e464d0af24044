"""The tab that measures lanes over a prompt set, and gives the tables as files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from specdec.engine.policy import gamma_of
from specdec.errors import InvalidInput, quoted
from specdec.events import SamplingParams, check_gamma
from specdec.lanes.table import LANES, Entrant, Lane, entrants_of
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, NAME, Choice, parse_prompts, read_prompts
from specdec.measure.results_file import ResultsText, measured_on
from specdec.measure.summary import rows
from specdec.measure.task import Task
from specdec.measure.trials import trials
from specdec.models.pair import Pair
from specdec.report import words
from specdec.report.benchmark import EXPORTS, as_json
from specdec.report.overall import overall
from specdec.report.summary import COLUMNS, cells
from specdec.ui import fragments
from specdec.ui.fields import integer, number, number_field
from specdec.ui.figures import benchmark_figure
from specdec.ui.files import TextFile, chosen, file_buttons, file_field, offered
from specdec.ui.limits import Limits
from specdec.ui.machine import Job, Machine, Turn
from specdec.ui.measuring import Buttons, Findings, allowed, follow, sizes

KNOWN = "The embedded pair writes stories, dialogue and Python and copies; other sets tell little about it."
RESULTS = "benchmark.results.jsonl"
MOST_TEXT = 200  # characters of the field for draft lengths
MINOR = ("tokens/s", "time saved", "acceptance", "tokens a pass")


class BenchTab:
    """Built inside a ``gr.Tab``. ``files`` is the address of the script that reads and saves files in the browser."""

    def __init__(self, machine: Machine, limits: Limits, files: str):
        self._machine, self._limits = machine, limits
        lede = '<p class="sd-lede">Runs lanes over a prompt set, in turns; results by category, with their spread.</p>'
        gr.HTML(lede, apply_default_css=False)
        with gr.Row(elem_classes="sd-form"):
            most = f"up to {limits.file_bytes / 1e6:g} MB"
            hint = f"JSON lines (.jsonl or .jsonl.gz), {most}. Without a file, the examples run."
            self._set = file_field(files, "Prompt set", hint, "sd-bench-set", limits)
            hint = f"{RESULTS} of the same settings, {most}. Its calls are not repeated."
            self._earlier = file_field(files, "Earlier results (optional)", hint, "sd-bench-earlier", limits)
        with gr.Row(elem_classes="sd-form"):
            self._lanes = gr.CheckboxGroup(
                [(lane.choice, lane.key) for lane in _choices()],
                label="Further lanes",
                elem_id="sd-bench-lanes",
            )
            self._gammas = gr.Textbox("3 5 8", label="Draft lengths, or auto", max_lines=1, elem_id="sd-bench-gammas")
        with gr.Row(elem_classes="sd-form"):
            sized = sizes("bench", limits, tokens=64, runs=3)
            first = number_field(None, "First prompts a category", info="empty: all", elem_id="sd-bench-first")
            temperature = number_field(0, "Temperature", info="0 is greedy", step=0.05, elem_id="sd-bench-temperature")
            self.chat = gr.Checkbox(label="Chat", elem_id="sd-bench-chat")
            self._settings = [*sized, first, temperature, self.chat]
        self._buttons = Buttons("Run benchmark", "bench")
        self._findings = Findings("bench")
        hint = f"{RESULTS} holds every call. Give it as earlier results to go on from there."
        self._files = file_buttons(files, "Save the results", hint, "sd-bench-files")

    def wire(self) -> None:
        asked = [self._set, self._earlier, self._lanes, self._gammas, *self._settings]
        cleared = self._findings.cleared | {self._files: None}
        self._buttons.wire(self._machine, self._job, asked, cleared)

    def _job(
        self,
        prompts: Any,
        earlier: Any,
        lanes: list[str],
        gammas: str,
        tokens: float | None,
        runs: float | None,
        first: float | None,
        temperature: float | None,
        chat: bool,
    ) -> Job:
        own, before = chosen(prompts, self._limits), chosen(earlier, self._limits)
        many = None if first is None else integer("First prompts a category", first)
        choice = Choice(own.name if own else NAME, many, bool(chat))
        params = SamplingParams(
            integer("New tokens", tokens), number("Temperature", temperature), seed=0, ignore_eos=True
        )
        items = choice.of(parse_prompts(own.text) if own else read_prompts(EXAMPLES))
        plan = Plan(items, _entrants(lanes, gammas), params, integer("Runs", runs), choice)
        self._limits.take(plan.params.max_new_tokens, plan.runs, len(plan.prompts))
        settings = {"prompts": len(plan.prompts), "runs": plan.runs, "lanes": lanes, "gammas": gammas}
        settings |= {"first": many, "chat": choice.chat}
        work = partial(self._measure, plan=plan, own=own, before=before)
        return Job(self._buttons.name, plan.tokens, work, settings | asdict(plan.params))

    def _measure(
        self, turn: Turn, plan: Plan, own: TextFile | None, before: TextFile | None
    ) -> Iterator[dict[Any, Any]]:
        allowed(turn.pair, plan, self._limits)
        known = words.prompts(plan.chosen, len(plan.prompts))
        if own and turn.pair.name == "embedded":
            known += f" {KNOWN}"
        found: list[Trial] = []
        begun: list[_Begun] = []

        def begin(step: _Begun) -> None:
            begun.append(step)
            found.extend(step.found)

        task = Task(partial(_benchmark, plan=plan, before=before), plan.tokens)
        for text, whole in follow(turn, task, plan, self._limits, found, begin):
            yield {self._buttons.status: text} | (self._found(plan, found, whole, known) if found else {})
        if found:
            yield self._ending(begun[0], plan, found)

    def _found(self, plan: Plan, found: Sequence[Trial], whole: bool, known: str) -> dict[Any, Any]:
        result = overall(found, plan)
        caption = "Medians over the runs (lowest\u2013highest), after the first token; speed-up over plain generate."
        table = fragments.table(COLUMNS, map(cells, rows(found)), caption, minor=MINOR)
        figure = benchmark_figure(found) if whole else None
        return self._findings.show(
            fragments.verdict(result.headline, result.factor, [*result.notes, known]), table, figure
        )

    def _ending(self, begun: _Begun, plan: Plan, found: Sequence[Trial]) -> dict[Any, Any]:
        about = begun.about
        files = {f"benchmark{suffix}": export(about, plan, found) for suffix, export in EXPORTS.items()}
        files |= {"benchmark.json": as_json(about, plan, found), RESULTS: begun.lines.write(found)}
        return {self._files: offered(files)} | self._findings.explain(overall(found, plan).judgement)


class _Begun(NamedTuple):
    """What is known on the device before the first call: the head of the results and what is already measured."""

    lines: ResultsText
    about: dict[str, Any]
    found: list[Trial]


def _benchmark(pair: Pair, plan: Plan, before: TextFile | None) -> Generator[_Begun | Trial | None, None, None]:
    """Runs on the device: yields a ``_Begun``, then the trials of the plan that ``before`` does not hold."""
    lines = ResultsText(pair, plan)
    found = lines.read(before.text, before.name) if before else []
    yield _Begun(lines, measured_on(pair), found)
    yield from trials(pair, plan, {trial.key for trial in found})


def _choices() -> list[Lane]:
    """The lanes that run only where somebody asks for them."""
    return [lane for lane in LANES if not lane.race and lane.bench is not None]


def _entrants(lanes: Sequence[str], gammas: str) -> tuple[Entrant, ...]:
    if unknown := set(lanes) - {lane.key for lane in _choices()}:
        raise InvalidInput(f"There is no lane {quoted(sorted(unknown))}. Nothing ran.")
    keys = [lane.key for lane in LANES if lane.race or lane.key in lanes]
    return entrants_of(keys, _lengths(gammas))


def _lengths(text: str) -> list[int | str]:
    if len(text) > MOST_TEXT:
        raise InvalidInput(f"The draft lengths have {len(text)} characters; write {MOST_TEXT} at most.")
    try:
        found = [gamma_of(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise InvalidInput(f"The draft lengths are {quoted(text)}; give numbers from 0 to 16, or auto.") from error
    if not found:
        raise InvalidInput("No draft length is given; write some, for example 3 5 8.")
    return [g if isinstance(g, str) else check_gamma(g) for g in found]
