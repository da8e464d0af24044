"""The race that ships with the package. ``python -m scripts.record_race`` records it again.

It is shown until the race at start-up is over, and where the page has no device of its own for a race.
"""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parents[1] / "assets" / "recorded.jsonl"


def recorded_race() -> str:
    """Its JSON lines for the live view.

    Their ``begin`` has the origin "recording", and a number that no race of a page has.
    """
    return RECORDED.read_text(encoding="utf-8")
