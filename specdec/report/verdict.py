"""The verdict on a race: one sentence, its origin, four figures, the chart's labels, and what stands in Details."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from statistics import median
from typing import Any

from specdec.closed_forms import break_even_alpha
from specdec.events import Event, Finished, Round, Started
from specdec.lanes.table import LOOP, row_of
from specdec.measure import metrics
from specdec.measure.metrics import Metrics
from specdec.measure.result import Run, common_prefix, started_of, written_ids
from specdec.report import words
from specdec.report.tables import details, four_figures, lane_rows, time_words
from specdec.report.why import of_race

REPETITIVE = 0.5


def lane_end(lane: str, events: Sequence[Event]) -> dict[str, Any] | None:
    """The label at the end of a lane's line, once it has a token."""
    figures = metrics.measure(events)
    if figures is None:
        return None
    name = row_of(lane).label
    duration = words.seconds(figures.decode_seconds)
    return {
        "event": "lane_end",
        "lane": lane,
        "name": name,
        "duration": duration,
        "spoken": f"{name} lane ended: {figures.new_tokens} tokens, the last {duration} after the first.",
    }


def verdict(
    runs: Sequence[Run], stopped: str | None = None, text_of: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """Everything that is said about a race, as one record.

    ``shown`` is the run whose speed-up is the median; text, chart and figures are of that run. ``stopped`` begins the
    sentence of a race cut short, and ``text_of`` names a token.
    """
    notes = []
    complete = [run for run in runs if all(_ended(run.get(lane, ())) for lane in ("generate", "speculative"))]
    if stopped and complete:
        notes.append(f"{stopped} before all lanes had ended; what had ended counts.")
        runs = [{lane: events for lane, events in run.items() if _ended(events)} for run in complete]
        stopped = None
    plain, speculative = (list(runs[0].get(lane, ())) for lane in ("generate", "speculative"))
    started = next(event for event in chain(plain, speculative) if isinstance(event, Started))
    if stopped:
        written, asked = len(written_ids(speculative)), started.params.max_new_tokens
        if written < 2:
            lane = "speculative" if speculative else "plain"
            tokens = written if speculative else len(written_ids(plain))
            sentence = f"{stopped} at {tokens} of {asked} in the {lane} lane."
            return {"event": "verdict", "sentence": sentence, "notes": ["Nothing to compare yet."], "stopped": True}
        notes.append(f"{stopped} at {written} of {asked}; compared over the tokens both wrote.")
        runs = [{**runs[0], "generate": _up_to(plain, written)}]
    shown, gains = _median_run(runs)
    plain, speculative = (list(runs[shown][lane]) for lane in ("generate", "speculative"))
    base, lane = metrics.measure(plain), metrics.measure(speculative)
    if base is None or lane is None:
        return {"event": "verdict", "sentence": "No token was written.", "notes": notes, "stopped": bool(stopped)}
    headline = _headline(gains, base, lane, speculative)
    notes += _text_notes(plain, speculative, bool(stopped), text_of or str) + _repetition(speculative, lane)
    notes += _lengths(speculative)
    record = {"event": "verdict", "stopped": bool(stopped), "runs": len(runs), "shown": shown, **headline}
    record |= {"notes": notes, "same": written_ids(plain) == written_ids(speculative)}
    record["figures"] = four_figures(base, lane, plain, speculative)
    record["lanes"] = lane_rows(runs)
    record["details"] = details(base, lane, speculative)
    record["time"] = time_words(lane)
    loop = runs[shown].get(LOOP.key, ())
    record["why"] = of_race(base, lane, metrics.measure(loop) if _ended(loop) else None, started_of(speculative).gamma)
    if (acceptance := started_of(speculative).acceptance) != "lossless":
        record["warning"] = f"Not lossless: {acceptance} acceptance changes the output."
    if stopped:  # it has no end of its own
        record["end"] = lane_end("speculative", speculative)
    elif base.new_tokens == lane.new_tokens and gains:
        saved = base.decode_seconds - lane.decode_seconds
        record["saved"] = f"{words.seconds(abs(saved))} {'saved' if saved >= 0 else 'lost'}"
    record["chart"] = (
        f"Tokens written over seconds. Plain: {base.new_tokens} tokens in {words.seconds(base.decode_seconds)}. "
        f"Speculative: {lane.new_tokens} tokens in {words.seconds(lane.decode_seconds)}. {record['sentence']}"
    )
    return record


def _median_run(runs: Sequence[Run]) -> tuple[int, list[float]]:
    """The run to show, and the speed-ups of all that have one."""
    gains = {}
    for index, run in enumerate(runs):
        figures = [metrics.measure(run.get(lane, ())) for lane in ("generate", "speculative")]
        if None not in figures and (gain := metrics.speedup(*figures)):
            gains[index] = gain
    if not gains:
        return 0, []
    middle = median(gains.values())
    return min(gains, key=lambda index: abs(gains[index] - middle)), list(gains.values())


def _headline(gains: Sequence[float], base: Metrics, lane: Metrics, speculative: Sequence[Event]) -> dict[str, Any]:
    if not gains:
        return {"factor": None, "sentence": "Too few tokens to compare."}
    gain = median(gains)
    exact = {"factor": f"{gain:.2f}x"}
    if not lane.accepted and not lane.rejected:
        return exact | {"sentence": f"Nothing was guessed: {gain:.2f}x is the loop alone."}
    several = f"{min(gains):.2f}\u2013{max(gains):.2f}"
    if metrics.no_clear_difference(gains):
        where = "in one run" if len(gains) == 1 else f"median of {len(gains)}, spread {several}"
        if 1 < len(gains) < metrics.ENOUGH_RUNS and (min(gains) > 1 or max(gains) < 1):
            where += "; so few runs cannot tell so little"
        return exact | {"sentence": f"No clear difference: {gain:.2f}x, {where}."}
    of = f" (median of {len(gains)}, {words.factor(min(gains))}\u2013{words.factor(max(gains))})" * (len(gains) > 1)
    if gain > 1:
        return {
            "factor": f"{words.factor(gain)}x",
            "faster": True,
            "sentence": f"Speculative decoding is {words.factor(gain)} times as fast here{of}.",
        }
    return exact | {
        "sentence": f"Slower here: {gain:.2f}x{of}. {_why_slower(base, lane, started_of(speculative).gamma)}"
    }


def _why_slower(base: Metrics, lane: Metrics, gamma: int | str) -> str:
    guess, cost = metrics.guess_cost(base, lane), metrics.round_cost(base, lane)
    if guess is not None and guess >= 1:
        return f"A guess costs {guess:.2f} of a plain token; no \u03b3 can pay."
    if not isinstance(gamma, int) or lane.alpha is None or cost is None:
        return "Guessing and checking cost more time than the guesses saved."
    needed = break_even_alpha(gamma, cost)
    if needed is None:
        return f"A round costs {cost:.1f} plain tokens and writes {gamma + 1} at most."
    # The closed form counts on a full draft every round; prompt lookup often has none.
    if lane.drafted < 0.9 * gamma * lane.target_passes or lane.alpha >= needed:
        return f"A round costs {cost:.1f} plain tokens and wrote {lane.decode_tokens / lane.target_passes:.1f}."
    return f"{words.percent(lane.alpha)} of guesses kept; by its cost \u03b3 {gamma} needs {words.percent(needed)}."


def _text_notes(
    plain: Sequence[Event], speculative: Sequence[Event], stopped: bool, text_of: Callable[[int], str]
) -> list[str]:
    if not started_of(speculative).params.greedy:
        if started_of(speculative).acceptance != "lossless":
            return ["Sampling with this acceptance follows neither the target's text nor its distribution."]
        return ["Sampling: texts may differ, the distribution does not."]
    ours, theirs = written_ids(speculative), written_ids(plain)
    same = common_prefix(ours, theirs)
    if ours == theirs:
        return [f"Identical text{' so far' if stopped else ''}: {same} of {len(theirs)} tokens."]
    tokens = [f"\u201c{text_of(ids[same])}\u201d" if same < len(ids) else "the end" for ids in (theirs, ours)]
    margin = _margin_at(speculative, same)
    raw = " before the repetition penalty" * (started_of(speculative).params.repetition_penalty != 1)
    return [
        f"First difference at token {same + 1}: plain {tokens[0]}, speculative {tokens[1]}"
        + ("." if margin is None else f"; logit margin{raw} {margin:.3g}.")
    ]


def _repetition(speculative: Sequence[Event], lane: Metrics) -> list[str]:
    share = metrics.repeated_ngrams(written_ids(speculative))
    if share < REPETITIVE or not lane.accepted:
        return []
    return [f"{words.percent(share)} of the text repeats itself, which is easy to guess: other prompts gain less."]


def _lengths(speculative: Sequence[Event]) -> list[str]:
    """What a policy chose, as nobody else did."""
    gamma = started_of(speculative).gamma
    drafted = [len(event.draft) for event in speculative if isinstance(event, Round) and event.index]
    if isinstance(gamma, int) or not drafted:
        return []
    idle = f", none in {drafted.count(0)} of them" if 0 in drafted else ""
    return [f"Draft length \u03b3 {gamma}: {sum(drafted) / len(drafted):.1f} tokens a round on average{idle}."]


def _ended(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[-1], Finished)


def _up_to(events: Sequence[Event], tokens: int) -> list[Event]:
    """The plain lane's events up to ``tokens`` tokens; it writes one a round."""
    kept: list[Event] = []
    written = 0
    for event in events:
        if isinstance(event, Finished) or (isinstance(event, Round) and written >= tokens):
            break
        written += len(event.committed_ids) if isinstance(event, Round) else 0
        kept.append(event)
    return kept


def _margin_at(events: Sequence[Event], place: int) -> float | None:
    """The raw-logit gap where the token at ``place`` was decided, if the target itself added it."""
    seen = 0
    for event in events:
        if isinstance(event, Round):
            seen += len(event.committed_ids)
            if seen > place:
                return event.target_margin if seen == place + 1 and event.token_id is not None else None
    return None
