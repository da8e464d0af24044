"""Fits to a growing series of samples, of which newer ones weigh more."""

from __future__ import annotations

from typing import NamedTuple


class Mean:
    """A mean in which newer samples weigh more."""

    def __init__(self, forget: float = 0.9):
        self._forget, self.count, self.value = forget, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count = self._forget * self.count + 1
        self.value += (value - self.value) / self.count


class LineForm(NamedTuple):
    """The value of a line at 0, its slope, and the least value for each unit of x."""

    base: float
    slope: float
    least: float

    def at(self, x: float) -> float:
        return max(self.base + self.slope * x, self.least * x)


class Line:
    """A least-squares line of measured against estimated costs. Newer samples weigh more.

    At first measured costs are taken as proportional to the estimated ones, by three points near the first sample:
    points far from it would keep a wrong estimate's slope for a whole text. A sample counts for at most twice the
    expected value, because a machine may stall. The line never falls, rises at most twice as steeply as a proportional
    one would, and is nowhere below a quarter of that one.
    """

    def __init__(self, forget: float = 0.98):
        self._forget = forget
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        if self._n:
            known = self.at(x)
            self._add(x, min(y, 2 * known) if known > 0 else y)
        else:
            for share in (0.8, 1.25, 1.0):
                self._add(share * x, share * y)

    def _add(self, x: float, y: float) -> None:
        forget = self._forget
        self._x = forget * self._x + x
        self._y = forget * self._y + y
        self._xx = forget * self._xx + x * x
        self._xy = forget * self._xy + x * y
        # Last, because a call in another thread divides by the others where this is not 0.
        self._n = forget * self._n + 1

    @property
    def known(self) -> bool:
        """Whether there is a sample."""
        return self._n > 0

    def at(self, x: float) -> float:
        """The value at ``x``; 0 before the first sample."""
        return self.form().at(x)

    def form(self) -> LineForm:
        """The line as it is now; all 0 before the first sample."""
        if not self._n:
            return LineForm(0.0, 0.0, 0.0)
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x**2
        slope = (self._xy / self._n - mean_x * mean_y) / spread if spread > 1e-9 * mean_x**2 else 0.0
        slope = min(max(0.0, slope), 2 * mean_y / mean_x)
        return LineForm(mean_y - slope * mean_x, slope, mean_y / mean_x / 4)
