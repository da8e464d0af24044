"""The table of a measurement with a row for each prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from specdec.lanes.table import BASELINE
from specdec.measure.plan import Trial
from specdec.measure.summary import Summary, comparable, summarise, summary_figures
from specdec.report import numbers, sentences
from specdec.report.benchmark import short_name
from specdec.report.figure_table import FigureTable

MOST_ROWS = 100  # prompts; a set may have thousands
CAPTION = (
    "{rows}: its median run by the speed-up over {plain}, after the first token; lowest to highest of its runs in "
    "brackets"
)
ONE_LANE = ("plain tokens/s", "tokens/s", "speed-up", "acceptance", "tokens per pass", "same text")
MINOR = ("plain tokens/s", "tokens/s", "acceptance", "tokens per pass")


def prompts_table(trials: Sequence[Trial], servers: bool) -> FigureTable | None:
    """A row for each prompt: all figures of the only lane beside the plain one, or the speed-up of each of several.

    None for a single prompt, and before a prompt can be compared. ``servers``: servers ran them.
    """
    by_prompt: dict[str, list[Trial]] = defaultdict(list)
    for trial in comparable(trials):
        by_prompt[trial.prompt].append(trial)
    configs = list(dict.fromkeys(trial.lane_config for trial in trials if trial.lane_config != BASELINE))
    found = {name: summarise(of_prompt) for name, of_prompt in islice(by_prompt.items(), MOST_ROWS)}
    lanes = {name: {s.lane_config: s for s in each if s.gains} for name, each in found.items()}
    if len(lanes) < 2 or not configs or not any(lanes.values()):
        return None
    greedy = all(trial.greedy for trial in trials)
    one = len(configs) == 1
    columns = ONE_LANE if one else tuple(map(short_name, configs))
    cells = [
        [name, *(_cells(of_prompt.get(configs[0]), greedy) if one else _gains([of_prompt.get(c) for c in configs]))]
        for name, of_prompt in lanes.items()
    ]
    told = [at for at in range(len(columns)) if any(row[1 + at] for row in cells)]
    columns = ("Prompt", *(columns[at] for at in told))
    shown = len(lanes)
    rows = "A row for each prompt"
    if shown < len(by_prompt):
        rows = f"A row for each of the first {shown} prompts of {len(by_prompt):,}"
    return FigureTable(
        CAPTION.format(rows=rows, plain=sentences.plain(servers)), columns,
        [[row[0], *(row[1 + at] for at in told)] for row in cells], range(1, len(columns)), minor=MINOR,
    )  # fmt: skip


def _cells(lane: Summary | None, greedy: bool) -> list[str]:
    """The cells of a lane under ``ONE_LANE``; empty where a figure is not known."""
    if lane is None:
        return [""] * len(ONE_LANE)
    row = summary_figures(lane)
    plain, rate = row["plain_tokens_per_second"], row["tokens_per_second"]
    return [
        *("" if value is None else numbers.rate(value) for value in (plain, rate)),
        numbers.speedups(lane.gains, lane.gain),
        "" if row["acceptance"] is None else numbers.percent(row["acceptance"]),
        "" if row["tokens_per_target_pass"] is None else numbers.number(row["tokens_per_target_pass"]),
        f"{lane.same} of {lane.compared}" if greedy else "",
    ]


def _gains(lanes: Sequence[Summary | None]) -> list[str]:
    return ["" if lane is None else numbers.speedups(lane.gains, lane.gain) for lane in lanes]
