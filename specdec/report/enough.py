"""Decides whether a race runs once more before its verdict: short races vary, and a busy machine may become quiet."""

from __future__ import annotations

from specdec.report.judge import Doubt, Kind
from specdec.report.verdict import Verdict

LEAST, MOST = 3, 5  # runs of a race, without and with a reason to doubt its figures
SECONDS = 10.0  # for all runs; a race that would take longer is not repeated, because somebody waits for it
DOUBTED = (Kind.BUSY, Kind.NOISY)
DOUBTS = {Doubt.STALL, Doubt.WIDE_SPREAD, Doubt.FEW_RUNS}


def another_run(verdict: Verdict, seconds: float) -> bool:
    """Whether to run the race again. ``verdict`` is that of the runs so far, which took ``seconds``."""
    runs = verdict.runs
    if not runs:  # nothing can be compared, and another run would not change that
        return False
    doubted = verdict.kind in DOUBTED or not DOUBTS.isdisjoint(verdict.doubts)
    return runs < (MOST if doubted else LEAST) and seconds * (runs + 1) / runs <= SECONDS
