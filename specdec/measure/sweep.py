"""The configs of a sweep, which finds the fastest draft length on this machine.

They are plain ``generate`` and our loop at gamma 0 to 16 and "auto", interleaved (``specdec.measure.trials``), on one
prompt or several. A block drafter makes no draft longer than its block.
"""

from __future__ import annotations

from dataclasses import replace

from specdec.events import MAX_GAMMA
from specdec.lanes.table import LaneConfig, lane_configs
from specdec.measure.plan import Plan

CONFIGS: tuple[LaneConfig, ...] = lane_configs(("generate", "speculative"), (*range(MAX_GAMMA + 1), "auto"))
NEW_TOKENS, RUNS = 64, 3


def within(plan: Plan, longest: int) -> Plan:
    """The plan without draft lengths above ``longest``, the most guesses that a draft of the pair can have."""
    kept = tuple(config for config in plan.configs if not isinstance(config.gamma, int) or config.gamma <= longest)
    return replace(plan, configs=kept)
