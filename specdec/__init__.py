"""Speculative decoding you can watch, measure and trust.

Names load on first use: ``import specdec`` itself needs no torch, so that a recording can be read and reported where
torch is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.drafters.combined import Combined
    from specdec.drafters.dflash import DFlash
    from specdec.drafters.dspark import DSpark
    from specdec.drafters.eagle3 import Eagle3
    from specdec.drafters.early_exit import EarlyExit
    from specdec.drafters.gemma4_assistant import Gemma4Assistant
    from specdec.drafters.mtp import Mtp
    from specdec.drafters.prompt_lookup import PromptLookup
    from specdec.drafters.recycling import Recycling
    from specdec.drafters.suffix import Suffix
    from specdec.engine.decode import speculative
    from specdec.engine.policy import AutoGamma, ConfidenceStop
    from specdec.errors import (
        DeviceLost,
        GrammarStuck,
        IncompatiblePair,
        InvalidInput,
        LibraryChanged,
        LoadFailed,
        NotNumbers,
        OutOfMemory,
        SpecdecError,
    )
    from specdec.events import Decision, DraftToken, Event, Finished, Grammar, Round, SamplingParams, Started
    from specdec.facts import DraftFacts, EngineFacts, MachineFacts, ModelFacts, PairFacts
    from specdec.lanes.decoding_thread import driven
    from specdec.lanes.hf_generate import assisted, generate
    from specdec.lanes.race import race
    from specdec.measure.metrics import Metrics
    from specdec.measure.result import Result, collect
    from specdec.models.loading import load_pair
    from specdec.models.pair import Pair
    from specdec.report.race_verdict import verdict
    from specdec.report.verdict import Note, Verdict

_MODULES = {
    "drafters.combined": ("Combined",),
    "drafters.dflash": ("DFlash",),
    "drafters.dspark": ("DSpark",),
    "drafters.eagle3": ("Eagle3",),
    "drafters.early_exit": ("EarlyExit",),
    "drafters.gemma4_assistant": ("Gemma4Assistant",),
    "drafters.mtp": ("Mtp",),
    "drafters.prompt_lookup": ("PromptLookup",),
    "drafters.recycling": ("Recycling",),
    "drafters.suffix": ("Suffix",),
    "engine.decode": ("speculative",),
    "engine.policy": ("AutoGamma", "ConfidenceStop"),
    "errors": (
        "DeviceLost",
        "GrammarStuck",
        "IncompatiblePair",
        "InvalidInput",
        "LibraryChanged",
        "LoadFailed",
        "NotNumbers",
        "OutOfMemory",
        "SpecdecError",
    ),
    "events": ("Decision", "DraftToken", "Event", "Finished", "Grammar", "Round", "SamplingParams", "Started"),
    "facts": ("DraftFacts", "EngineFacts", "MachineFacts", "ModelFacts", "PairFacts"),
    "lanes.decoding_thread": ("driven",),
    "lanes.hf_generate": ("assisted", "generate"),
    "lanes.race": ("race",),
    "measure.metrics": ("Metrics",),
    "measure.result": ("Result", "collect"),
    "models.loading": ("load_pair",),
    "models.pair": ("Pair",),
    "report.race_verdict": ("verdict",),
    "report.verdict": ("Note", "Verdict"),
}
_HOME = {name: f"specdec.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "AutoGamma",
    "Combined",
    "ConfidenceStop",
    "DFlash",
    "DSpark",
    "Decision",
    "DeviceLost",
    "DraftFacts",
    "DraftToken",
    "Eagle3",
    "EarlyExit",
    "EngineFacts",
    "Event",
    "Finished",
    "Gemma4Assistant",
    "Grammar",
    "GrammarStuck",
    "IncompatiblePair",
    "InvalidInput",
    "LibraryChanged",
    "LoadFailed",
    "MachineFacts",
    "Metrics",
    "ModelFacts",
    "Mtp",
    "NotNumbers",
    "Note",
    "OutOfMemory",
    "Pair",
    "PairFacts",
    "PromptLookup",
    "Recycling",
    "Result",
    "Round",
    "SamplingParams",
    "SpecdecError",
    "Started",
    "Suffix",
    "Verdict",
    "assisted",
    "collect",
    "driven",
    "generate",
    "load_pair",
    "race",
    "speculative",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'specdec' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
