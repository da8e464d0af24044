"""The verdict on a race: a sentence, its origin, up to four figures, the chart's labels, the details, and the race at
other draft lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import LOSSLESS, Event, Finished, Round, Started
from specdec.lanes.table import BASELINE, LOOP, row_of
from specdec.measure import metrics
from specdec.measure.gain import RunMetrics, median_run
from specdec.measure.lengths import at_all_lengths
from specdec.measure.metrics import Metrics
from specdec.measure.result import LaneEvents, common_prefix, started_of, written_ids
from specdec.measure.whatif import Costs
from specdec.report import numbers, sentences
from specdec.report.judge import Judgement, Kind, judge
from specdec.report.places import passes_table, places_table
from specdec.report.schema import LaneEnd
from specdec.report.tables import details, headline_figures, lane_rates, lane_rows, time_words
from specdec.report.why import of_race

SPECULATIVE = "speculative"  # the lane that is judged
REPETITIVE = 0.5


def lane_end(lane: str, events: Sequence[Event]) -> LaneEnd | None:
    """The label at the end of a lane's line, when it has a token."""
    figures = metrics.compute_metrics(events)
    if figures is None:
        return None
    name = row_of(lane).label
    duration = numbers.seconds(figures.decode_seconds)
    return {
        "event": "lane_end",
        "lane": lane,
        "name": name,
        "duration": duration,
        "spoken": f"{name} lane ended: {figures.new_tokens} tokens, {duration} from the first to the last.",
    }


LEAST = 8  # tokens that a stopped race must have written; the times of fewer are noise


