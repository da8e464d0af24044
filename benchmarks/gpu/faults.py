"""What goes wrong on a device: too little memory, NaN, another pair, many calls. The next call must be right."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from unittest import mock

import torch

import specdec
from benchmarks.gpu import models
from benchmarks.gpu.campaign import Found, Setting
from benchmarks.gpu.models import ENGINES, captured, prompt_of, stand_in
from specdec.forward import cuda_graph
from specdec.forward.lean import LeanModel
from specdec.models.loading import plan_pair
from specdec.models.pair_slot import Slot
from specdec.models.settings import LoadOptions

MB = 2**20
PARAMS = specdec.SamplingParams(max_new_tokens=24, ignore_eos=True)


def _written(pair: specdec.Pair, prompt: torch.Tensor, gamma: int | str = 4) -> list[int]:
    """The text of a call through the decoding thread, as on the page."""
    events = specdec.driven(specdec.speculative(pair, prompt, gamma=gamma, params=PARAMS))
    return specdec.collect(chain.from_iterable(events)).token_ids


def _faulty(
    setting: Setting, expected: type[Exception], prompt: torch.Tensor, plant: Callable[[ExitStack, specdec.Pair], None]
) -> Iterator[Found]:
    """For each engine a call that must raise ``expected``, and the text before and after it."""
    rows = []
    for engine in ENGINES:
        pair = models.embedded(setting).on(engine)
        usual = prompt_of(14).to(setting.device)
        before, raised = _written(pair, usual), None
        with ExitStack() as undone:
            plant(undone, pair)
            try:
                _written(pair, prompt.to(setting.device))
            except Exception as error:  # any other error is a finding
                raised = error
        row: Found = {"engine": engine, "raised": f"{type(raised).__name__}: {raised}"}
        row |= {"right": isinstance(raised, expected), "same_text_after": _written(pair, usual) == before}
        rows.append(row | {"engine_after": captured(pair)})
        wrong = [row["engine"] for row in rows if not (row["right"] and row["same_text_after"])]
        line = (
            f"{expected.__name__} raised and the next text right with {len(rows) - len(wrong)} of {len(rows)} engines"
        )
        yield {"rows": rows, "wrong": wrong, "line": line}


def out_of_memory(setting: Setting) -> Iterator[Found]:
    """A prompt for which a pass has too little memory; in a rehearsal the pass says so itself."""

    def plant(undone: ExitStack, pair: specdec.Pair) -> None:
        if setting.rehearsal:
            full = mock.patch.object(LeanModel, "forward", side_effect=torch.OutOfMemoryError("out of memory"))
            undone.enter_context(full)
            return
        cuda_graph._free.clear()
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 4 * MB) / total)
        undone.callback(torch.cuda.set_per_process_memory_fraction, 1.0)
        filled: list[torch.Tensor] = []
        undone.callback(filled.clear)
        with contextlib.suppress(torch.OutOfMemoryError):  # what torch has reserved has free places too
            while len(filled) < 1000:
                filled.append(torch.empty(2 * MB, dtype=torch.uint8, device=setting.device))

    yield from _faulty(setting, specdec.OutOfMemory, prompt_of(20 if setting.rehearsal else 900), plant)


def not_numbers(setting: Setting) -> Iterator[Found]:
    """A weight of the target that is NaN for one call."""

    def plant(undone: ExitStack, pair: specdec.Pair) -> None:
        weight = pair.target.model.norm.weight
        value = weight.data[0].clone()
        undone.callback(weight.data[0:1].copy_, value)
        weight.data[0] = float("nan")

    yield from _faulty(setting, specdec.NotNumbers, prompt_of(14), plant)


def pair_changed(setting: Setting) -> Iterator[Found]:
    """Another pair takes the place of the loaded one, again and again, as on the page."""
    stand_in(setting)
    target = _saved(setting) if setting.rehearsal else None
    drafts = (target, specdec.PromptLookup(), *(() if setting.rehearsal else ("eagle3:embedded",)))
    options = LoadOptions(device=str(setting.device), engine="graph")
    plans = [plan_pair(target, draft, options) for draft in drafts]
    slot, prompt = Slot(plans[0]), prompt_of(14)
    reference = _written(slot.pair, prompt, 0)
    texts, memory = [], []
    for plan in [*plans[1:], plans[0]] * (1 if setting.rehearsal else 3):
        slot.change(plan)
        texts.append(_written(slot.pair, prompt, 2 if setting.rehearsal else 4) == reference)
        if plan is plans[0]:
            gc.collect()
            memory.append(setting.memory())
    grown = memory[-1] - memory[0]
    line = f"{sum(texts)} of {len(texts)} texts right after a change of the pair; memory grew by {grown / MB:.1f} MB"
    yield {"same_text": texts, "memory_bytes": memory, "wrong": not all(texts) or grown > MB, "line": line}


def _saved(setting: Setting) -> Path:
    """The folder of a tiny model, which drafts for itself."""
    folder, tried = setting.out / "tiny", models.embedded(setting)
    for part in (tried.pair.target, tried.pair.tokenizer):
        part.save_pretrained(folder)
    return folder


def many_calls(setting: Setting) -> Iterator[Found]:
    """Calls of all kinds one after another, some left early; memory must not grow after the first quarter."""
    stand_in(setting)
    pair = models.embedded(setting).on("graph")
    calls, memory, usual = 4 if setting.rehearsal else 200, [], prompt_of(14)
    before = _written(pair, usual)
    for number in range(calls):
        params = specdec.SamplingParams(
            max_new_tokens=8 + number % 9, temperature=float(number % 3 > 0), top_p=0.9, seed=number, ignore_eos=True
        )
        prompt = prompt_of(5 + number % 23, seed=number)
        events = specdec.speculative(pair, prompt, gamma=number % 6, params=params)
        for event in events:
            if number % 5 == 0 and isinstance(event, specdec.Round) and event.index == 2:
                events.close()
                break
        memory.append(setting.memory())
        if number % 50 == 49:
            yield {"memory_bytes": memory[::10], "line": f"{number + 1} calls so far"}
    grown = memory[-1] - memory[len(memory) // 4]
    same = _written(pair, usual) == before
    line = f"{calls} calls: memory grew by {grown / MB:.2f} MB after the first quarter; the next text is "
    line += "right" if same else "WRONG"
    yield {
        "memory_bytes": memory[::10],
        "grown_bytes": grown,
        "same_text": same,
        "engine": captured(pair),
        "line": line,
    }
