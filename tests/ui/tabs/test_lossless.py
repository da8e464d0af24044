"""The size of a test of losslessness: chosen on the page, and bounded for strangers."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

import specdec
from specdec.ui.jobs.limits import LOCAL, PUBLIC, Limits
from specdec.ui.tabs.lossless import LosslessTab


def tab_of(limits: Limits) -> LosslessTab:
    with gr.Blocks(), gr.Tab("Lossless?"):
        return LosslessTab(SimpleNamespace(limits=limits), limits, "")


@pytest.mark.parametrize(("limits", "usual"), [(LOCAL, 500), (PUBLIC, 200)])
def test_the_draws_of_a_test_are_a_choice_within_the_page_s_limit(limits: Limits, usual: int) -> None:
    tab = tab_of(limits)
    assert tab._draws.value == usual
    longer = tab._job("speculative", limits.draws)
    assert longer.tokens == 4 * limits.draws * 4, "three samples, and texts of as many tokens as one"
    for draws, said in ((limits.draws + 1, "at most"), (None, "Draws is empty"), (70.5, "whole number")):
        with pytest.raises(specdec.InvalidInput, match=said):
            tab._job("speculative", draws)
