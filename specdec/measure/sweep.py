"""The configs of a sweep, which finds the fastest draft length on this machine.

They are plain ``generate`` and our loop at gamma 0 to 16 and "auto", interleaved (``specdec.measure.trials``), on one
prompt or several.
"""

from __future__ import annotations

from specdec.events import MAX_GAMMA
from specdec.lanes.table import LaneConfig, lane_configs

CONFIGS: tuple[LaneConfig, ...] = lane_configs(("generate", "speculative"), (*range(MAX_GAMMA + 1), "auto"))
NEW_TOKENS, RUNS = 64, 3
