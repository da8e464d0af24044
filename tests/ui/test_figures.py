"""Finished charts, drawn from numbers."""

from __future__ import annotations

from judged import loop, plain, trial

from specdec.lanes.table import BASELINE, LOOP, Entrant
from specdec.ui.figures import COLOURS, benchmark_figure


def test_a_lane_has_the_mark_of_its_row_in_a_benchmark() -> None:
    """Whichever lanes are measured beside it; one without a sign has a star, which no sign is."""
    lookup, speculative = Entrant("prompt-lookup", 4), Entrant("speculative", 4)
    entrants = (lookup, LOOP, speculative)
    trials = [trial(0, BASELINE, plain(2.0)), *(trial(0, entrant, loop(1.0)) for entrant in entrants)]
    marks = {dots.name: (dots.marker.symbol, dots.marker.color) for dots in benchmark_figure(trials).data}
    assert marks == {
        lookup.label: ("triangle-up", COLOURS["teal"]),
        LOOP.label: ("square", COLOURS["grey"]),
        speculative.label: ("star", COLOURS["blue"]),
    }
