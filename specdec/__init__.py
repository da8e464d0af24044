"""Speculative decoding you can watch, measure and trust."""

from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.engine.decode import speculative
from specdec.engine.policy import AutoGamma, ConfidenceStop
from specdec.errors import IncompatiblePair, InvalidInput, LoadFailed, SpecdecError
from specdec.events import Decision, DraftToken, Event, Finished, Round, SamplingParams, Started
from specdec.lanes.transformers_lanes import assisted, driven, generate
from specdec.measure.result import Result, collect
from specdec.models.loading import load_pair
from specdec.models.pair import Pair

__all__ = [
    "AutoGamma",
    "ConfidenceStop",
    "Decision",
    "DraftToken",
    "EarlyExit",
    "Event",
    "Finished",
    "IncompatiblePair",
    "InvalidInput",
    "LoadFailed",
    "Pair",
    "PromptLookup",
    "Result",
    "Round",
    "SamplingParams",
    "SpecdecError",
    "Started",
    "assisted",
    "collect",
    "driven",
    "generate",
    "load_pair",
    "speculative",
]
