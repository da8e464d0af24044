"""The words on a race at other draft lengths, which are computed from it and not measured."""

from __future__ import annotations

from dataclasses import asdict

from specdec.measure.lengths import GammaPrediction, GammaPredictions
from specdec.report import numbers, sentences
from specdec.report.definitions import make_figure
from specdec.report.judge import Doubt, Judgement
from specdec.report.verdict import Figure, GammaRecord, Note, WhatIf


def computed_lengths(predicted: GammaPredictions, found: Judgement, measured: int | str) -> WhatIf:
    """The lane at all draft lengths, with the texts that are shown for each.

    ``found`` is the judgement on the race, and ``measured`` the draft length that ran.
    """
    runs = sentences.COMPUTED_RUNS.format(runs=found.runs) if found.runs > 1 else sentences.COMPUTED_RUN
    best = predicted.lengths[predicted.best]
    notes = [Note("fastest", sentences.COMPUTED_FASTEST.format(gamma=best.gamma, times=numbers.factor(best.gain)))]
    notes += [Note(Doubt.STALL, sentences.COMPUTED_STALL)] * (Doubt.STALL in found.doubts)
    notes.append(Note("measured", sentences.COMPUTED_MEASURED.format(policy=sentences.policy(measured))))
    notes += [Note("assumed", predicted.assumed)] if predicted.assumed else []
    return {
        "hits": predicted.hits,
        "wrong": predicted.wrong,
        "costs": predicted.costs,
        "lengths": [_length(length) for length in predicted.lengths],
        "best": predicted.best,
        "exact": predicted.exact,
        "origin": sentences.COMPUTED_FROM.format(runs=runs),
        "notes": notes,
    }


def _length(length: GammaPrediction) -> GammaRecord:
    times = numbers.factor(length.gain)
    figures: list[Figure] = [
        make_figure(numbers.times_or_none(length.gain / length.share if length.share else None), "engine"),
        make_figure(numbers.times_or_none(length.share), "measured"),
        make_figure(numbers.number(length.tokens_per_pass, 2), "tokens per pass"),
        {"value": numbers.number(length.ms_per_token), "label": "ms per token"},
    ]
    return GammaRecord(
        **asdict(length),
        sentence=sentences.COMPUTED.format(gamma=length.gamma, times=times),
        factor=f"{times}x",
        figures=figures,
        notes=[] if length.exact else [Note("estimated", sentences.COMPUTED_ESTIMATED)],
    )
