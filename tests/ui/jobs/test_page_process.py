"""What the process of the page does on ZeroGPU: no pass before work is asked for, and values that travel."""

from __future__ import annotations

import pickle

import pytest
import torch
from fakes import byte_tokenizer, count_passes, noisy_copy, tiny

import specdec
from specdec import errors
from specdec.forward import lean_check
from specdec.lanes.race import race
from specdec.lanes.table import FREE_DRAFT, LANES, LaneConfig
from specdec.measure.losslessness import self_test
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.trials import trials
from specdec.models.pair import Pair
from specdec.report import provenance


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_nothing_runs_before_the_first_event_is_asked_for(engine: str) -> None:
    """A pair is described and work is checked without a pass and without the device, which is missing here."""
    target = tiny("llama", 7)
    draft = noisy_copy(target, 7)
    pair = Pair(target, draft, byte_tokenizer(), engine=engine)
    object.__setattr__(pair, "device", torch.device("cuda"))
    plan = Plan(
        (PromptItem("a", "b", "Once"),),
        (LaneConfig("generate"), LaneConfig("speculative", 2)),
        specdec.SamplingParams(32),
    )
    with count_passes(target) as passes, count_passes(draft) as more:
        assert provenance.pair_line(pair.facts())
        lanes = [lane.key for lane in LANES if lane.key != FREE_DRAFT]  # that one needs a grammar
        race(pair, "Once", gamma=2, lanes=lanes, params=specdec.SamplingParams(32))
        with pytest.raises(specdec.InvalidInput):
            race(pair, "Once", gamma=99)
        trials(pair, plan)
        self_test(pair, "Once")
    assert not passes and not more and target not in lean_check._stacks


def test_a_pair_remembers_its_device() -> None:
    """A pair remembers its device, because on ZeroGPU only the loading thread can see it."""
    pair = Pair(tiny("llama", 7), None)
    pair.target.to("meta")
    assert pair.device == torch.device("cpu") and pair.facts()["device"] == "cpu"


def test_every_error_can_be_pickled() -> None:
    found = [errors.NotNumbers("target"), *(kind("a b") for kind in errors.SpecdecError.__subclasses__())]
    for error in found:
        twin = pickle.loads(pickle.dumps(error))
        assert (type(twin), str(twin)) == (type(error), str(error))
