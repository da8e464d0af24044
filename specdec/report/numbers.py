"""How figures are written: shares, factors, times and counts, everywhere with the same digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low


def runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def factor(value: float) -> str:
    """A speed-up as a number, with more digits if it is small: ``1.03``, ``2.1``, ``12``."""
    return number(value, digits_of(value))


def digits_of(factor: float) -> int:
    """Decimal places, by the factor as it is shown: 9.96 is "10", and 1.996 is "2.0"."""
    return 0 if factor >= 9.95 else 2 if factor < 1.995 else 1


def percent(share: float | None, digits: int = 0) -> str:
    """A share with a % sign; a browser keeps both on one line."""
    # Adding zero turns a rounded -0.0 into 0.0.
    return "\u2013" if share is None else f"{round(share * 100, digits) + 0.0:.{digits}f}\u00a0%"


def number(value: float | None, digits: int = 1) -> str:
    return "\u2013" if value is None else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Tokens per second: whole numbers, with one decimal below 20."""
    return number(value, 0 if value is None or value >= 20 else 1)


def spread(values: Sequence[float], show: Callable[[float], str], middle: float | None = None) -> str:
    """A value, by default the median, with the lowest and highest one; one value if all look the same."""
    if not values:
        return "\u2013"
    if len({show(value) for value in values}) == 1:
        return show(values[0])
    return f"{show(median_low(values) if middle is None else middle)} ({show(min(values))}\u2013{show(max(values))})"


def ends(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The lowest and the highest value; one value if both look the same."""
    if not values:
        return "\u2013"
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low}\u2013{high}"


def times(factors: Sequence[float], middle: float | None = None) -> str:
    """Speed-ups: one, by default the median, with the lowest and highest."""
    return _times(factors, "{:.2f}".format, middle)


def speedups(factors: Sequence[float], middle: float | None = None) -> str:
    """The same with the digits of a headline, for a table that stands below one."""
    if not factors:
        return _times(factors, str)
    shown = median_low(factors) if middle is None else middle
    digits = digits_of(shown)
    return _times(factors, lambda value: number(value, digits), shown)


def _times(factors: Sequence[float], show: Callable[[float], str], middle: float | None = None) -> str:
    text = spread(factors, show, middle)
    return text.replace(" (", "x (", 1) if "(" in text else text + "x" * bool(factors)


def times_or_none(value: float | None) -> str:
    """A factor in a table; a dash for None."""
    return "\u2013" if value is None else f"{value:.2f}x"


def parameters(count: float) -> str:
    """A number of parameters: ``9.6M``, ``355M``, ``7.6B``."""
    size, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M")
    return f"{size:.{0 if size >= 99.5 else 1}f}{unit}"


def seconds(value: float) -> str:
    return f"{value:.{_places(value)}f}\u00a0s"


def _places(value: float) -> int:
    """Decimal places of a time in seconds: a reader who divides two of them finds the speed-up beside them."""
    return 3 if value < 0.9995 else 2 if value < 9.995 else 1


def saved(plain: float, lane: float) -> str:
    """Seconds saved or lost: the difference of both times as they are shown."""
    places = max(map(_places, (plain, lane)))
    plain, lane = (round(value, _places(value)) for value in (plain, lane))
    return f"{abs(plain - lane):.{places}f}\u00a0s {'saved' if plain >= lane else 'lost'}"


def duration(value: float) -> str:
    """A time to wait, in seconds: ``8 s``, ``3 min``, ``3 h 15 min``."""
    if value < 90:
        return f"{max(1, round(value))}\u00a0s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours}\u00a0h {minutes}\u00a0min" if hours else f"{minutes}\u00a0min"
