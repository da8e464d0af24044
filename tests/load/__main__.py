"""``python -m tests.load [part ...]``: run all parts, or the named ones, and print one table."""

from __future__ import annotations

import sys

from tests.load.faults import faults
from tests.load.inputs import inputs
from tests.load.leavers import leavers
from tests.load.opening import opening
from tests.load.probes import probes
from tests.load.sessions import sessions
from tests.load.table import Report
from tests.load.visitors import visitors

PARTS = {part.__name__: part for part in (visitors, sessions, opening, leavers, faults, inputs, probes)}


def main(names: list[str]) -> int:
    if unknown := set(names) - PARTS.keys():
        print(f"There is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    report = Report()
    for name in names or PARTS:
        with report.named(name):
            PARTS[name](report)
    report.show()
    return 0 if report.whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
