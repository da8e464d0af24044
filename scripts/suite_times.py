"""Says where the time of the tests goes, from what ``python -m pytest --junitxml=times.xml`` has written.

``python -m scripts.suite_times times.xml`` prints the cases and seconds of each folder, and the ten slowest tests.
``--write`` puts both into CONTRIBUTING.md. ``--check`` fails if one of the ten slowest is not in that list, so that a
slow test is noticed.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- times: written by python -m scripts.suite_times -->", "<!-- /times -->"
SLOWEST = 10


class Case(NamedTuple):
    """A test with its seconds, set-up and tear-down included. ``name`` is without the folder "tests"."""

    folder: str
    name: str
    seconds: float


def cases(path: Path) -> list[Case]:
    """The tests of a report in JUnit's format."""
    found = []
    for case in ET.parse(path).getroot().iter("testcase"):
        module = case.get("classname", "").removeprefix("tests.").split(".")
        folder = module[0] if len(module) > 1 else "tests"
        found.append(Case(folder, f"{'/'.join(module)}::{case.get('name')}", float(case.get("time", 0))))
    return found


def slowest(found: list[Case]) -> list[Case]:
    return sorted(found, key=lambda case: -case.seconds)[:SLOWEST]


def section(found: list[Case]) -> str:
    """Both tables, in Markdown."""
    seconds, counts = defaultdict[str, float](float), defaultdict[str, int](int)
    for case in found:
        seconds[case.folder] += case.seconds
        counts[case.folder] += 1
    lines = ["| Folder | Tests | Seconds |", "| --- | ---: | ---: |"]
    for folder in sorted(seconds, key=lambda name: -seconds[name]):
        lines.append(f"| {folder} | {counts[folder]} | {seconds[folder]:.0f} |")
    lines += [f"| all | {len(found)} | {sum(seconds.values()):.0f} |", "", "The ten slowest:", ""]
    lines += ["| Test | Seconds |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| `{case.name}` | {case.seconds:.0f} |" for case in slowest(found))])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts.suite_times", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, help="the file that pytest wrote with --junitxml")
    parser.add_argument("--write", action="store_true", help="write the tables into CONTRIBUTING.md")
    parser.add_argument("--check", action="store_true", help="fail if a slow test is not in its list")
    arguments = parser.parse_args()
    found = cases(arguments.report)
    print(section(found))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    known, _, after = rest.partition(END)
    if arguments.write:
        DOCUMENT.write_text(f"{before}{BEGIN}\n{section(found)}\n{END}{after}", encoding="utf-8")
    new = [case.name for case in slowest(found) if case.name not in known]
    if arguments.check and new:
        sys.exit(f"Slow, and not among the ten in CONTRIBUTING.md: {', '.join(new)}")


if __name__ == "__main__":
    main()
