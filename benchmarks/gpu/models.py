"""The models of a campaign: the embedded pair, and tiny random ones of every family with a lean forward.

Beside these a hybrid and an EAGLE-3 head. The tiny models are those of the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.document import ROOT
from benchmarks.gpu.campaign import Setting

sys.path.insert(0, str(ROOT / "tests"))

from cuda_standins import forget_engines, stand_in_for_captures  # noqa: E402
from drafting import config_of, head_of  # noqa: E402
from fakes import byte_tokenizer, noisy_copy, prompt_of, tiny  # noqa: E402

import specdec  # noqa: E402
from specdec.forward import cuda_graph
from specdec.measure.prompts import EXAMPLES, read_prompts  # noqa: E402

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gpt2", "gpt_neox")
ENGINES = ("eager", "graph")


def with_engine(pair: specdec.Pair, engine: str) -> specdec.Pair:
    """The same pair with this engine."""
    return replace(pair, engine=engine, draft_tokenizer=None)


@dataclass(frozen=True)
class Tried:
    """A pair to try, and the ids of its prompt (n,) on its device."""

    name: str
    pair: specdec.Pair
    prompt: torch.Tensor

    def on(self, engine: str) -> specdec.Pair:
        """The pair with this engine."""
        return with_engine(self.pair, engine)


def stand_in(setting: Setting) -> None:
    """In a rehearsal, let a stand-in capture the graph engine's steps."""
    forget_engines(setattr)
    if setting.rehearsal:
        stand_in_for_captures(setattr)


def embedded(setting: Setting) -> Tried:
    """The embedded pair and the first example; in a rehearsal a tiny pair in its place."""
    if setting.rehearsal:
        target = tiny("llama", 1)
        pair = specdec.Pair(target, noisy_copy(target, 2), byte_tokenizer(), name="rehearsal")
    else:
        pair = specdec.load_pair(device=str(setting.device))
    return Tried("embedded", pair, pair.encode(read_prompts(EXAMPLES)[0].prompt)[0].to(setting.device))


def tried(setting: Setting) -> Iterator[Tried]:
    """Every pair whose text is compared. A rehearsal has one family."""
    yield embedded(setting)
    for family in FAMILIES[:1] if setting.rehearsal else FAMILIES:
        yield of_family(setting, family)
    yield Tried("hybrid (Qwen3.5)", *_parts(setting, "qwen3_5_text", 4))
    target = tiny("llama", layers=6).to(setting.device)
    pair = specdec.Pair(target, specdec.Eagle3(head_of(config_of()).to(setting.device)))
    yield Tried("EAGLE-3 head", pair, prompt_of(14).to(setting.device))


def of_family(setting: Setting, family: str) -> Tried:
    """A tiny pair of one family, whose draft is often wrong."""
    return Tried(family, *_parts(setting, family, 3))


def _parts(setting: Setting, family: str, layers: int) -> tuple[specdec.Pair, torch.Tensor]:
    target = tiny(family, 1, layers=layers)
    draft = noisy_copy(target, 2).to(setting.device)
    return specdec.Pair(target.to(setting.device), draft), prompt_of(14).to(setting.device)


def captured(pair: specdec.Pair) -> dict[str, Any]:
    """The engine that ran a pair, why it was not the graph engine, and which steps it has captured."""
    found: dict[str, Any] = dict(pair.describe()["engine"])
    for engine in cuda_graph._free.get(pair.target, ()):
        names = [name for _, name, *_ in engine._graphs]
        found["graphs"] = {name: names.count(name) for name in sorted(set(names))}
        found["failure"] = engine.failure
    return found
