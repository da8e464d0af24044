"""What a lane wrote, as a person sees it in a terminal or a notebook."""

from __future__ import annotations

import torch
from fakes import random_table, table_pair

import specdec


def test_a_result_is_shown_in_one_line() -> None:
    """The rounds of a long text would fill pages. A lane that ended early says so."""
    table = random_table(3, 3, seed=0)
    lane = specdec.speculative(
        table_pair(table, table), torch.tensor([0, 1, 2]), gamma=2, params=specdec.SamplingParams(max_new_tokens=40)
    )
    shown = repr(specdec.collect(lane))
    assert shown.startswith("<Result: 40 tokens in 14 rounds, finish_reason='length', ") and "tokens/s" in shown
    assert len(shown) < 200 and "\n" not in shown
    assert repr(specdec.collect(iter([]))) == "<Result: 0 tokens in 0 rounds, ended early>"
