"""Prints the limit of a machine, which ``specdec.measure.roofline`` computes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from specdec.lanes.table import LaneConfig
from specdec.report import numbers, provenance, sentences

COLUMNS = ("Lane", "\u03b3", "least ms per token (computed)", "ms per token (measured)", "share of the limit")


def shares_of_limit(record: dict[str, Any]) -> dict[LaneConfig, float]:
    """The share of the limit that each lane reached; empty if the limit is not known."""
    return {LaneConfig(row["lane"], row["gamma"]): row["share_of_limit"] for row in record.get("rows", ())}


def show_limit(console: Console, record: dict[str, Any], label: str = "") -> None:
    """Print the measured rates, then for each lane the computed limit and the share of it that was reached.

    ``label``: the label of a synthetic measurement, for the title.
    """
    if "reason" in record:
        console.print(sentences.NO_LIMIT.format(reason=record["reason"]))
        return
    title = "The least possible time per token on this machine"
    out = Table(title=provenance.title_with_label(title, label))
    for place, column in enumerate(COLUMNS):
        out.add_column(column, justify="right" if place else "left", overflow="fold")
    for row in record["rows"]:
        times = (row["computed_least_seconds_per_token"], row["measured_seconds_per_token"])
        out.add_row(
            LaneConfig(row["lane"], row["gamma"]).row.label,
            "" if row["gamma"] is None else str(row["gamma"]),
            *(f"{1000 * seconds:.3g}" for seconds in times),
            numbers.percent(row["share_of_limit"]),
        )
    console.print(out)
    for role, rates in record["measured"].items():
        console.print(
            sentences.RATES.format(
                Role=role.capitalize(),
                size=numbers.number(rates["weight_bytes"] / 1e6),
                bandwidth=numbers.number(rates["read_bytes_per_second"] / 1e9),
                operations=numbers.number(rates["operations_per_second"] / 1e9),
            )
        )
