"""Speculative decoding you can watch, measure and trust."""

from specdec.decode import speculative
from specdec.errors import IncompatiblePair, InvalidInput, LoadFailed, SpecdecError
from specdec.events import Decision, DraftToken, Event, Finished, Round, SamplingParams, Started
from specdec.lanes import assisted, driven, generate
from specdec.models import Pair, load_pair
from specdec.result import Result, collect

__all__ = [
    "Decision",
    "DraftToken",
    "Event",
    "Finished",
    "IncompatiblePair",
    "InvalidInput",
    "LoadFailed",
    "Pair",
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
