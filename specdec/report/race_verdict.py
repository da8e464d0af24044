"""The verdict on a race: a sentence, its origin, up to four figures, the chart's labels, the details, and the race at
other draft lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import FORCED, LOSSLESS, Event, Finished, Round, Started
from specdec.facts import on_servers, takes_one_pass
from specdec.lanes.table import BASELINE, LOOP, LaneConfig, row_of
from specdec.measure import metrics
from specdec.measure.costs import Costs, row_costs
from specdec.measure.gain import RunMetrics, median_run
from specdec.measure.lengths import GammaPrediction, GammaPredictions, at_all_lengths
from specdec.measure.metrics import Metrics
from specdec.measure.result import (
    LaneEvents,
    common_prefix,
    flat,
    in_letters,
    in_runs,
    require_tokenizer,
    started_of,
    written_ids,
)
from specdec.report import numbers, provenance, sentences
from specdec.report.definitions import make_figure
from specdec.report.doctor import diagnose
from specdec.report.judge import Doubt, Judgement, Kind, judge
from specdec.report.recording import Recorder
from specdec.report.sentences import listed
from specdec.report.tables import (
    checks_table,
    details,
    headline_figures,
    lane_end,
    lane_rates,
    lane_rows,
    passes_table,
    places_table,
    time_words,
)
from specdec.report.verdict import Figure, GammaRecord, Note, Verdict, WhatIf
from specdec.report.why import of_race

SPECULATIVE = "speculative"  # the lane that is judged
REPETITIVE = 0.5


LETTERS = 20  # of each text that are shown from where they differ
LEAST = 8  # tokens that a stopped race must have written; the times of fewer are noise


def verdict(race: Iterable[Event | list[Event]], tokenizer: Any = None) -> Verdict:
    """Run a race to its end and judge it. ``print`` shows the verdict's sentence and notes.

    ``race`` yields events, or batches of them as ``specdec.race`` does: those of plain ``generate``, of the speculative
    lane and of any others, one lane after another, once or several times. Kept events and events read from a recording
    work too. The ``tokenizer`` names the tokens at which two texts differ; without one their ids do. Raises
    ``InvalidInput`` if plain ``generate`` or the speculative lane is missing, or if the lanes differ in prompt,
    settings, target or machine.
    """
    require_tokenizer(tokenizer)
    events = flat(race)
    starts = [event for event in events if isinstance(event, Started)]
    own = {LaneConfig(start.lane, start.gamma).key for start in starts}
    keys = own if SPECULATIVE in own else {start.lane for start in starts}  # at gamma 0 both name our loop
    if missing := [key for key in (BASELINE.key, SPECULATIVE) if key not in keys]:
        given = f"the events are of {listed(sorted(keys))}" if keys else "there are no events of a whole lane"
        raise InvalidInput(f"The verdict needs the lane {missing[0]}; {given}.")
    prompts = {ids for start in starts if (ids := _told_prompt(start))}
    if len(prompts) > 1 or len(set(map(_asked, starts))) > 1 or len(set(map(_rule, starts))) > len(own):
        raise InvalidInput(
            "The lanes differ in prompt, settings, target or machine, or one of them in draft length or acceptance; "
            "give the events of one race."
        )
    runs = in_runs(events, keys)
    stopped = None if all(_ended(lane) for run in runs for lane in run.values()) else "Stopped"
    return race_verdict(runs, stopped, None if tokenizer is None else Recorder(tokenizer).text_of)


def _asked(start: Started) -> tuple[Any, ...]:
    """What all lanes of a race have in common. Plain values are compared by their text, because dicts have no hash."""
    params = replace(start.params, seed=None)
    # Each server has a name of its own for the model; where two differ, a note says so.
    target = None if on_servers(start.pair) else start.pair.get("target")
    return params, repr(target), repr(start.machine)


def _told_prompt(start: Started) -> tuple[int, ...]:
    """The ids of the prompt; empty for a server that does not tell them, whose prompt has an id made up here."""
    return () if on_servers(start.pair) and not start.pair["server"]["ids"] else tuple(start.prompt_ids)


def _rule(start: Started) -> tuple[Any, ...]:
    """What all runs of one lane have in common."""
    return start.lane, start.gamma, start.acceptance, start.accept_top_k


def race_verdict(
    runs: Sequence[LaneEvents], stopped: str | None = None, text_of: Callable[[int], str] | None = None
) -> Verdict:
    """Everything that is said about a race.

    ``runs`` holds the events of each lane by its key, for each run. All figures, texts, times and the chart are of one
    run: ``shown``, the one with the median speed-up. ``stopped`` is the beginning of the sentence on a stopped race.
    ``text_of`` gives a token's text.
    """
    notes: list[Note] = []
    if stopped and (complete := _complete(runs)):
        notes.append(Note("stopped", sentences.STOPPED_ENDED.format(stopped=stopped)))
        runs, stopped = complete, None
    if stopped:
        written = len(written_ids(runs[0].get(SPECULATIVE, ())))
        if written < LEAST or not _ended(runs[0].get(BASELINE.key, ())):
            return _incomplete(runs[0], stopped)
        asked = started_of(runs[0][SPECULATIVE]).params.max_new_tokens
        text = sentences.STOPPED_COMPARED.format(stopped=stopped, written=written, asked=asked)
        notes.append(Note("stopped", text))
        runs = [{**runs[0], BASELINE.key: _up_to(runs[0][BASELINE.key], written)}]
    measured = [
        {key: metrics.compute_metrics(events) for key, events in run.items() if _counts(key, events)} for run in runs
    ]
    sides = {at: both for at, lanes in enumerate(measured) if (both := _sides(lanes))}
    # Runs without a speed-up do not count, so that all figures are of the same runs. If no run has one, all count.
    sides = {at: both for at, both in sides.items() if both.gain} or sides
    compared = list(sides.values())
    if not compared:
        return _verdict(Judgement(Kind.NO_TOKEN), notes, bool(stopped))
    start = started_of(runs[0][SPECULATIVE])
    found = judge(compared, start.gamma, one_pass=takes_one_pass(start.pair))
    found = replace(found, on_servers=on_servers(start.pair))
    middle = median_run(compared)
    shown = next(at for at, side in sides.items() if side is middle)
    plain, speculative = (list(runs[shown][lane]) for lane in (BASELINE.key, SPECULATIVE))
    base, lane = sides[shown].plain, sides[shown].lane
    notes += _timing_only(start)
    notes += [*sentences.notes(found), _text_note(plain, speculative, bool(stopped), text_of or str)]
    notes += (
        _grammar(speculative, lane)
        + _repetition(speculative, lane)
        + _lengths(speculative)
        + _engines(plain, speculative)
    )
    started = started_of(speculative)
    counted, drafting = list(sides), metrics.pool(side.lane for side in compared)
    causes = diagnose(found, sides[shown], drafting, obeys=started.params.grammar is not None)
    verdict = replace(
        _verdict(found, notes, bool(stopped)),
        caption=provenance.run_settings(started),
        runs=found.runs or len(runs),
        shown=shown,
        same=_same(plain, speculative, text_of or str),
        figures=headline_figures(found, sides[shown], plain, speculative),
        rates=lane_rates(measured[shown]),
        lanes=lane_rows(
            [runs[at] for at in counted],
            [measured[at] for at in counted],
            counted.index(shown),
            lambda one, other: _same(one, other, text_of or str),
        ),
        places=places_table(drafting, len(compared)),
        passes=passes_table(drafting, len(compared)),
        checks=checks_table(row_costs(*(run[key] for run in runs for key in (SPECULATIVE, LOOP.key) if key in run))),
        details=details(found, sides[shown], plain, speculative),
        time=sentences.NO_PASSES_ON_SERVERS if found.on_servers else time_words(lane, shown, len(runs)),
        why=of_race(found, [cause.text for cause in causes]),
        warning=None if started.claims_lossless else sentences.LOSSY.format(acceptance=started.acceptance),
        end=lane_end(SPECULATIVE, speculative) if stopped else None,  # a stopped lane has no ``Finished``
        saved=_saved(base, lane) if found.gain and not stopped else None,
        **_other_lengths(found, speculative, runs, sides[shown]),
    )
    chart = sentences.CHART.format(
        plain=base.new_tokens,
        plain_time=numbers.seconds(base.decode_seconds),
        speculative=lane.new_tokens,
        speculative_time=numbers.seconds(lane.decode_seconds),
        sentence=verdict.sentence,
    )
    return replace(verdict, chart=chart)


def _saved(base: Metrics, lane: Metrics) -> str | None:
    """The seconds between both ends; None if the lanes wrote different numbers of tokens."""
    return numbers.saved(base.decode_seconds, lane.decode_seconds) if base.new_tokens == lane.new_tokens else None


def _other_lengths(
    found: Judgement, speculative: Sequence[Event], runs: Sequence[LaneEvents], shown: RunMetrics
) -> dict[str, Any]:
    """The shown lane at other draft lengths, at the costs of all runs; or why that is not known.

    The gains are over the other lanes of the shown run, which are drawn beside it.
    """
    if found.on_servers:
        return {"whatif_refused": sentences.NO_LENGTHS_ON_SERVERS}
    try:
        costs = Costs.of(*(run[key] for run in runs for key in (SPECULATIVE, LOOP.key) if key in run))
        plain, loop = shown.plain.seconds_per_token, shown.loop.seconds_per_token if shown.loop else None
        if plain is None:
            raise InvalidInput("Too few tokens to compute other draft lengths.")
        predicted = at_all_lengths(speculative, costs, plain, loop)
        return {"whatif": computed_lengths(predicted, found, started_of(speculative).gamma)}
    except InvalidInput as error:
        return {"whatif_refused": str(error)}


def _verdict(found: Judgement, notes: Sequence[Note], early: bool, **fields: str) -> Verdict:
    """The fields of every verdict: the kind, the sentence, its figure and shares, and every doubt about them.

    ``early``: the race was stopped. ``fields`` are the values in the sentence of this kind.
    """
    return Verdict(
        kind=found.kind,
        reason=found.reason,
        doubts=found.doubts,
        sentence=sentences.headline(found, **fields),
        factor=sentences.big(found),
        about=found.is_about,
        faster=found.kind.startswith("faster"),
        gain=found.gain,
        engine=found.engine,
        speculation=found.speculation,
        notes=tuple(notes),
        stopped=early,
    )


def _incomplete(run: LaneEvents, stopped: str) -> Verdict:
    """The verdict on a race that was stopped before there was anything to compare."""
    key = SPECULATIVE if run.get(SPECULATIVE) and _ended(run.get(BASELINE.key, ())) else BASELINE.key
    events = run.get(key, ())
    started = next(event for lane in run.values() for event in lane if isinstance(event, Started))
    fields = {"stopped": stopped, "written": str(len(written_ids(events))), "asked": str(started.params.max_new_tokens)}
    found = Judgement(Kind.INCOMPLETE)
    return _verdict(found, sentences.notes(found), True, lane=row_of(key).label.lower(), **fields)


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


def _text_note(
    plain: Sequence[Event], speculative: Sequence[Event], stopped: bool, text_of: Callable[[int], str]
) -> Note:
    """How the two texts compare, or must compare if they are sampled."""
    started = started_of(speculative)
    if not started.params.greedy:
        if not started.claims_lossless:
            return Note("texts", sentences.TEXTS_LOSSY)
        return Note("texts", sentences.TEXTS_SAMPLED if started.acceptance in LOSSLESS else sentences.TEXTS_CLAIMED)
    if in_letters(plain, speculative):
        return _letters_note(*(_text(lane, text_of) for lane in (plain, speculative)))
    ours, theirs = written_ids(speculative), written_ids(plain)
    same = common_prefix(ours, theirs)
    if ours == theirs:
        text = sentences.TEXTS_SAME_SO_FAR if stopped else sentences.TEXTS_SAME
        return Note("texts", text.format(same=same, tokens=len(theirs)))
    tokens = [
        sentences.TOKEN.format(text_of(ids[same])) if same < len(ids) else sentences.END for ids in (theirs, ours)
    ]
    difference = sentences.TEXTS_DIFFER.format(at=same + 1, plain=tokens[0], speculative=tokens[1])
    if (margin := _margin_at(speculative, same)) is not None:
        difference += sentences.MARGIN[started.params.repetition_penalty != 1].format(margin=margin)
    return Note("texts", f"{difference}.")


def _engines(plain: Sequence[Event], speculative: Sequence[Event]) -> list[Note]:
    """A note where two servers name different models, and where they run different engines or versions of one."""
    told = [each for lane in (plain, speculative) if (each := started_of(lane).pair.get("server"))]
    models = [each["model"] for each in told]
    names = [" ".join(filter(None, [each["engine"], each["version"]])) for each in told]
    pairs = ((sentences.TWO_MODELS, models), (sentences.TWO_ENGINES, names))
    return [
        Note("engines", sentence.format(plain=each[0], speculative=each[1]))
        for sentence, each in pairs
        if len(set(each)) > 1
    ]


def _text(lane: Sequence[Event], text_of: Callable[[int], str]) -> str:
    return "".join(map(text_of, written_ids(lane)))


def _same(plain: Sequence[Event], speculative: Sequence[Event], text_of: Callable[[int], str]) -> bool:
    """Whether both lanes wrote the same."""
    if in_letters(plain, speculative):
        return _text(plain, text_of) == _text(speculative, text_of)
    return written_ids(plain) == written_ids(speculative)


def _letters_note(plain: str, speculative: str) -> Note:
    if plain == speculative:
        return Note("texts", sentences.TEXTS_SAME_LETTERS)
    at = common_prefix(plain, speculative)
    ends = [text[at : at + LETTERS] or sentences.END for text in (plain, speculative)]
    return Note("texts", sentences.TEXTS_DIFFER_LETTERS.format(at=at + 1, plain=ends[0], speculative=ends[1]))


def _timing_only(start: Started) -> list[Note]:
    """What a pair of random weights shows, and what it does not."""
    draft = start.pair["draft"]
    agreement = draft.get("agreement") if draft else None
    if agreement is None:
        return []
    return [Note("synthetic", sentences.TIMING_ONLY.format(agreement=numbers.percent(agreement)))]


def _repetition(speculative: Sequence[Event], lane: Metrics) -> list[Note]:
    share = metrics.repeated_ngrams(written_ids(speculative))
    if share < REPETITIVE or not lane.accepted:
        return []
    return [Note("repetition", sentences.REPEATS_ITSELF.format(share=numbers.percent(share)))]


def _grammar(speculative: Sequence[Event], lane: Metrics) -> list[Note]:
    """Sentences on what the grammar forced, and on a text that ended before the grammar did."""
    if started_of(speculative).params.grammar is None:
        return []
    forced = [event for event in speculative if isinstance(event, Round) and event.drafted_by == FORCED]
    kept = sum(token.status == "accepted" for event in forced for token in event.draft or ())
    found = []
    if kept:
        accepted, tested = lane.accepted or 0, (lane.accepted or 0) + (lane.rejected or 0) - kept
        others = sentences.FORCED_OTHERS.format(share=numbers.percent((accepted - kept) / tested)) if tested else ""
        found.append(Note("grammar", sentences.FORCED.format(kept=kept, accepted=accepted) + others))
    if isinstance(end := speculative[-1], Finished) and end.finish_reason != "eos":
        found.append(Note("grammar", sentences.CUT_OFF))
    return found


def _lengths(speculative: Sequence[Event]) -> list[Note]:
    """A sentence on the lengths that a policy chose."""
    gamma = started_of(speculative).gamma
    rounds = [event for event in speculative if isinstance(event, Round) and event.index]
    drafted = [len(event.draft) for event in rounds if event.draft is not None]
    if isinstance(gamma, int) or not drafted:
        return []
    text = sentences.CHOSEN_LENGTHS_WITH_NONE if 0 in drafted else sentences.CHOSEN_LENGTHS
    mean = sum(drafted) / len(drafted)
    return [Note("lengths", text.format(gamma=gamma, mean=mean, none=drafted.count(0), rounds=len(drafted)))]


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


def computed_lengths(predicted: GammaPredictions, found: Judgement, measured: int | str) -> WhatIf:
    """The lane at all draft lengths, with the texts that are shown for each.

    ``found`` is the judgement on the race, and ``measured`` the draft length that ran.
    """
    runs = sentences.COMPUTED_RUNS.format(runs=found.runs) if found.runs > 1 else sentences.COMPUTED_RUN
    best = predicted.lengths[predicted.best]
    about = sentences.about(found)
    fastest = sentences.COMPUTED_FASTEST.format(gamma=best.gamma, about=about, times=numbers.factor(best.gain))
    notes = [Note("fastest", fastest)]
    notes += [Note(Doubt.STALL, sentences.COMPUTED_STALL)] * (Doubt.STALL in found.doubts)
    notes.append(Note("measured", sentences.COMPUTED_MEASURED.format(policy=sentences.policy(measured))))
    notes += [Note("assumed", predicted.assumed)] if predicted.assumed else []
    return {
        "hits": predicted.hits,
        "wrong": predicted.wrong,
        "costs": predicted.costs,
        "lengths": [_length(length, about) for length in predicted.lengths],
        "best": predicted.best,
        "exact": predicted.exact,
        "origin": sentences.COMPUTED_FROM.format(runs=runs),
        "notes": notes,
    }


def _length(length: GammaPrediction, about: str) -> GammaRecord:
    times = numbers.factor(length.gain)
    figures: list[Figure] = [
        make_figure(numbers.times_or_none(length.gain / length.share if length.share else None), "engine"),
        make_figure(numbers.times_or_none(length.share), "measured"),
        make_figure(numbers.number(length.tokens_per_pass, 2), "tokens per pass"),
        {"value": numbers.number(length.ms_per_token), "label": "ms per token"},
    ]
    return GammaRecord(
        **asdict(length),
        sentence=sentences.COMPUTED.format(gamma=length.gamma, about=about, times=times),
        factor=f"{times}x",
        faster=length.gain > 1 and not metrics.no_clear_difference([length.gain]),
        figures=figures,
        notes=[] if length.exact else [Note("estimated", sentences.COMPUTED_ESTIMATED)],
    )
