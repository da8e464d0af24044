"""Tables of the guesses that are kept at each place of a draft, and of the tokens of a target pass."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.lanes.table import LaneConfig
from specdec.measure.metrics import Metrics
from specdec.report import numbers
from specdec.report.verdict import Table

PLACES = ("Place in the draft", "tested", "kept, of tested", "kept, of all drafts")
EXPECTED = "expected, of tested"  # only of a sampled lane
PASSES = ("Tokens in a pass", "passes", "share of passes")


def places_table(lane: Metrics) -> Table | None:
    """A row for each place of a draft; None if nothing was tested or the drafts are not observed."""
    if not lane.tested_at or not lane.tested_at[0]:
        return None
    drafts = lane.tested_at[0]
    both = zip(lane.tested_at, lane.kept_at, strict=True)
    rows = [
        [f"guess {at}", f"{tested:,}", _share(kept, tested), numbers.percent(kept / drafts)]
        for at, (tested, kept) in enumerate(both, start=1)
    ]
    if not lane.overlap_at:
        return {"columns": [*PLACES], "rows": rows}
    overlaps = zip(lane.overlap_at, lane.tested_at, strict=False)
    expected = [_share(overlap, tested) for overlap, tested in overlaps]
    wider = [[*row[:3], share, row[3]] for row, share in zip(rows, expected, strict=True)]
    return {"columns": [*PLACES[:3], EXPECTED, PLACES[3]], "rows": wider}


def passes_table(lane: Metrics) -> Table | None:
    """A row for each number of tokens that a target pass wrote; None if there was no pass."""
    total = sum(lane.passes_of)
    if not total:
        return None
    rows = [
        [f"{tokens} token{'s' * (tokens != 1)}", f"{count:,}", numbers.percent(count / total)]
        for tokens, count in enumerate(lane.passes_of)
        if count
    ]
    return {"columns": [*PASSES], "rows": rows}


def by_place(lanes: Sequence[tuple[LaneConfig, Metrics]]) -> tuple[list[str], list[list[str]]] | None:
    """Column names and a row for each lane: the share kept of the guesses tested at each place; None without any."""
    known = [(entrant, lane) for entrant, lane in lanes if lane.tested_at and lane.tested_at[0]]
    if not known:
        return None
    most = max(len(lane.tested_at) for _, lane in known)
    rows = []
    for entrant, lane in known:
        pairs = zip(lane.tested_at, lane.kept_at, strict=True)
        shares = [_share(kept, tested) for tested, kept in pairs]
        gamma = "" if entrant.gamma is None else str(entrant.gamma)
        rows.append([entrant.row.label, gamma, *shares, *[""] * (most - len(shares))])
    return ["Lane", "\u03b3", *(f"guess {at}" for at in range(1, most + 1))], rows


def _share(part: float, whole: int) -> str:
    return numbers.percent(part / whole) if whole else "\u2013"
