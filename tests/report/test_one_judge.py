"""One judge over a grid: a race, a sweep, a benchmark and the command line never disagree on the same runs.

Each case is computed from numbers: seconds of plain ``generate`` and of our loop, draft length, kept guesses, the cost
of a guess and of a check, other work, and runs. All cases go through everything that page and terminal show.
"""

from __future__ import annotations

import io
import itertools
import random
import re
from collections.abc import Iterator

from comparison import FULL
from judged import drafting, loop, plain, plan, texts, trial

from specdec.cli.output import console_of
from specdec.cli.run import _print
from specdec.cli.terminal import readable
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.summary import summarise, summary_rows
from specdec.report import benchmark
from specdec.report.benchmark import report, show_table, summary_cells
from specdec.report.definitions import label_of
from specdec.report.judge import LOSING, Kind
from specdec.report.race_verdict import race_verdict
from specdec.report.sweep import COLUMNS, Overall, marked, overall, sweep_cells, sweep_rows, sweep_table
from specdec.report.verdict import Verdict
from specdec.report.why import why_figures

TEXT = tuple(range(10, 31))
NOISE = {1: (1.0,), 2: (1.0, 1.3), 3: (1.0, 0.97, 1.04)}
KEPT = ((0,), (1,), (2, 0), (4, 0, 1), (8, 3), (16,))
EVERY = list(
    itertools.product(
        (None, 0.7, 1.0, 1.3), (1, 2, 4, 8, 16, "auto"), KEPT, (0.02, 0.1, 0.3, 1.1), (0.85, 1.2, 3.0), (0.0, 0.3),
        NOISE,
    )
)  # fmt: skip
GRID = EVERY if FULL else random.Random(0).sample(EVERY, 600)
SIGHT = 40  # one in so many cases is printed by the command line


def runs_of(case: tuple) -> list[dict[str, list]]:
    alone, gamma, kept, guess, check, rest, count = case
    made = 3 if gamma == "auto" else None
    found = []
    for at, noise in enumerate(NOISE[count]):
        stall = 20.0 if at == 0 and check == 3.0 and kept == (1,) else 0.0
        also = tuple(k + (at == 1) for k in kept)  # sampled texts and chosen lengths keep other guesses in each run
        lane = drafting(gamma, also, noise * guess, noise * check, rest, made=made, stall=stall, text=TEXT)
        run = {BASELINE.key: plain(1.0, text=TEXT), "speculative": lane}
        found.append(run | ({LOOP.key: loop(alone, text=TEXT)} if alone else {}))
    return found


# All figures that have a name, wherever they are written.
P = r"([\d.]+)\u00a0%"
N = r"([\d.]+)"
NAMED = {
    "gain": (
        rf"is (?:about )?{N} times as fast", rf"Why {N}x:",
        rf"(?<!loop alone )runs at (?:about )?{N}x the speed of plain",
        rf"^factor: {N}x",
        rf"^row: {N}x",
    ),
    "engine": (
        rf"our loop \({N}x\)", rf"loop alone runs at {N}x", rf"{N}x from our loop",
        rf"loop alone gives {N}x", rf"was faster: {N}x", rf"^loop row: {N}x",
        rf"^our loop vs generate\(\): {N}x", rf"{N}x is our loop alone", rf"faster still: {N}x",
    ),
    "speculation": (
        rf"peculation (?:itself|on top) (?:loses time|pays) \({N}x\)",
        rf"itself pays \({N}x\)", rf"times {N}x from speculation",
        rf"Speculation runs at {N}x",
        rf"^gain over \u03b3 0: {N}x", rf"^speculation on top: {N}x",
        rf"the {N}x of speculation",
    ),
    "alpha": (
        rf"Only {P}", rf"{P} of tested guesses", rf"{P} of guesses are kept", rf"; it keeps {P}",
        rf"^acceptance: {P}", rf"^tested guesses kept: {P}",
    ),
    "needed": (
        rf"needs {P}", rf"must keep {P}", rf"; {P} are needed", rf"{P} would be needed", rf"^acceptance needed.*: {P}",
    ),
    "tokens": (rf"(?:ach|a) round yields {N} tokens", rf"^tokens per.*: {N}"),
    "round cost": (
        rf"in the time plain generate writes {N}", rf"for the time of {N} tokens of",
        rf"as long as {N} tokens of plain generate but", rf"^cost of a round.*: {N}",
    ),
    "c": (
        rf"A guess takes as long as {N} target", rf"^cost coefficient.*: {N}",
        rf"^c: {N}",
    ),
    "guess cost": (rf"A guess takes as long as {N} tokens of plain", rf"^cost of a guess.*: {N}"),
    "v": (rf"round takes {N} times", rf"^verify growth.*: {N}", rf"^v: {N}"),
    "predicted": (rf"theory predicts {N}x", rf"^predicted gain: {N}x", rf"^predicted: {N}x"),
    "beside": (rf"{P} of the time is spent outside", rf"^outside drafting.*: {P}"),
}  # fmt: skip
NAMED = {name: [re.compile(pattern, re.MULTILINE) for pattern in patterns] for name, patterns in NAMED.items()}


