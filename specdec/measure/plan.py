"""The plan of a measurement of many calls, and a trial for each call. Needs no torch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdec.errors import BadSetting
from specdec.events import SamplingParams
from specdec.lanes.table import LaneConfig, require_runs, turned
from specdec.measure.metrics import Metrics
from specdec.measure.prompts import Choice, PromptItem

LEAST_TOKENS = 32  # with fewer, tokens/s after the first token say little


Key = tuple[int, str, str, int | str | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One call: its text and its figures. ``gamma`` is None where the lane has no draft length."""

    run: int
    prompt: str
    category: str
    lane: str
    gamma: int | str | None
    token_ids: tuple[int, ...]
    finish_reason: str | None
    greedy: bool
    metrics: Metrics

    @property
    def key(self) -> Key:
        return self.run, self.prompt, self.lane, self.gamma

    @property
    def lane_config(self) -> LaneConfig:
        return LaneConfig(self.lane, self.gamma)


@dataclass(frozen=True)
class Plan:
    """What to measure. All configs of a run share its seed. ``chosen`` says how the prompts were chosen."""

    prompts: tuple[PromptItem, ...]
    configs: tuple[LaneConfig, ...]
    params: SamplingParams
    runs: int = 3
    chosen: Choice = Choice()

    def __post_init__(self) -> None:
        require_runs(self.runs)
        if self.params.max_new_tokens < LEAST_TOKENS:
            raise BadSetting(
                f"max_new_tokens is {self.params.max_new_tokens}, too few to measure; give {LEAST_TOKENS} or more."
            )
        if self.params.seed is None:
            object.__setattr__(self, "params", replace(self.params, seed=secrets.randbits(32)))

    def steps(self) -> Iterator[tuple[int, PromptItem, LaneConfig]]:
        """Every call in order. The first config rotates from run to run and from prompt to prompt."""
        for run in range(self.runs):
            for place, item in enumerate(self.prompts):
                for config in turned(self.configs, run + place):
                    yield run, item, config

    def __len__(self) -> int:
        return self.runs * len(self.prompts) * len(self.configs)

    @property
    def tokens(self) -> int:
        """The new tokens of all calls, at most."""
        return len(self) * self.params.max_new_tokens
