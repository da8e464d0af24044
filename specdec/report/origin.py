"""Says where figures come from: measured here, recorded elsewhere, or brought by a visitor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from specdec.report import words


@dataclass(frozen=True)
class Origin:
    """``name`` is that of a file."""

    kind: Literal["here", "recording", "file", "link"]
    name: str = ""

    @property
    def here(self) -> bool:
        """Whether this program measured the figures, on this machine and with its present pair."""
        return self.kind == "here"

    @property
    def sentence(self) -> str:
        return words.ORIGINS[self.kind].format(name=self.name)


HERE, RECORDING, LINK = Origin("here"), Origin("recording"), Origin("link")


def place(about: dict[str, Any]) -> str:
    """Pair, machine and day of a measurement, in a line."""
    cores = about["machine"]["cores"]
    parts = [words.pair_line(about["pair"]), _processor(about), f"{cores} cores" if cores else "", day(about)]
    return " \u00b7 ".join(filter(None, parts))


def _processor(about: dict[str, Any]) -> str:
    return about["machine"].get("gpu") or about["machine"]["cpu"]


def day(about: dict[str, Any]) -> str:
    """A date as on the whole page: 24 November 2026."""
    return f"{date(about).day} {date(about):%B %Y}"


def date(about: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(about["at"], UTC)
