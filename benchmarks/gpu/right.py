"""Whether decoding on this device is right: texts, distributions, the test of losslessness, logits, reads."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from benchmarks.gpu import models
from benchmarks.gpu.campaign import Found, Setting
from benchmarks.gpu.models import ENGINES, Tried, captured, noisy_copy, prompt_of, stand_in, tiny, with_engine

from comparison import TIE, first_difference, top_two_gap  # isort: skip  models.py has made the tests importable
from cuda_standins import on_meta, reads_on_meta  # isort: skip
from enumeration import OfModel  # isort: skip
from fakes import generated  # isort: skip

import specdec
from specdec.forward import cuda_graph
from specdec.forward.lean import LeanModel
from specdec.forward.lean_check import lean_model, share_apart
from specdec.forward.runner import Runner
from specdec.measure import losslessness as tested
from specdec.measure.enumeration import distance, distribution
from specdec.measure.losslessness import TOKENS, LosslessnessResult, self_test

GAMMAS = (0, 1, 4, 8, "auto")
SECONDS = 30.0  # of the draws for the test of losslessness
BEYOND = 2.0  # times the distance of ``forward``
CLOSE = 1e-5  # of the chance of a text, whose passes round differently on two devices
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"gamma": 4},
    "sampling": {"gamma": 4, "params": {"temperature": 1.0, "seed": 5}},
    "top-p and a penalty": {
        "gamma": 3, "params": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 6}
    },
    "no draft": {"gamma": 0},
    "block verification": {"gamma": 4, "acceptance": "block", "params": {"temperature": 1.0, "seed": 9}},
    "early exit": {"gamma": 3, "draft": specdec.EarlyExit(1)},
    "prompt lookup": {"gamma": 4, "draft": specdec.PromptLookup()},
}  # fmt: skip


def texts(setting: Setting) -> Iterator[Found]:
    """Greedy texts in float32, without TF32, beside those of ``generate`` on the same device."""
    stand_in(setting)
    torch.set_float32_matmul_precision("highest")
    rows: list[Found] = []
    engines: dict[str, Found] = {}
    for pair in models.tried(setting):
        tokens = 8 if setting.rehearsal else 64
        if isinstance(lean_model(pair.pair.target), str):
            tokens = min(tokens, 24)  # transformers' own forward of a hybrid is slow
        reference = generated(pair.pair.target, pair.prompt, tokens)
        for engine in ENGINES:
            one = pair.on(engine)
            for gamma in (4,) if setting.rehearsal else GAMMAS:
                params = specdec.SamplingParams(max_new_tokens=tokens, ignore_eos=True)
                ids = specdec.collect(specdec.speculative(one, pair.prompt, gamma=gamma, params=params)).token_ids
                rows.append({"model": pair.name, "engine": engine, "gamma": gamma, "tokens": tokens})
                rows[-1] |= _difference(pair, tuple(ids), reference)
        engines[pair.name] = captured(pair.on("graph"))
        wrong = [row for row in rows if not (row["same"] or row["tie"])]
        ties = sum(row["tie"] for row in rows)
        without = [name for name, engine in engines.items() if engine["name"] != "graph" or engine.get("failure")]
        line = f"{sum(row['same'] for row in rows)} of {len(rows)} texts are those of generate, {ties} near-ties, "
        line += f"{len(wrong)} WRONG; eager only: {', '.join(without) or 'none'}"
        yield {"rows": rows, "engines": engines, "wrong": wrong, "line": line}


def _difference(pair: Tried, ours: tuple[int, ...], reference: tuple[int, ...]) -> Found:
    """Where two texts differ, and whether rounding decides there."""
    at = first_difference(ours, reference)
    if at is None:
        return {"same": True, "tie": False}
    before = torch.cat([pair.prompt, torch.tensor(reference[:at], device=pair.prompt.device, dtype=torch.long)])
    gap = top_two_gap(pair.pair.target, before, 1.0)
    return {"same": False, "tie": gap < TIE, "at": at, "gap": gap}


def distributions(setting: Setting) -> Iterator[Found]:
    """Every path of a short sampled text with its chance, against what the target writes alone on a CPU.

    The outcomes are chosen on the host, so no step can be captured here. For captured steps, the same seeds must give
    the texts of the eager engine; and ``losslessness`` tests them.
    """
    models.forget_engines(setattr)
    target = tiny("llama", 3, vocab_size=4)
    length = 2 if setting.rehearsal else 3
    params = specdec.SamplingParams(max_new_tokens=length, temperature=1.3, ignore_eos=True)
    prompt = prompt_of(3, vocab_size=4)
    exact = OfModel(target, prompt.tolist(), params).completed({(): 1.0})
    draft = noisy_copy(target, 4, 0.3)
    pair = specdec.Pair(copy.deepcopy(target).to(setting.device), draft.to(setting.device), engine="eager")
    found: Found = {"exact": [], "seeds": []}
    capture = cuda_graph.capture_for
    cuda_graph.capture_for = lambda device: None
    for engine in ENGINES[: 1 if setting.rehearsal else 2]:
        for acceptance in ("lossless", "block")[: 1 if setting.rehearsal else 2]:
            one = with_engine(pair, engine)

            def text(one: specdec.Pair = one, acceptance: str = acceptance) -> tuple[int, ...]:
                events = specdec.speculative(one, prompt, gamma=2, params=params, acceptance=acceptance)
                return tuple(specdec.collect(events).token_ids)

            ours, paths = distribution(text)
            row = {"engine": engine, "acceptance": acceptance, "paths": paths, "distance": distance(ours, exact)}
            found["exact"].append(row | {"right": row["distance"] < CLOSE})
            yield found
    cuda_graph.capture_for = capture
    stand_in(setting)
    larger = models.of_family(setting, "llama")
    for acceptance in ("lossless", "block"):
        same, seeds = 0, range(1 if setting.rehearsal else 40)
        for seed in seeds:
            written = [_sampled(larger.on(engine), larger.prompt, seed, acceptance) for engine in ENGINES]
            same += written[0] == written[1]
        found["seeds"].append({"acceptance": acceptance, "same": same, "of": len(seeds)})
    furthest = max(row["distance"] for row in found["exact"])
    equal = ", ".join(f"{row['same']} of {row['of']} {row['acceptance']}" for row in found["seeds"])
    found["line"] = (
        f"chances within {furthest:.0e} of the exact ones ({'right' if furthest < CLOSE else 'WRONG'}); captured and "
        f"eager sampling of one seed: {equal} texts equal"
    )
    yield found


def _sampled(pair: specdec.Pair, prompt: torch.Tensor, seed: int, acceptance: str) -> list[int]:
    params = specdec.SamplingParams(max_new_tokens=24, temperature=1.0, seed=seed, ignore_eos=True)
    return specdec.collect(specdec.speculative(pair, prompt, gamma=4, params=params, acceptance=acceptance)).token_ids


def losslessness(setting: Setting) -> Iterator[Found]:
    """The page's test of losslessness with captured passes of the embedded pair."""
    stand_in(setting)
    pair = models.embedded(setting).on("eager" if setting.rehearsal else "graph")
    draws, seconds, tokens = (50, 1.0, 3) if setting.rehearsal else (300, SECONDS, TOKENS)
    if setting.rehearsal:
        tested.compare_samples = partial(tested.compare_samples, shuffles=100)
    for step in self_test(pair, draws=draws, seconds=seconds, tokens=tokens):
        if isinstance(step, LosslessnessResult):
            p, caught = step.lossless.p_value, step.lossy.p_value
            line = f"{step.verdict}: p {p:.2g} after {step.draws} draws; top-k acceptance p {caught:.1g}"
            yield {"findings": step.record(), "engine": captured(pair), "line": line}


