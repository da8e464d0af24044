"""Models with recurrent state and attention: a roll-back goes to the start of a pass and reads kept tokens again.

Tiny random models of each family that is decoded this way. The draft is a noisy copy, so that it is wrong often.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from all_types import TYPES, VOCABULARY, small_config, small_model
from comparison import FULL, HOURS, Comparison
from enumeration import sampled_apart
from fakes import count_passes, generated, noisy_copy, prompt_of, rounds_of, tiny
from pairwise import each_once, few
from transformers import CONFIG_MAPPING

import specdec
from specdec.engine.round_times import REREAD
from specdec.forward.recurrent_state import RecurrentSnapshots
from specdec.forward.runner import Runner
from specdec.measure.enumeration import CLOSE
from specdec.models.compatibility import ROLLED_BACK

TOKENS = 300 if HOURS else 48 if FULL else 32
GAMMAS = (*range(1, 17), "auto") if HOURS else (1, 4, 16, "auto") if FULL else (4, "auto")
# One of each kind of layer with a state: Mamba 2 beside attention and between it, one whose passes must not bound their
# time steps, and the gated delta rule. Others are built of the same layers.
KINDS = ("bamba", "falcon_h1", "nemotron_h", "qwen3_5_text")
FAMILIES = sorted(name for name in ROLLED_BACK if name in TYPES and (FULL or name in KINDS))
LAYERS = {"granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2}, "bamba": {"attn_layer_indices": [1, 3]}}
FEW = ("qwen3_5_text", "falcon_h1")  # the gated delta rule, and Mamba 2, which takes ten times as long


def model_of(family: str, **changes):
    config = small_config(CONFIG_MAPPING[family], **LAYERS.get(family, {}) | changes)
    config.get_text_config(decoder=True).max_position_embeddings = 512
    return small_model(config)


def pair_of(target, drafting: str) -> specdec.Pair:
    if drafting == "hybrid draft":
        return specdec.Pair(target, noisy_copy(target, scale=0.02))
    if drafting == "early exit":
        return specdec.Pair(target, specdec.EarlyExit(2))
    if drafting == "prompt lookup":
        return specdec.Pair(target, specdec.PromptLookup())
    return specdec.Pair(target, tiny("llama", vocab_size=VOCABULARY, context=512))


def compare(target, pair: specdec.Pair, gammas=GAMMAS, tokens: int = TOKENS) -> set[str]:
    """Require ``generate``'s text at each draft length; the kinds of guesses that were seen."""
    prompt_ids = prompt_of(14, VOCABULARY)
    reference, compared, seen = generated(target, prompt_ids, tokens), Comparison(), set()
    params = specdec.SamplingParams(max_new_tokens=tokens)
    for gamma in gammas:
        events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params))
        ids = tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(events)))
        compared.require_same(target, prompt_ids, ids, reference)
        seen |= {token.status for event in rounds_of(events) for token in event.draft}
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_that_of_generate(family: str) -> None:
    """At every draft length, past many rejections, with the family as target and as draft."""
    target = model_of(family)
    assert compare(target, pair_of(target, "hybrid draft")) == {"accepted", "rejected", "discarded"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_over_several_tokens_gives_what_passes_over_one_give(family: str) -> None:
    """``generate`` makes passes over one token. transformers bounds the time steps of Nemotron-H in longer passes only,
    so its texts of 300 tokens differed. The bound here is so high that it always has an effect."""
    target = model_of(family, **({"time_step_min": 0.5} if family == "nemotron_h" else {}))
    prompt_ids, ids = prompt_of(14, VOCABULARY), prompt_of(40, VOCABULARY)[14:]

    def logits(rows: int) -> torch.Tensor:
        runner = Runner(target)
        runner.forward(prompt_ids, keep=1, committed=True)
        runner.crop_to(len(prompt_ids))
        return torch.cat([runner.forward(part, committed=True) for part in ids.split(rows)])

    with torch.inference_mode():
        one, several = logits(1), logits(5)
    assert (one - several).abs().max() < 1e-4 * (one.max() - one.min())
    limits = {part.time_step_limit for part in target.modules() if hasattr(part, "time_step_limit")}
    assert family != "nemotron_h" or limits == {(0.5, float("inf"))}, "the model itself is as it was"


def hooked(target):
    """Accelerate puts a hook into every module."""
    return dispatch_model(target, {"": "cpu"}, main_device="cpu", force_hooks=True)


@pytest.mark.parametrize("placed", [lambda target: target, hooked, cpu_offload], ids=["whole", "hooked", "offloaded"])
def test_bounds_on_time_steps_stay_in_the_model(placed) -> None:
    """The pass over the prompt has them, and later passes do not. A thread may use the model itself meanwhile."""
    prompt_ids, seen = prompt_of(14, VOCABULARY), []
    target = placed(model_of("nemotron_h", time_step_min=5.0))
    parts = [part for part in target.modules() if hasattr(part, "time_step_limit")]
    for part in parts:
        part.register_forward_pre_hook(
            lambda used, *_, part=part: seen.append((used.time_step_limit, part.time_step_limit))
        )
    own, free = (5.0, float("inf")), (0.0, float("inf"))
    pair = specdec.Pair(target, specdec.PromptLookup())
    params = specdec.SamplingParams(max_new_tokens=TOKENS)
    ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=4, params=params)).token_ids
    assert set(seen[: len(parts)]) == {(own, own)} and set(seen[len(parts) :]) == {(free, own)}
    reference = generated(model_of("nemotron_h", time_step_min=5.0), prompt_ids, TOKENS)
    Comparison().require_same(model_of("nemotron_h", time_step_min=5.0), prompt_ids, tuple(ids), reference)


