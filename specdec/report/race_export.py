"""Writes a race as files: its recording, its figures as JSON, CSV and Markdown, and code that repeats it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdec.events import Finished, SamplingParams
from specdec.facts import on_servers
from specdec.lanes.table import race_configs
from specdec.measure.metrics import compute_metrics
from specdec.measure.plan import Trial
from specdec.measure.prompts import message_of
from specdec.measure.result import LaneEvents, written_ids
from specdec.measure.results.format import About
from specdec.measure.summary import summary_rows
from specdec.report import numbers, provenance
from specdec.report.benchmark import benchmark_table, named_rows
from specdec.report.code_export import race_code
from specdec.report.code_text import literal
from specdec.report.figure_table import csv_table, markdown_table
from specdec.report.link_settings import link_settings
from specdec.report.recording import Recorder, begin_line, event_lines, plain_json, verdict_line
from specdec.report.verdict import Verdict

# What the JSON has of the verdict: what a program reads, not the texts and tables for the page.
JUDGED = ("kind", "reason", "doubts", "sentence", "gain", "engine", "speculation", "same", "shown", "warning")


SHOWN = "of which figures are those of run {run} (lowest\u2013highest of all)"


@dataclass(frozen=True)
class FinishedRace:
    """A race of which all lanes have ended.

    load     the arguments of ``load_pair`` that differ from its defaults
    about    pair, machine, versions and time, as ``measured_on`` gives them
    prompt   what the lanes continued; with ``chat`` it was sent as a message
    gamma, params, acceptance, lanes   what the race was asked for; ``params`` has the seed that was used, and ``lanes``
             are keys of ``LANES``
    runs     the events of each lane by its key, for each run, in the order in which they ran
    recorder one that has written nothing yet
    """

    load: Mapping[str, Any]
    about: About
    prompt: str
    chat: bool
    gamma: int | str
    params: SamplingParams
    acceptance: str
    lanes: Sequence[str]
    runs: Sequence[LaneEvents]
    verdict: Verdict
    recorder: Recorder

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each lane with its figures in the shown run, which are those of the verdict."""
        return summary_rows(self.trials, self.verdict.shown)

    @property
    def trials(self) -> list[Trial]:
        """Each lane of each run as a call of a measurement."""
        configs, found = race_configs(self.lanes, self.gamma), []
        for number, lanes in enumerate(self.runs):
            for key, events in lanes.items():
                figures, (lane, gamma) = compute_metrics(events), configs[key]
                assert figures is not None  # a lane that has ended has written a token
                found.append(
                    Trial(
                        run=number,
                        prompt="1",
                        category="given",
                        lane=lane,
                        gamma=gamma if gamma is None or isinstance(gamma, int) else str(gamma),
                        token_ids=tuple(written_ids(events)),
                        finish_reason=next(event.finish_reason for event in events if isinstance(event, Finished)),
                        greedy=self.params.greedy,
                        metrics=figures,
                    )
                )
        return found


def race_recording(race: FinishedRace) -> str:
    """The recording of all runs, which the page opens."""
    keys = list(race_configs(race.lanes, race.gamma))
    settings = link_settings(
        race.prompt, race.chat, race.gamma, race.params, race.acceptance, accept_top_k=None, lanes=race.lanes
    )
    events = [event for lanes in race.runs for lane in lanes.values() for event in lane]
    facts = race.about["pair"]
    begin = begin_line(0, "run", facts, settings, keys, len(race.runs), race.about["at"])
    return "".join([begin, *event_lines(events, [], keys, race.recorder), verdict_line(race.verdict)])


def race_json(race: FinishedRace) -> str:
    """Everything as numbers: what ran, the verdict, a row for each lane, and every call."""
    asked = {"prompt": race.prompt, "chat": race.chat, "gamma": race.gamma, "acceptance": race.acceptance}
    asked |= {"params": asdict(race.params), "runs": len(race.runs)}
    verdict = {name: getattr(race.verdict, name) for name in JUDGED}
    verdict["notes"] = [asdict(note) for note in race.verdict.notes]
    rows = named_rows(race.about, race.rows)
    found = {"verdict": verdict, "rows": rows, "trials": [asdict(trial) for trial in race.trials]}
    return plain_json(race.about | asked | found, indent=1) + "\n"


def race_csv(race: FinishedRace) -> str:
    """A row for each lane: plain numbers (seconds, factors and shares, not percent), each with what was measured."""
    params = asdict(race.params) | {"stop": literal(race.params.stop) if race.params.stop else ""}
    source = provenance.machine_columns(race.about) | {"prompt": race.prompt, "chat": race.chat}
    source |= params | {"acceptance_rule": race.acceptance}
    return csv_table([row | source for row in named_rows(race.about, race.rows)])


def race_markdown(race: FinishedRace) -> str:
    """The verdict and a table of the lanes, after lines that say what was measured."""
    seed = "" if race.params.greedy else f"seed {race.params.seed}"
    chat = "as a chat message" if race.chat else ""
    shown = SHOWN.format(run=1 + (race.verdict.shown or 0)) if len(race.runs) > 1 else ""
    settings = ", ".join(filter(None, [race.verdict.caption, seed, chat, numbers.runs(len(race.runs)), shown]))
    source = provenance.machine_rows(race.about) | {"Prompt": literal(race.prompt), "Settings": settings}
    head = "".join(f"- {name}: {value}\n" for name, value in source.items())
    table = markdown_table(benchmark_table(race.rows, on_servers(race.about["pair"])))
    said = "\n\n".join([race.verdict.sentence, *race.verdict.below])
    return f"{head}\n{said}\n\n{table}"


def race_python(race: FinishedRace) -> str:
    """Code that repeats the race: the same pair, prompt, settings and number of runs."""
    asked: dict[str, Any] = {"gamma": race.gamma, "lanes": list(race.lanes), "runs": len(race.runs)}
    if race.acceptance != "lossless":
        asked["acceptance"] = race.acceptance
    return race_code(race.load, message_of(race.prompt, race.chat), race.params, asked)


RACE_EXPORTS: dict[str, Callable[[FinishedRace], str]] = {
    ".jsonl": race_recording,
    ".json": race_json,
    ".csv": race_csv,
    ".md": race_markdown,
    ".py": race_python,
}
