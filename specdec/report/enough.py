"""Decides whether a race runs once more before its verdict: short races vary, and a busy machine may become quiet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec.report.judge import Doubt, Kind

LEAST, MOST = 3, 5  # runs of a race, without and with a reason to doubt its figures
SECONDS = 10.0  # for all runs; a race that would take longer is not repeated, because somebody waits for it
DOUBTED = {kind.name.lower() for kind in (Kind.BUSY, Kind.NOISY)}
DOUBTS = {doubt.name.lower() for doubt in (Doubt.STALL, Doubt.WIDE_SPREAD, Doubt.FEW_RUNS)}


def another_run(record: Mapping[str, Any], seconds: float) -> bool:
    """Whether to run the race again. ``record`` is the verdict so far; its runs took ``seconds``."""
    runs = record.get("runs")
    if not runs:  # nothing can be compared, and another run would not change that
        return False
    doubted = record["kind"] in DOUBTED or not DOUBTS.isdisjoint(record["doubts"])
    return runs < (MOST if doubted else LEAST) and seconds * (runs + 1) / runs <= SECONDS