def test_bounds_are_left_out_of_the_first_layers_of_a_model_with_hooks() -> None:
    """Early exit has copied the way to these layers before, without the hooks."""
    target = hooked(model_of("nemotron_h", time_step_min=5.0))
    assert compare(target, specdec.Pair(target, specdec.EarlyExit(3)), (4,)) > {"accepted"}


@each_once(drafting=("model", "prompt lookup", "early exit"), family=FEW)
def test_other_ways_to_draft_for_a_hybrid(family: str, drafting: str) -> None:
    target = model_of(family)
    seen = compare(target, pair_of(target, drafting))
    assert "rejected" in seen or drafting == "prompt lookup"


@pytest.mark.parametrize("family", FEW)
def test_a_hybrid_drafts_for_a_target_without_state(family: str) -> None:
    target = tiny("llama", vocab_size=VOCABULARY, context=512)
    assert "rejected" in compare(target, specdec.Pair(target, model_of(family)))


@pytest.mark.parametrize("family", few(FEW, 1))
def test_what_is_read_again_is_bounded(family: str) -> None:
    """With a draft that is never right, no pass is longer than the bound, the draft and the last token.

    Each round says how many kept tokens it read again: those since the last pass that was kept whole, which is also one
    that only read what had piled up.
    """
    target = model_of(family)
    for drafting in ("model", "hybrid draft"):
        pair = pair_of(target, drafting)
        params = specdec.SamplingParams(max_new_tokens=60)
        with count_passes(target) as passes:
            events = list(specdec.speculative(pair, prompt_of(14, VOCABULARY), gamma=4, params=params))
        assert max(passes[1:]) <= REREAD + 1 + 4
        assert max(passes[1:]) > 1 + 4
        unread = 0
        for event in rounds_of(events):
            assert event.reread == unread
            if unread > REREAD:
                unread = 0
            whole = all(token.status == "accepted" for token in event.draft)
            unread = 0 if whole else unread + len(event.committed_ids)


@each_once(acceptance=few(("lossless", "block"), 1), family=few(FEW, 1))
def test_sampled_text_has_the_targets_distribution(family: str, acceptance: str) -> None:
    """Every outcome of every draw, over several rounds."""
    assert difference(family, acceptance) < CLOSE


def difference(family: str, acceptance: str = "lossless") -> float:
    target = model_of(family, vocab_size=2, pad_token_id=None, bos_token_id=None, eos_token_id=None)
    apart, paths = sampled_apart(pair_of(target, "hybrid draft"), acceptance, prompt=(1, 0, 1))
    assert paths > 20
    return apart


@pytest.mark.parametrize("bug", ["state not restored", "restored one token late"])
def test_a_wrong_rollback_is_caught(monkeypatch, bug: str) -> None:
    """Both the text and the distribution show it."""
    restore = RecurrentSnapshots.restore
    if bug == "state not restored":

        def wrong(self, length):
            states = [state.clone() for state in self._present()]
            place = restore(self, length)
            for state, kept in zip(self._present(), states, strict=True):
                state.copy_(kept)
            return place
    else:

        def wrong(self, length):
            place = restore(self, length)
            return place if place is None else min(place + 1, length)

    monkeypatch.setattr(RecurrentSnapshots, "restore", wrong)
    target = model_of("falcon_h1")
    with pytest.raises(AssertionError):
        compare(target, pair_of(target, "hybrid draft"), gammas=(4,))
    assert difference(FEW[0]) > 100 * CLOSE