def verdict_record(
    runs: Sequence[LaneEvents], stopped: str | None = None, text_of: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """Everything that is shown about a race, as one record.

    All figures, texts, times and the chart are those of one run: ``shown``, the one with the median speed-up.
    ``stopped`` is the beginning of the sentence on a stopped race. ``text_of`` gives a token's text.
    """
    notes = []
    if stopped and (complete := _complete(runs)):
        notes.append(f"{stopped} before all lanes ended. Only lanes that ended count.")
        runs, stopped = complete, None
    if stopped:
        written = len(written_ids(runs[0].get(SPECULATIVE, ())))
        if written < LEAST:
            return _incomplete(runs[0], stopped)
        asked = started_of(runs[0][SPECULATIVE]).params.max_new_tokens
        notes.append(f"{stopped} at {written} of {asked} tokens; only tokens that both lanes wrote are compared.")
        runs = [{**runs[0], BASELINE.key: _up_to(runs[0][BASELINE.key], written)}]
    measured = [
        {key: metrics.compute_metrics(events) for key, events in run.items() if _counts(key, events)} for run in runs
    ]
    sides = {at: both for at, lanes in enumerate(measured) if (both := _sides(lanes))}
    # Runs without a speed-up do not count, so that all figures are of the same runs. If no run has one, all count.
    sides = {at: both for at, both in sides.items() if both.gain} or sides
    compared = list(sides.values())
    if not compared:
        return _record(Judgement(Kind.NO_TOKEN), notes, bool(stopped))
    found = judge(compared, started_of(runs[0][SPECULATIVE]).gamma)
    middle = median_run(compared)
    shown = next(at for at, side in sides.items() if side is middle)
    plain, speculative = (list(runs[shown][lane]) for lane in (BASELINE.key, SPECULATIVE))
    base, lane = sides[shown].plain, sides[shown].lane
    notes += sentences.notes(found) + _text_notes(plain, speculative, bool(stopped), text_of or str)
    notes += _repetition(speculative, lane) + _lengths(speculative)
    record = _record(found, notes, bool(stopped)) | {"runs": found.runs or len(runs), "shown": shown}
    record["same"] = written_ids(plain) == written_ids(speculative)
    record["figures"] = headline_figures(found, sides[shown], plain, speculative)
    counted = list(sides)
    record["rates"] = lane_rates(measured[shown])
    record["lanes"] = lane_rows([runs[at] for at in counted], [measured[at] for at in counted], counted.index(shown))
    drafting = metrics.pool(side.lane for side in compared)
    record["places"], record["passes"] = places_table(drafting), passes_table(drafting)
    record["details"] = details(found, sides[shown], speculative)
    record["time"] = time_words(lane, len(runs))
    record["why"] = of_race(found)
    record |= _other_lengths(speculative, runs, sides[shown])
    if (acceptance := started_of(speculative).acceptance) not in LOSSLESS:
        record["warning"] = f"Not lossless: {acceptance} acceptance changes the output."
    if stopped:  # a stopped lane has no ``Finished``
        record["end"] = lane_end(SPECULATIVE, speculative)
    elif base.new_tokens == lane.new_tokens and found.gain:
        record["saved"] = numbers.saved(base.decode_seconds, lane.decode_seconds)
    record["chart"] = (
        f"Tokens written over seconds. Plain: {base.new_tokens} tokens in {numbers.seconds(base.decode_seconds)}. "
        f"Speculative: {lane.new_tokens} tokens in {numbers.seconds(lane.decode_seconds)}. {record['sentence']}"
    )
    return record


def _other_lengths(speculative: Sequence[Event], runs: Sequence[LaneEvents], shown: RunMetrics) -> dict[str, Any]:
    """The shown lane at other draft lengths, at the costs of all runs; or why that is not known.

    The gains are over the other lanes of the shown run, which are drawn beside it.
    """
    try:
        costs = Costs.of(*(run[key] for run in runs for key in (SPECULATIVE, LOOP.key) if key in run))
        plain, loop = shown.plain.seconds_per_token, shown.loop.seconds_per_token if shown.loop else None
        if plain is None:
            raise InvalidInput("Too few tokens to compute other draft lengths.")
        return {"whatif": asdict(at_all_lengths(speculative, costs, plain, loop))}
    except InvalidInput as error:
        return {"whatif_refused": str(error)}


def _record(found: Judgement, notes: Sequence[str], early: bool, **fields: str) -> dict[str, Any]:
    """The fields of every verdict: the kind, the sentence, its figure and shares, and every doubt about them.

    ``early``: the race was stopped. ``fields`` are the values in the sentence of this kind.
    """
    faster = found.kind.name.startswith("FASTER")
    return {
        "event": "verdict",
        "kind": found.kind.name.lower(),
        "reason": found.reason and found.reason.name.lower(),
        "doubts": [doubt.name.lower() for doubt in found.doubts],
        "sentence": sentences.headline(found, **fields),
        "factor": sentences.big(found),
        "faster": faster,
        "engine": found.engine,
        "speculation": found.speculation,
        "notes": list(notes),
        "stopped": early,
    }


def _incomplete(run: LaneEvents, stopped: str) -> dict[str, Any]:
    """The verdict on a race that was stopped before there was anything to compare."""
    key = SPECULATIVE if run.get(SPECULATIVE) else BASELINE.key
    events = run.get(key, ())
    started = next(event for lane in run.values() for event in lane if isinstance(event, Started))
    fields = {"stopped": stopped, "written": str(len(written_ids(events))), "asked": str(started.params.max_new_tokens)}
    found = Judgement(Kind.INCOMPLETE)
    return _record(found, sentences.notes(found), True, lane=row_of(key).label.lower(), **fields)


def _complete(runs: Sequence[LaneEvents]) -> list[LaneEvents]:
    """The runs of a stopped race that count: those in which all lanes ended, else those with both compared lanes."""
    compared = {BASELINE.key, SPECULATIVE}
    for needed in (compared.union(*runs), compared):
        if whole := [run for run in runs if all(_ended(run.get(lane, ())) for lane in needed)]:
            return [{lane: events for lane, events in run.items() if _ended(events)} for run in whole]
    return []


def _counts(key: str, events: Sequence[Event]) -> bool:
    """Whether a lane's figures count.

    Plain and speculative count even if stopped: they are compared up to one length.
    """
    return key in (BASELINE.key, SPECULATIVE) or _ended(events)


def _sides(lanes: Mapping[str, Metrics | None]) -> RunMetrics | None:
    """The figures of a run that are judged; None if plain or speculative has no token."""
    plain, lane = lanes.get(BASELINE.key), lanes.get(SPECULATIVE)
    return RunMetrics(plain, lane, lanes.get(LOOP.key)) if plain and lane else None


def _text_notes(
    plain: Sequence[Event], speculative: Sequence[Event], stopped: bool, text_of: Callable[[int], str]
) -> list[str]:
    if not started_of(speculative).params.greedy:
        if started_of(speculative).acceptance not in LOSSLESS:
            return ["With this acceptance, sampled text does not follow the target's distribution."]
        return ["Sampling: the two texts may differ; their distribution is the same."]
    ours, theirs = written_ids(speculative), written_ids(plain)
    same = common_prefix(ours, theirs)
    if ours == theirs:
        return [f"Identical text{' so far' if stopped else ''}: {same} of {len(theirs)} tokens."]
    tokens = [f"\u201c{text_of(ids[same])}\u201d" if same < len(ids) else "the end" for ids in (theirs, ours)]
    margin = _margin_at(speculative, same)
    raw = " (before the repetition penalty)" * (started_of(speculative).params.repetition_penalty != 1)
    return [
        f"First difference at token {same + 1}: plain {tokens[0]}, speculative {tokens[1]}"
        + ("." if margin is None else f"; logit margin {margin:.3g}{raw}.")
    ]


def _repetition(speculative: Sequence[Event], lane: Metrics) -> list[str]:
    share = metrics.repeated_ngrams(written_ids(speculative))
    if share < REPETITIVE or not lane.accepted:
        return []
    return [
        f"{numbers.percent(share)} of the text repeats earlier text, which is easy to guess. "
        "Other prompts may gain less."
    ]


def _lengths(speculative: Sequence[Event]) -> list[str]:
    """A sentence on the lengths that a policy chose."""
    gamma = started_of(speculative).gamma
    rounds = [event for event in speculative if isinstance(event, Round) and event.index]
    drafted = [len(event.draft) for event in rounds if event.draft is not None]
    if isinstance(gamma, int) or not drafted:
        return []
    idle = f"; {drafted.count(0)} of {len(drafted)} rounds had none" if 0 in drafted else ""
    return [f"Draft length \u03b3 {gamma}: {sum(drafted) / len(drafted):.1f} guesses per round on average{idle}."]


def _ended(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[-1], Finished)


def _up_to(events: Sequence[Event], tokens: int) -> list[Event]:
    """The plain lane's events up to ``tokens`` tokens. It writes one token per round."""
    kept: list[Event] = []
    written = 0
    for event in events:
        if isinstance(event, Finished) or (isinstance(event, Round) and written >= tokens):
            break
        written += len(event.committed_ids) if isinstance(event, Round) else 0
        kept.append(event)
    return kept


def _margin_at(events: Sequence[Event], place: int) -> float | None:
    """The gap of the raw logits where the token at ``place`` was chosen, if the target added it."""
    seen = 0
    for event in events:
        if isinstance(event, Round):
            seen += len(event.committed_ids)
            if seen > place:
                return event.target_margin if seen == place + 1 and event.token_id is not None else None
    return None