def require_one_figure_a_name(screen: list[str], seen: set[str]) -> None:
    """Each name has one value, to the printed digits. Adds the patterns that found one to ``seen``."""
    told = "\n".join(screen)
    found: dict[str, list[str]] = {name: [] for name in NAMED}
    for name, patterns in NAMED.items():
        for pattern in patterns:
            found[name] += (texts_found := pattern.findall(told))
            seen |= {pattern.pattern} if texts_found else set()
    for name, values in found.items():
        low = max((float(text) - _half(text) for text in values), default=0.0)
        high = min((float(text) + _half(text) for text in values), default=0.0)
        assert low <= high, (name, values, screen)
    assert not (found["needed"] and ("even 100\u00a0%" in told or "can yield at most" in told)), screen


def require_theory_not_refuted(many: Overall) -> None:
    """The closed form's break-even is stated as a fact only where the measured gain agrees."""
    found, told = many.judgement, " ".join(texts(many.notes))
    if found.speculation is not None and found.can_break_even is not None and "to be as fast" in told:
        enough = found.can_break_even and found.alpha >= found.needed_alpha
        assert ("if guesses were kept independently" in told) == ((found.speculation >= 1) != enough), told


def _half(text: str) -> float:
    return 0.500001 * 10 ** -len(text.partition(".")[2])


def labelled(values: list[dict[str, str]]) -> Iterator[str]:
    return (f"{label_of(value)}: {value['value']}" for value in values)


def race_screen(record: Verdict) -> list[str]:
    why = record.why or {"title": "", "text": "", "figures": []}
    lines = [record.sentence, *texts(record.notes), why["title"], why["text"], f"factor: {record.factor}"]
    lines += [*labelled(why["figures"]), *labelled(record.figures), *labelled(record.details)]
    for row in record.lanes["rows"]:
        if row[0] == "Speculative":
            lines += [f"row: {row[2]}", f"acceptance: {row[4]}", f"tokens per pass: {row[5]}"]
        elif row[0].startswith("Our loop"):
            lines.append(f"loop row: {row[2]}")
    return lines


def sweep_screen(trials: list, gamma: int | str, found) -> list[str]:
    lines = [found.headline, *texts(found.notes), f"factor: {found.factor}"]
    lines += labelled(why_figures(found.judgement)) if found.judgement.split else []
    for row in sweep_rows(summarise(trials), one_pass=False):
        named = dict(zip(COLUMNS, sweep_cells(row, mark=False), strict=True))
        if row.gamma == gamma:
            lines += [f"row: {named.pop('speed-up')}", *(f"{name}: {text}" for name, text in named.items())]
        elif row.gamma == 0:
            lines.append(f"loop row: {named['speed-up']}")
    for found_row in summary_rows(trials):
        named = dict(zip(benchmark.COLUMNS, summary_cells(found_row), strict=True))
        if (found_row["lane"], found_row["gamma"]) == ("speculative", gamma):
            lines += [f"row: {named['speed-up']}", f"acceptance: {named['acceptance']}"]
            lines.append(f"tokens per pass: {named['tokens per pass']}")
    return lines


def test_race_sweep_benchmark_and_command_line_agree() -> None:
    kinds, seen = set(), set[str]()
    for number, case in enumerate(GRID):
        gamma, runs = case[1], runs_of(case)
        configs = {BASELINE.key: BASELINE, LOOP.key: LOOP, "speculative": LaneConfig("speculative", gamma)}
        trials = [trial(at, configs[key], events) for at, run in enumerate(runs) for key, events in run.items()]
        asked = plan(tuple(configs[key] for key in runs[0]), len(runs))
        race, many = race_verdict(runs), overall(trials, asked)
        judged = many.judgement
        kinds.add((judged.kind, judged.reason))
        assert (race.kind, race.reason) == (judged.kind, judged.reason), case
        assert race.doubts == judged.doubts and race.factor == many.factor
        assert (judged.reason is not None) == (judged.kind in LOSING)
        require_theory_not_refuted(many)
        require_one_figure_a_name(race_screen(race), seen)
        require_one_figure_a_name(sweep_screen(trials, gamma, many), seen)
        if number % SIGHT == 0:
            require_printed(runs, trials, asked, race, many)
    unused = [pattern.pattern for patterns in NAMED.values() for pattern in patterns if pattern.pattern not in seen]
    assert not unused, f"no sentence has these any more: {unused}"
    signs = ("faster", "unclear", "slower")
    assert {kind for kind, _ in kinds} >= {kind for kind in Kind if kind.startswith(signs)}


def require_printed(runs: list[dict], trials: list, asked, race: Verdict, many) -> None:
    """The programs print the same sentences."""
    if len(runs) == 1 and LOOP.key not in runs[0]:  # it races the two, once
        said = printed(lambda console: _print(console, race, runs[0][BASELINE.key][0].pair))
        assert all(readable(sentence) in said for sentence in (race.sentence, *texts(race.notes)))
    about = {"pair": runs[0][BASELINE.key][0].pair, "machine": {}, "versions": {}, "at": 0.0}
    said = printed(lambda console: report(console, about, asked, trials, {"reason": "Not tried."}, []))
    assert all(readable(sentence) in said for sentence in (many.headline, *texts(many.notes)))
    rows = sweep_rows(summarise(trials), one_pass=False)
    table = sweep_table(rows, marked(rows, trials, asked))
    assert printed(lambda console: show_table(console, table)).count("fastest") == 1


def printed(show) -> str:
    out = io.StringIO()
    show(console_of(piped=10_000, file=out, highlight=False, soft_wrap=True))
    return out.getvalue()
