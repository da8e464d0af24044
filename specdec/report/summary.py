"""A row of a benchmark for a person to read."""

from __future__ import annotations

from typing import Any

from specdec.lanes.table import BASELINE, LaneConfig
from specdec.report import numbers

COLUMNS = (
    "Category", "Lane", "\u03b3", "tokens/s", "speed-up", "time saved", "acceptance", "tokens per pass", "same text",
)  # fmt: skip


def summary_cells(row: dict[str, Any]) -> list[str]:
    """A row under ``COLUMNS``: medians over the runs, with the lowest and the highest."""
    plain = row["lane"] == BASELINE.lane
    return [
        row["category"],
        LaneConfig(row["lane"], row["gamma"]).row.label,
        "" if row["gamma"] is None else str(row["gamma"]),
        numbers.spread(_values(row, "tokens_per_second"), numbers.rate),
        "1" if plain else numbers.times(_values(row, "speedup")),
        "" if plain else numbers.percent(row["latency_reduction"]),
        "" if row["acceptance"] is None else numbers.percent(row["acceptance"]),
        "" if plain else numbers.number(row["tokens_per_target_pass"], 2),
        "" if row["same_text"] is None else f"{row['same_text']} of {row['compared']}",
    ]


def _values(row: dict[str, Any], name: str) -> list[float]:
    return [value for end in ("_min", "", "_max") if (value := row[name + end]) is not None]
