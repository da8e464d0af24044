"""What the rounds of a pair took, kept from call to call."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from specdec.engine.fits import Line
from specdec.events import MAX_GAMMA

REREAD = 16  # a model with recurrent state reads at most so many kept tokens again in front of a draft
SIZES = MAX_GAMMA + 2 + REREAD  # guesses of a draft and rows of a check are fewer


class PartTimes:
    """The seconds of one part of a round by its size: of drafting by the guesses, or of the rest by the rows.

    Sizes without samples lie on a line of measured against estimated costs. Rows are computed in groups, so a size that
    was measured often has a factor of its own beside the line.
    """

    _LINE = 4  # samples of a size that its factor needs to count as much as the line: single times scatter widely
    _FORGET = 0.98  # a sample of the size

    def __init__(self) -> None:
        self._line = Line()
        self._form = self._line.form()
        # Side by side in memory, because a pass has taken them out of the processor's caches.
        self._counts, self._means, self._factors = (array("d", [start] * SIZES) for start in (0.0, 1.0, 1.0))

    @property
    def known(self) -> bool:
        """Whether there is a sample."""
        return self._line.known

    def add(self, size: int, estimated: float, seconds: float) -> None:
        """Learn from one sample, whose cost was ``estimated``. It counts for at most twice what is known."""
        known = self.at(size, estimated)
        seconds = min(seconds, 2 * known) if known > 0 else seconds
        self._line.add(estimated, seconds)
        self._form = self._line.form()
        if (on_line := self._form.at(estimated)) > 0:
            count, mean = self._FORGET * self._counts[size] + 1, self._means[size]
            mean += (seconds / on_line - mean) / count
            self._counts[size], self._means[size] = count, mean
            self._factors[size] = 1 + (mean - 1) * count / (count + self._LINE)

    def at(self, size: int, estimated: float) -> float:
        """The seconds at ``size``; 0 before the first sample."""
        return self._form.at(estimated) * self._factors[size]

    def every(self, estimated: Sequence[float]) -> list[float]:
        """The seconds at each size from 0 on, whose costs are ``estimated``. After the first sample only."""
        return [self._form.at(cost) * factor for cost, factor in zip(estimated, self._factors, strict=False)]


class RoundTimes:
    """The measured seconds of a pair's rounds: of ``drafting``, and of the rest, which is mostly ``checking``.

    Each call learns its own pace, by which its times are divided. So what counts is how the times of different sizes
    compare, and they serve a machine that has become busier too.
    """

    def __init__(self) -> None:
        self.drafting, self.checking = PartTimes(), PartTimes()
