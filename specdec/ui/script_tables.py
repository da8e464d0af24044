"""What the page's scripts need to speak as the server does: lanes, figures, sentences."""

from __future__ import annotations

import json

from specdec.lanes.table import LANES
from specdec.report.definitions import DEFINITIONS, WORDS
from specdec.report.judge import SHRUNK
from specdec.report.sentences import ENDS_WITH_SHARES, EXACTNESS, ORIGINS


def lane_list() -> str:
    """The table of lanes, as JSON."""
    names = ("key", "name", "gamma", "label", "dash", "sign")
    return json.dumps([{name: getattr(lane, name) for name in names} for lane in LANES])


def definitions() -> str:
    """Meanings of figures and words, and the sentences on where a race comes from and what a server told, as JSON.

    With them the ends of headlines that name both shares, and what is noise.
    """
    figures = {key: {"name": figure.name, "meaning": figure.meaning} for key, figure in DEFINITIONS.items()}
    sentences = {"origins": ORIGINS, "exactness": EXACTNESS, "ends": [*ENDS_WITH_SHARES.values()]}
    return json.dumps({"figures": figures, "words": WORDS, "shrunk": SHRUNK} | sentences)
