"""Computes the gain of a speculative lane in one run, and the terms that make the gain (Leviathan et al. 2211.17192).

All seconds are means over the tokens after the first. Our own loop without a draft separates the engine's share from
speculation's, and measures a target pass over one token. Where it did not run, costs are counted in tokens of plain
``generate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from specdec.measure.metrics import Metrics, guess_cost, round_cost, speedup

Steps = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """The figures of one run: of plain ``generate``, of a lane, and of our loop without a draft if it ran."""

    plain: Metrics
    lane: Metrics
    loop: Metrics | None = None

    @property
    def gain(self) -> float | None:
        """Seconds per token of plain ``generate`` / those of the lane."""
        return speedup(self.plain, self.lane)

    @property
    def engine(self) -> float | None:
        """Seconds per token of plain ``generate`` / those of our loop: the part of the gain without speculation."""
        return speedup(self.plain, self.loop) if self.loop else None

    @property
    def speculation(self) -> float | None:
        """Seconds per token of our loop / those of the lane."""
        return speedup(self.loop, self.lane) if self.loop else None

    @property
    def single_pass(self) -> float | None:
        """Seconds of a target pass over one token."""
        loop = self.loop
        return loop.verify_seconds / loop.target_passes if loop and loop.verify_seconds and loop.target_passes else None

    @property
    def cost_coefficient(self) -> float | None:
        """c: the time of a guess in target passes over one token; without our loop, in tokens of plain ``generate``."""
        if not self.loop:
            return guess_cost(self.plain, self.lane)
        if not self.single_pass or not self.lane.drafted or self.lane.draft_seconds is None:
            return None
        return self.lane.draft_seconds / self.lane.drafted / self.single_pass

    @property
    def verify_growth(self) -> float | None:
        """Seconds of a target pass over a round's tokens / seconds of one over a single token (v)."""
        if not self.single_pass or self.lane.verify_seconds is None or not self.lane.target_passes:
            return None
        return self.lane.verify_seconds / self.lane.target_passes / self.single_pass

    @property
    def guesses(self) -> float | None:
        """Guesses per round."""
        return self.lane.drafted / self.lane.target_passes if self.lane.drafted and self.lane.target_passes else None

    @property
    def round_cost(self) -> float | None:
        """Seconds of a round / seconds per token of plain ``generate``."""
        return round_cost(self.plain, self.lane)

    @property
    def tokens_of_all(self) -> float | None:
        """Tokens per target pass, including rounds cut by EOS or length."""
        return self.lane.decode_tokens / self.lane.target_passes if self.lane.target_passes else None

    @property
    def overhead(self) -> float | None:
        """The share of the lane's time that is neither drafting nor checking."""
        lane = self.lane
        if lane.draft_seconds is None or lane.verify_seconds is None or not lane.decode_seconds:
            return None
        return 1 - (lane.draft_seconds + lane.verify_seconds) / lane.decode_seconds


def middle(runs: Iterable[Sides], figure: Callable[[Sides], float | None]) -> float | None:
    """The median of a figure over the runs that have it."""
    found = [value for run in runs if (value := figure(run)) is not None]
    return median(found) if found else None


def steps(runs: Sequence[Sides], gain: float, engine: float) -> Steps:
    """Seconds per token from plain ``generate`` to the lane, in named steps that add up exactly.

    Every step is a median over the runs. The last step takes the remainder. Empty if something was not measured.
    """
    plain = middle(runs, lambda run: run.plain.seconds_per_token)
    single = middle(runs, lambda run: run.single_pass)
    passes = middle(runs, lambda run: _a_token(run.lane, run.lane.target_passes))
    draft = middle(runs, lambda run: _a_token(run.lane, run.lane.draft_seconds))
    verify = middle(runs, lambda run: _a_token(run.lane, run.lane.verify_seconds))
    if plain is None or single is None or passes is None or draft is None or verify is None:
        return ()
    copying = middle(runs, lambda run: _a_token(run.lane, run.lane.state_seconds)) or 0.0
    reread = middle(runs, lambda run: _a_token(run.lane, run.lane.reread_seconds)) or 0.0
    loop = plain / engine
    found = [
        ("Plain generate", plain),
        ("Our loop", loop - plain),
        ("Fewer target passes", loop * passes - loop),
        ("Drafting", draft),
        ("Checking more tokens per pass", verify - reread - single * passes),
        *([("Rolling back recurrent state", copying + reread)] if copying else []),
    ]
    return (*found, ("Other overhead", plain / gain - sum(seconds for _, seconds in found)))


def _a_token(lane: Metrics, total: float | None) -> float | None:
    return None if total is None or not lane.decode_tokens else total / lane.decode_tokens
