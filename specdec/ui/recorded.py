"""The race that ships with the package: it greets visitors where the page has no device of its own to race on, and
until the race at start-up is over.

``python -m scripts.record_race`` records it anew.
"""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parent / "assets" / "recorded.jsonl"


def recorded_race() -> str:
    """Its JSON lines, as the live view reads them. Their ``begin`` has the origin "recording", and a number that no
    race of a page has."""
    return RECORDED.read_text(encoding="utf-8")
