"""A race in figures: four to show first, a row a lane, and the rest. Values are as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.events import Event
from specdec.lanes.table import LANES
from specdec.measure import metrics
from specdec.measure.metrics import Metrics
from specdec.measure.result import Run, common_prefix, first_difference, started_of, written_ids
from specdec.report import words


def _figure(value: str, label: str, definition: str) -> dict[str, str]:
    return {"value": value, "label": label, "definition": words.DEFINITIONS[definition]}


def four_figures(
    base: Metrics, lane: Metrics, plain: Sequence[Event], speculative: Sequence[Event]
) -> list[dict[str, str]]:
    """Four figures, each a value, what it is, and its definition."""
    rates = f"{words.rate(base.tokens_per_second)} \u2192 {words.rate(lane.tokens_per_second)}"
    figures = [
        _figure(rates, "tokens/s, plain \u2192 speculative", "tokens/s"),
        _figure(words.percent(lane.alpha), "acceptance: guesses kept, of those tested", "acceptance"),
        _figure(words.number(lane.mean_acceptance_length), "tokens a target pass", "tokens a pass"),
    ]
    ours, theirs = written_ids(speculative), written_ids(plain)
    if started_of(speculative).params.greedy:
        same = f"{common_prefix(ours, theirs)} of {max(len(ours), len(theirs))}"
        figures.append(_figure(same, "tokens the same, counted from the start", "same"))
    else:
        counts = f"{len(theirs)} / {len(ours)}"
        figures.append(_figure(counts, "tokens written, plain / speculative", "written"))
    return figures


def lane_rows(runs: Sequence[Run]) -> dict[str, Any]:
    """A row a lane: medians over the runs, with the lowest and the highest."""
    rows = []
    for row in LANES:
        lane = row.key
        measured = [(metrics.measure(run["generate"]), metrics.measure(run[lane])) for run in runs if lane in run]
        measured = [(base, figures) for base, figures in measured if base and figures]
        if not measured:
            continue
        gains = [gain for pair in measured if (gain := metrics.speedup(*pair))]
        rates = [m.tokens_per_second for _, m in measured if m.tokens_per_second]
        alphas = [m.alpha for _, m in measured if m.alpha is not None]
        lengths = [m.mean_acceptance_length for _, m in measured if m.mean_acceptance_length is not None]
        same = all(first_difference(run["generate"], run[lane]) is None for run in runs if lane in run)
        greedy = started_of(runs[0][lane]).params.greedy
        rows.append(
            [
                row.label,
                words.spread(rates, words.rate),
                "1" if lane == "generate" else words.spread(gains, "{:.2f}x".format),
                words.spread([m.prefill_seconds for _, m in measured], "{:.3f}\u00a0s".format),
                words.spread(alphas, words.percent),
                words.spread(lengths, words.number),
                ("yes" if same else "no") if greedy else "\u2013",
            ]
        )
    columns = ["Lane", "tokens/s", "speed-up", "first token", "acceptance", "tokens a pass", "same text as plain"]
    return {"columns": [{"name": name, "definition": words.DEFINITIONS.get(name)} for name in columns], "rows": rows}


def details(base: Metrics, lane: Metrics, speculative: Sequence[Event]) -> list[dict[str, str]]:
    """What else was measured, and with what."""
    started, gain = started_of(speculative), metrics.speedup(base, lane)
    total = metrics.speedup_total(base, lane)
    found = [
        _figure("\u2013" if total is None else f"{total:.2f}x", "Speed-up, the prompt counted in", "with the prompt"),
        _figure(words.percent(gain and metrics.latency_reduction(gain)), "Time saved after the first token", "saved"),
        _figure(words.percent(lane.draft_acceptance_rate), "Kept, of all guesses", "drafted and kept"),
        _figure(words.number(metrics.guess_cost(base, lane), 2), "Cost of a guess, in plain tokens", "draft cost"),
        _figure(words.number(metrics.round_cost(base, lane), 2), "Cost of a round, in plain tokens", "round cost"),
        _figure(words.percent(lane.overhead_share), "Outside the models' passes", "outside"),
    ]
    facts = {
        "Seed": "none: greedy draws nothing" if started.params.greedy else str(started.params.seed),
        "Pair": words.pair_line(started.pair),
        "Machine": ", ".join(f"{name} {value}" for name, value in started.machine.items()),
        "Versions": ", ".join(f"{name} {value}" for name, value in started.versions.items()),
        "The model's own generation settings, set aside": ", ".join(
            f"{name} {value}" for name, value in started.neutralised.items()
        )
        or "none",
    }
    return found + [{"value": value, "label": label} for label, value in facts.items()]


def time_words(lane: Metrics) -> str | None:
    """What the lane's time after its first token went into."""
    if lane.draft_seconds is None or lane.verify_seconds is None or not lane.decode_seconds:
        return None
    draft, verify = (part / lane.decode_seconds for part in (lane.draft_seconds, lane.verify_seconds))
    return (
        f"Of {words.seconds(lane.decode_seconds)} after the first token, drafting took {words.percent(draft)}, "
        f"checking {words.percent(verify)} and the rest {words.percent(max(0.0, 1 - draft - verify))}."
    )
