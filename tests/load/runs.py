"""Runs with a known result: a visitor's call of /decode, and the text of the same run in this process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import specdec
from specdec.report import recording
from tests.load.web import Heard, Web

SUBJECTS = ("fox", "girl", "stack", "train", "baker", "river", "robot", "queen", "cat", "lamp")


@dataclass(frozen=True)
class Wanted:
    """One call of /decode."""

    prompt: str
    tokens: int = 8
    temperature: float = 0.0
    seed: int | None = None

    @property
    def inputs(self) -> list[Any]:
        given = [self.prompt, 5, self.tokens, self.temperature, 0, 1.0, 0.0, 1.0, self.seed, True, "speculative"]
        return [*given, False, [], ""]


def distinct(number: int, tokens: int = 8) -> Wanted:
    """A call whose prompt belongs to this number alone. Every third one samples."""
    prompt = f"Once upon a time there was a {SUBJECTS[number % len(SUBJECTS)]} number {number}."
    return Wanted(prompt, tokens, 0.8, number) if number % 3 == 0 else Wanted(prompt, tokens)


class Alone:
    """The same pair in this process, without other visitors."""

    def __init__(self, *arguments: str):
        self.pair = specdec.load_pair(*arguments[1::2])
        self.found = functools.cache(self._found)

    def _found(self, wanted: Wanted) -> tuple[list[int], tuple[int, ...]]:
        params = specdec.SamplingParams(wanted.tokens, wanted.temperature, seed=wanted.seed, ignore_eos=True)
        events = list(specdec.speculative(self.pair, wanted.prompt, gamma=5, params=params))
        return ids_of(events)

    def is_right(self, wanted: Wanted, text: str) -> bool:
        """Whether a recording has this prompt's ids and the tokens that a lone run wrote."""
        return ids_of(list(recording.read_recording(text.splitlines()))) == self.found(wanted)


def ids_of(events: list[Any]) -> tuple[list[int], tuple[int, ...]]:
    prompt = list(events[0].prompt_ids) if events else []
    ended = bool(events) and isinstance(events[-1], specdec.Finished)
    return prompt, specdec.collect(events).token_ids if ended else ()


def text_of(heard: Heard) -> str:
    """The whole recording that a call of /decode returned. The last output is left out, as the end repeats it."""
    return "".join(output[0] for output in heard.outputs[:-1])


async def decoded(web: Web, wanted: Wanted, forwarded: str | None = None, seconds: float = 300) -> Heard:
    return await web.call(web.functions.named("decode"), wanted.inputs, forwarded=forwarded, seconds=seconds)
