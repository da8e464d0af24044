"""Fits to a growing series of samples, of which newer ones weigh more."""

from __future__ import annotations


class Mean:
    """A mean in which newer samples weigh more."""

    def __init__(self, forget: float = 0.9):
        self._forget, self.count, self.value = forget, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count = self._forget * self.count + 1
        self.value += (value - self.value) / self.count


class Line:
    """A least-squares line of seconds against a number of passes or rows. It never falls, and is not negative at 0.

    Newer samples weigh more. A sample counts for at most twice the expected value, because a machine may stall.
    """

    def __init__(self, forget: float = 0.95):
        self._forget = forget
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        if self._n > 2:
            y = min(y, 2 * self.at(x))
        sums = (self._n, self._x, self._y, self._xx, self._xy)
        new = (1.0, x, y, x * x, x * y)
        self._n, self._x, self._y, self._xx, self._xy = (
            self._forget * old + term for old, term in zip(sums, new, strict=True)
        )

    def at(self, x: float) -> float:
        if not self._n:
            return 0.0
        mean_x, mean_y = self._x / self._n, self._y / self._n
        return mean_y + self.slope * (x - mean_x)

    @property
    def slope(self) -> float:
        """Seconds that one pass or row more takes; 0 if nothing was measured."""
        if not self._n:
            return 0.0
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x**2
        slope = (self._xy / self._n - mean_x * mean_y) / spread if spread > 1e-9 else 0.0
        return min(max(0.0, slope), mean_y / mean_x)
