"""Computes the gain of a speculative lane in one run, and the terms that make the gain (Leviathan et al. 2211.17192).

All seconds are means over the tokens after the first. Our own loop without a draft separates the engine's share from
speculation's, and measures a target pass over one token. Where it did not run, costs are counted in tokens of plain
``generate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.measure.metrics import Metrics, round_cost, speedup

Steps = tuple[tuple[str, float], ...]

LEAST_SHARE = 0.75  # of a lane's time that its thread had a processor; below this, other programs took much of it
MOST_UNEVEN = 1.2  # the highest of the lanes' shares / the lowest; above this, the lanes ran on unequal machines


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The figures of one run: of plain ``generate``, of a lane, and of our loop without a draft if it ran.

    ``one_pass``: a draft of the lane takes one pass, whatever its length.
    """

    plain: Metrics
    lane: Metrics
    loop: Metrics | None = None
    one_pass: bool = False

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
    def cpu_shares(self) -> tuple[float, ...]:
        """For each lane that reports it, the share of its time in which its thread had a processor."""
        sides = filter(None, (self.plain, self.loop, self.lane))
        return tuple(share for side in sides if (share := side.cpu_share) is not None)

    @property
    def busy(self) -> bool:
        """Whether other programs took so much processor time that the lanes cannot be compared."""
        shares = self.cpu_shares
        return bool(shares) and (min(shares) < LEAST_SHARE or max(shares) > MOST_UNEVEN * min(shares))

    @property
    def single_pass(self) -> float | None:
        """Seconds of a target pass over one token."""
        loop = self.loop
        return loop.verify_seconds / loop.target_passes if loop and loop.verify_seconds and loop.target_passes else None

    @property
    def _draft_passes(self) -> int | None:
        """Draft passes of the whole lane, as the closed form counts them: one for each guess, or one for each draft."""
        if not self.one_pass or not self.lane.drafted:
            return self.lane.drafted
        return self.lane.target_passes if self.lane.drafts is None else self.lane.drafts

    @property
    def _draft_pass(self) -> float | None:
        """Seconds of a draft pass."""
        passes, seconds = self._draft_passes, self.lane.draft_seconds
        return seconds / passes if passes and seconds is not None else None

    @property
    def draft_passes(self) -> float | None:
        """Draft passes per round."""
        passes = self._draft_passes
        return passes / self.lane.target_passes if passes and self.lane.target_passes else None

    @property
    def cost_coefficient(self) -> float | None:
        """c: the time of a draft pass in target passes over one token; without our loop, ``plain_draft_cost``."""
        if not self.loop:
            return self.plain_draft_cost
        return self._draft_pass / self.single_pass if self.single_pass and self._draft_pass is not None else None

    @property
    def plain_draft_cost(self) -> float | None:
        """The time of a draft pass in tokens of plain ``generate``."""
        token = self.plain.seconds_per_token
        return self._draft_pass / token if token and self._draft_pass is not None else None

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


def median_run(runs: Sequence[RunMetrics]) -> RunMetrics:
    """The run with the median gain; of an even number the slower of the two in the middle. ``runs`` is not empty.

    All figures of a verdict and of a lane's row are of this run, so that they fit together. Medians of each figure
    would come from different runs: their rates would give another gain than the median gain. Runs without a gain count
    only if none has one. Where gains are equal, as those of plain ``generate`` itself, the speed decides.
    """
    known = [run for run in runs if run.gain] or runs
    return sorted(known, key=lambda run: (run.gain or 0.0, run.lane.tokens_per_second or 0.0))[(len(known) - 1) // 2]


def steps(run: RunMetrics) -> Steps:
    """Seconds per token from plain ``generate`` to the lane, in named steps that add up exactly.

    The last step takes the remainder. Empty if something was not measured.
    """
    plain, gain, engine, single = run.plain.seconds_per_token, run.gain, run.engine, run.single_pass
    passes, draft, verify = (
        _a_token(run.lane, total) for total in (run.lane.target_passes, run.lane.draft_seconds, run.lane.verify_seconds)
    )
    if not plain or not gain or not engine or single is None or passes is None or draft is None or verify is None:
        return ()
    copying = _a_token(run.lane, run.lane.state_seconds) or 0.0
    reread = _a_token(run.lane, run.lane.reread_seconds) or 0.0
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
