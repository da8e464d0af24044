"""Labels in charts: places without overlap, round numbers, and texts that Plotly shows unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from textwrap import wrap

WIDTH, LINES = 15, 2  # the most characters of a line of a name in a chart, and its most lines


def shown(name: str) -> str:
    """A name, made narrow enough for a chart on a phone.

    Plotly interprets markup in names, but shows the entity of a quote as text.
    """
    lines = wrap(name, WIDTH, max_lines=LINES, placeholder="\u2026")
    return "<br>".join(escape(line, quote=False) for line in lines)


def unbroken(name: str, most: int) -> str:
    """The beginning of a name, as ``shown`` gives it, in one line of at most so many characters."""
    return escape(name if len(name) <= most else f"{name[: most - 1]}\u2026", quote=False)


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places between ``low`` and ``high`` at least ``gap`` apart, each as little as possible.

    Without room for all of them, they are closer.
    """
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    groups: list[tuple[list[int], float]] = []  # neighbours that touch, and the place of their middle

    def middle(members: list[int], wanted: float) -> float:
        half = gap * (len(members) - 1) / 2
        return min(max(wanted, low + half), high - half)

    for index in sorted(range(len(places)), key=lambda index: places[index]):
        members, centre = [index], middle([index], places[index])
        while groups:
            before, at = groups[-1]
            if at + gap * (len(before) + len(members)) / 2 <= centre + 1e-9 * gap:
                break
            groups.pop()
            members = before + members
            # Each member gives the middle of the group at which it would be at its own place.
            wishes = [places[m] - gap * (n - (len(members) - 1) / 2) for n, m in enumerate(members)]
            centre = middle(members, sum(wishes) / len(wishes))
        groups.append((members, centre))
    found = [0.0] * len(places)
    for members, centre in groups:
        for number, member in enumerate(members):
            found[member] = centre + gap * (number - (len(members) - 1) / 2)
    return found


def multiples(low: float, top: float, step: float) -> list[float]:
    """The multiples of ``step`` from ``low`` to ``top``."""
    return [step * n for n in range(ceil(low / step), floor(top / step) + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5, times a power of ten, that is not below ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * 0.999)