def logits(setting: Setting) -> Iterator[Found]:
    """How far bfloat16 logits are from those of the same weights in float32: by ``forward``, and by our two engines.

    All distances are shares of the range of the logits.
    """
    stand_in(setting)
    rows = []
    for pair in models.tried(setting):
        if isinstance(lean_model(pair.pair.target), str):
            continue
        target = copy.deepcopy(pair.pair.target).to(torch.bfloat16)
        rows.append({"model": pair.name} | _apart(setting, target, pair.prompt))
        beyond = [row["model"] for row in rows if not max(row["eager"], row["graph"]) <= BEYOND * row["own"]]
        most, own = (max(max(row[name] for name in names) for row in rows) for names in (("eager", "graph"), ("own",)))
        line = f"bfloat16 at most {most:.1e} of their range from float32, forward itself {own:.1e}; "
        line += f"beyond {BEYOND:g} times forward: {', '.join(beyond) or 'none'}"
        yield {"rows": rows, "beyond": beyond, "line": line}


@torch.inference_mode()
def _apart(setting: Setting, target: Any, prompt: torch.Tensor) -> Found:
    """How far the logits of six rows after a prompt are from float32 ones: ``forward`` by 1 to 6 rows, and ours."""
    count = 6
    before, fed = prompt[:-count], prompt[-count:]
    exact = _forward(copy.deepcopy(target).float(), before, fed, count)
    found: Found = {"own": max(float(share_apart(_forward(target, before, fed, rows), exact)) for rows in (1, 2, 3, 6))}
    stack = lean_model(target)
    if not isinstance(stack, LeanModel):
        return found | {"eager": float("inf"), "graph": float("inf"), "reason": stack}
    runner = Runner(target)
    runner.forward(before, keep=1, committed=True)
    found["eager"] = float(share_apart(runner.forward(fed), exact))
    with torch.inference_mode(False):
        engine = cuda_graph.GraphEngine(target, 256)
        passes = engine.passes(target)
    engine.checked_step(passes, before, 0)()
    for _ in range(3):  # plain, captured, replayed
        ours = engine.run("pass", count, engine.checked_step(passes, fed, len(before)))
    return found | {"graph": float(share_apart(ours, exact))}


