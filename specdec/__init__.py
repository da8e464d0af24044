"""Speculative decoding you can watch, measure and trust."""

from specdec.decode import speculative
from specdec.early_exit import EarlyExit
from specdec.errors import IncompatiblePair, InvalidInput, LoadFailed, SpecdecError
from specdec.events import Decision, DraftToken, Event, Finished, Round, SamplingParams, Started
from specdec.lanes import assisted, driven, generate
from specdec.loading import load_pair
from specdec.lookup import PromptLookup
from specdec.models import Pair
from specdec.policy import AutoGamma, ConfidenceStop
from specdec.result import Result, collect

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
