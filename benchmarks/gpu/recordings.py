"""Records races that the page can open with."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.gpu import models, table
from benchmarks.gpu.campaign import Found, Setting
from benchmarks.gpu.models import stand_in
from specdec.events import Event, SamplingParams
from specdec.lanes.race import race
from specdec.lanes.table import DEFAULT_KEYS, race_configs
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.pair import Pair
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder, begin_line, event_lines, shown_alone, verdict_line


def embedded(setting: Setting) -> Iterator[Found]:
    """The race that the page runs at start-up."""
    stand_in(setting)
    tried = models.embedded(setting)
    params = SamplingParams(max_new_tokens=16 if setting.rehearsal else 64)
    yield _recorded(setting, "race-embedded.jsonl", tried.on("graph"), tried.prompt, 5, params)


def shape(setting: Setting) -> Iterator[Found]:
    """A race of the first shape, whose text means nothing; its pair's line says synthetic."""
    pair, items, params = table.built(setting, table.NAMES[0])
    yield _recorded(setting, "race-shape.jsonl", pair, items[0].message(None), table.GAMMA, params)


def _recorded(
    setting: Setting, name: str, pair: Pair, prompt: torch.Tensor, gamma: int, params: SamplingParams
) -> Found:
    keys, recorder = list(race_configs(DEFAULT_KEYS, gamma)), Recorder(pair.tokenizer)
    settings = {"prompt": read_prompts(EXAMPLES)[0].prompt, "chat": 0, "gamma": gamma, "tokens": params.max_new_tokens}
    times = 1 if setting.rehearsal else 3
    lines, runs = [begin_line(0, "recording", pair.facts(), settings, keys, times)], list[dict[str, list[Event]]]()
    for batch in race(pair, prompt, gamma=gamma, params=params, runs=times):
        lines += event_lines(batch, runs, keys, recorder)
    verdict = race_verdict(runs, None, recorder.text_of)
    (setting.out / name).write_text(shown_alone("".join([*lines, verdict_line(verdict)])), encoding="utf-8")
    return {
        "file": name,
        "sentence": verdict.sentence,
        "notes": [note.text for note in verdict.notes],
        "line": f"{name}: {verdict.sentence}",
    }