def _forward(target: Any, before: torch.Tensor, fed: torch.Tensor, rows: int) -> torch.Tensor:
    """The logits of ``fed`` by transformers' ``forward``, ``rows`` of them in a pass."""
    cache, start, found = DynamicCache(config=target.config), 0, []
    for part in (before, *fed.split(rows)):
        positions = torch.arange(start, start + len(part), device=part.device)[None]
        found.append(
            target(input_ids=part[None], position_ids=positions, past_key_values=cache, use_cache=True).logits[0]
        )
        start += len(part)
    return torch.cat(found[1:])


def reads(setting: Setting) -> Iterator[Found]:
    """How often the host waits for the device in a round, by torch's debug mode for synchronisation."""
    models.forget_engines(setattr)  # the device "meta" of a rehearsal captures nothing
    device = setting.device
    count: Any = reads_on_meta(setattr) if setting.rehearsal else _Waits()
    target, draft = (tiny("llama", seed, layers=1 if setting.rehearsal else 3) for seed in (1, 0))
    target, draft = (on_meta(m) if setting.rehearsal else m.to(device) for m in (target, draft))
    rows = []
    for engine in ENGINES:
        for name, mode in list(MODES.items())[: 1 if setting.rehearsal else None]:
            pair = specdec.Pair(target, mode.get("draft") or draft, engine=engine)
            pair.describe()  # compares passes, which waits often
            tokens = 5 if setting.rehearsal else 32
            params = specdec.SamplingParams(max_new_tokens=tokens, ignore_eos=True, **mode.get("params", {}))
            settings = {"gamma": mode["gamma"], "acceptance": mode.get("acceptance", "lossless")}
            rows.append({"engine": engine, "mode": name, "reads": _per_round(count, pair, params, settings)})
        odd = [f"{row['engine']} {row['mode']} {row['reads']}" for row in rows if row["reads"] != [1]]
        line = "one read a round in every mode" if not odd else f"NOT one read a round: {'; '.join(odd)}"
        yield {"rows": rows, "odd": odd, "line": line}


def _per_round(count: Any, pair: specdec.Pair, params: specdec.SamplingParams, settings: Found) -> list[int]:
    """The numbers of reads in the rounds of a second call, whose steps are captured already."""
    prompt = torch.zeros(6, dtype=torch.long)
    reads: list[int] = []
    for _ in range(2):
        counts = []
        with count:
            for event in specdec.speculative(pair, prompt, params=params, **settings):
                if isinstance(event, specdec.Round):
                    counts.append(count.count)
        reads = [after - before for before, after in zip(counts, counts[1:], strict=False)]
    return sorted(set(reads))


class _Waits:
    """Counts the operators that wait for a GPU. Has the interface of ``cuda_standins.Reads``."""

    def __init__(self) -> None:
        self._waits: list[Any] = []
        self._recording: AbstractContextManager[Any] = nullcontext()

    @property
    def count(self) -> int:
        return sum("synchroniz" in str(wait.message) for wait in self._waits)

    def __enter__(self) -> None:
        self._recording = warnings.catch_warnings(record=True)
        self._waits = self._recording.__enter__()
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")

    def __exit__(self, *error: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")
        self._recording.__exit__(*error)
