"""DFlash heads as ``speculators`` and DeepSpec write them: every draft against an independent reading, and loading."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from block_heads import (
    LAYERS,
    SMALL,
    WINDOW,
    deepspec,
    draft_from_scratch,
    head_of,
    pair_of,
    read_head,
    require_text_of_generate,
    speculators,
    target_of,
)
from comparison import FULL
from drafting import (
    HIDDEN,
    VOCABULARY,
    refused,
    require_close,
    require_drafts_from_scratch,
    require_loaded,
    save,
    save_target,
)
from enumeration import sampled_apart
from fakes import isolated_rng, prompt_of, rounds_of
from pairwise import each_once

import specdec
from specdec.drafters import dflash
from specdec.drafters.dflash import DFlashDraft, OutputLayer
from specdec.drafters.dflash_config import DFlashConfig, Sight, dflash_config, is_dflash, is_dspark
from specdec.drafters.dflash_head import DFlashHead
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair

FORMATS: dict[str, dict[str, Any]] = {
    "speculators": speculators(),
    "a part of the vocabulary": speculators(draft_vocab_size=200),
    "windows": speculators(**WINDOW),
    "windows, not causal": speculators(**WINDOW, sliding_window_non_causal=True),
    "from the anchor": speculators(sample_from_anchor=True, block_size=16),
    "the embedding, biases": speculators(aux_hidden_state_layer_ids=[0, 2, 5], attention_bias=True, head_dim=16),
    "DeepSpec": deepspec(),
    "DeepSpec, the embedding": deepspec(target_layer_ids=[-1, 2, 4]),
}


@pytest.mark.parametrize("written", FORMATS)
def test_a_forward_is_that_of_the_published_layers(written: str) -> None:
    """Given features, with blocks between parts of the context; states within 1e-5 of their range."""
    config = FORMATS[written]
    head = head_of(config).double()
    with isolated_rng(1):
        features, blocks = torch.randn(11, 3 * HIDDEN).double(), torch.randn(2, 7, HIDDEN).double()
    caches = head.new_caches()
    for end, start, block in ((8, 0, blocks[0]), (11, 8, blocks[1])):
        ours = head(block, head.fused(features[start:end]), caches)
        require_close(ours, read_head(head, config, features[:end], block), 1e-5)
        for layer in caches:
            layer.crop(-len(block))


@each_once(family=("llama", "qwen3", "qwen3_5_text", "gemma2"), written=tuple(FORMATS), own=(True, False))
def test_every_draft_is_that_of_the_published_head(monkeypatch, family: str, written: str, own: bool) -> None:
    """In each round: the logits of all guesses, made from the whole text. ``own``: with matrices of its own."""
    config = FORMATS[written]
    target, head = target_of(family), head_of(config, own=own or "draft_vocab_size" in config)
    require_head_from_scratch(monkeypatch, target, head, config)


def require_head_from_scratch(monkeypatch, target: Any, head: DFlashHead, config: dict[str, Any]) -> None:
    scratch = partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, pair_of(target, head), DFlashDraft, 2, scratch, 200)


FAULTS = {
    "layers one too high": lambda patch: plant(patch, DFlashConfig, "states_of", lambda found: (*found[1:], 5)),
    "rows one early": lambda patch: plant(patch, DFlashHead, "forward", lambda found: found.roll(1, 0)),
    "a softcap": lambda patch: plant(patch, OutputLayer, "of_draft", lambda found: torch.tanh(found / 3) * 3),
    "tokens in the head's order": lambda patch: patch.setattr(
        dflash, "in_target_ids", lambda x, offsets, size: x.new_full((len(x), size), -math.inf).index_copy_(
            1, torch.arange(x.shape[1]), x)
    ),
    "a window from each row": lambda patch: plant(
        patch, DFlashHead, "new_caches", lambda found: found, before=lambda self: object.__setattr__(
            self.config, "sights", tuple(each._replace(from_block=False) for each in self.config.sights))
    ),
}  # fmt: skip


def plant(patch, owner: Any, name: str, change: Any, before: Any = None) -> None:
    """Change what a method returns."""
    method = getattr(owner, name)

    def wrong(self, *given):
        if before is not None:
            before(self)
        return change(method(self, *given))

    patch.setattr(owner, name, wrong)


@pytest.mark.parametrize("bug", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """By the comparison with a draft from scratch."""
    FAULTS[bug](monkeypatch)
    config = speculators(**WINDOW, draft_vocab_size=200)
    with pytest.raises(AssertionError, match="logits differ"):
        require_head_from_scratch(monkeypatch, target_of("gemma2"), head_of(config), config)


@pytest.mark.parametrize(
    ("options", "guesses"), [({"block_size": 6}, 5), ({"block_size": 6, "sample_from_anchor": True}, 6)]
)
def test_a_draft_ends_with_its_block(options: dict[str, Any], guesses: int) -> None:
    """In a block of B rows, B - 1 guess, or all where the anchor's row guesses too."""
    pair = pair_of(target_of(), head_of(speculators(**options)))
    params = specdec.SamplingParams(max_new_tokens=20)
    events = rounds_of(list(specdec.speculative(pair, prompt_of(9), gamma=16, params=params)))
    assert max(len(event.draft) for event in events) == guesses == pair.draft.describe()["most_guesses"]


# --- texts -----------------------------------------------------------------------------------------------------------

GAMMAS = (*range(1, 17), "auto", specdec.ConfidenceStop(9, 0.02)) if FULL else (1, 16, "auto")


@each_once(
    family=("llama", "qwen3", "qwen3_5_text"),
    written=("a part of the vocabulary", "windows", "from the anchor", "DeepSpec"),
)
def test_greedy_text_is_that_of_generate(family: str, written: str) -> None:
    require_text_of_generate(pair_of(target_of(family), head_of(FORMATS[written])), 48 if FULL else 32, GAMMAS)


@each_once(acceptance=("lossless", "block"), family=("qwen3_5_text", "llama"), known=(2, 3), anchor=(True, False))
def test_sampled_text_has_the_targets_distribution(acceptance: str, family: str, known: int, anchor: bool) -> None:
    """Every outcome of every draw; the head knows all tokens of the target, or some, with a q of 0 for the others."""
    apart, paths = sampled_apart(small_pair(family, known, anchor), acceptance, 3)
    assert paths > 10 and apart < CLOSE


def small_pair(family: str, known: int, anchor: bool) -> specdec.Pair:
    options = SMALL | {"aux_hidden_state_layer_ids": [1, 2], "draft_vocab_size": known, "sample_from_anchor": anchor}
    return pair_of(target_of(family, 3, 3), head_of(speculators(**options)))


# --- configs and loading ---------------------------------------------------------------------------------------------


def test_numbers_of_hidden_states_and_what_rows_see() -> None:
    """z-lab counts layers, of which the output is read; speculators counts hidden states, the embedding first."""
    assert dflash_config(speculators()).layer_ids == (0, 2, 4) == dflash_config(deepspec()).layer_ids
    assert dflash_config(speculators(aux_hidden_state_layer_ids=[0, 5])).states_of(LAYERS) == (0, 5)
    full, past, around = Sight(False, None), Sight(True, 4, True), Sight(False, 4, True)
    assert dflash_config(FORMATS["windows"]).sights == (past, full)
    assert dflash_config(FORMATS["windows, not causal"]).sights == (around, full)
    assert dflash_config(FORMATS["DeepSpec"]).sights == (full, full)


def test_angles_apart_for_windows_are_those_of_all_layers() -> None:
    """As in the code of speculators, where a config gives them by the type of the layer."""
    angles = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", 1e6), ("sliding_attention", 5e4))
    }
    config = dflash_config(speculators(rope_parameters=angles, **WINDOW))
    assert config.layer.rope_parameters["rope_theta"] == 5e4


def test_a_head_that_says_it_has_nothing_of_dspark_is_a_dflash_head() -> None:
    plain, more = deepspec(), deepspec(markov_rank=8, markov_head_type="vanilla")
    assert is_dflash(plain) and not is_dspark(plain) and is_dspark(more) and not is_dflash(more)
    assert is_dspark(speculators("dspark", markov_rank=8)) and is_dflash(speculators("dspark", markov_rank=0))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another width": (speculators(hidden_size=64), "a hidden size of 64"),
    "another vocabulary": (speculators(vocab_size=400, draft_vocab_size=400), "a vocabulary of 400"),
    "a state beyond the target": (speculators(aux_hidden_state_layer_ids=[1, 7]), "reads layer 6, and the target has"),
    "the last layer": (speculators(aux_hidden_state_layer_ids=[1, 6]), "reads layer 5, the target's last one"),
    "no states": (speculators(aux_hidden_state_layer_ids=None), "does not say its aux_hidden_state_layer_ids"),
    "states that are no numbers": (speculators(aux_hidden_state_layer_ids="all"), "a list of layers"),
    "no mask": (speculators(mask_token_id=None), "does not say its mask_token_id"),
    "a mask beyond the vocabulary": (speculators(mask_token_id=5000), "the token 5,000 as its mask"),
    "no block": (speculators(block_size=None), "does not say its block_size"),
    "a block of one": (speculators(block_size=1), "a whole number, 2 or more"),
    "more tokens than the target": (speculators(draft_vocab_size=4000), "sets draft_vocab_size to 4000"),
    "no tokens": (speculators(draft_vocab_size=0), "sets draft_vocab_size to 0"),
    "an anchor that is no flag": (speculators(sample_from_anchor="yes"), "sets sample_from_anchor to 'yes'"),
    "layers of another kind": (speculators() | {"transformer_layer_config": {"model_type": "llama"}}, "only qwen3"),
    "no sizes": (speculators() | {"transformer_layer_config": None}, "does not say the sizes"),
    "another kind": (speculators() | {"speculators_model_type": "dflash2"}, "of the kind dflash2"),
    "another class": (speculators(architectures=["DFlash2DraftModel"]), "of the class DFlash2DraftModel"),
    "DeepSpec for Gemma 4": (deepspec(architectures=["Gemma4DSparkModel"]), "of the class Gemma4DSparkModel"),
    "DeepSpec, another depth": (deepspec(num_target_layers=36), "a depth in layers of 36"),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved_target(tmp_path_factory) -> str:
    return save_target(target_of(), tmp_path_factory)


@pytest.mark.parametrize("bad", BAD)
def test_a_config_that_cannot_be_used_is_refused_in_a_sentence(tmp_path, saved_target, bad: str) -> None:
    """Before any weights are read."""
    config, said = BAD[bad]
    with refused(said):
        plan_pair(saved_target, save(tmp_path / "head", config, {}))


@pytest.mark.parametrize("written", ["speculators", "a part of the vocabulary", "from the anchor", "DeepSpec"])
@pytest.mark.parametrize("named", ["a draft", "a head"])
def test_a_head_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, written: str, named: str) -> None:
    """Weights that speculators trains beside it, and the inverse of d2t, are left out."""
    config = FORMATS[written]
    weights = head_of(config).state_dict()
    further = {"verifier_norm.weight": torch.ones(HIDDEN), "t2d": torch.ones(VOCABULARY, dtype=torch.bool)}
    folder = save(tmp_path / "head", config, weights, **({} if written == "DeepSpec" else further))
    draft = folder if named == "a draft" else specdec.DFlash(folder)
    findings = {finding.topic: finding.sentence for finding in check_pair(plan_pair(saved_target, draft))}
    assert "A DFlash head of 2 layers: a draft of up to 16 guesses" in findings["Cost"]
    assert "its output matrix included" in findings["Cost"]
    assert "hidden states 1, 3, 5 (0 is the embedding, 6 the output" in findings["Head"]
    pair = load_pair(saved_target, draft)
    facts = pair.draft.describe()
    assert (facts["kind"], facts["text"], facts["layer_ids"]) == ("dflash", "dflash:head", [1, 3, 5])
    require_loaded(pair, weights)


def test_a_head_without_matrices_uses_those_of_the_target(tmp_path, saved_target) -> None:
    """As vLLM reads it, without what the target does to its logits."""
    folder = save(tmp_path / "head", speculators(), head_of(speculators(), own=False).state_dict())
    pair = load_pair(saved_target, folder)
    assert pair.draft.output.matrix is pair.target.get_output_embeddings()
    assert torch.equal(pair.draft.embedding, pair.target.get_input_embeddings().weight)
    (cost,) = [each.sentence for each in check_pair(plan_pair(saved_target, folder)) if each.topic == "Cost"]
    assert "the target's output matrix included" in cost


@pytest.mark.parametrize(
    ("without", "more", "found"),
    [
        ("fc.weight", {}, "lacks 1 of the weights.* fc.weight"),
        ("d2t", {}, "lacks 1 of the weights.* d2t"),
        ("lm_head.weight", {}, "lacks 1 of the weights.* lm_head.weight"),
        ("lm_head.weight", {"lm_head.weight": torch.ones(VOCABULARY, HIDDEN)}, "has the shape"),
        ("d2t", {"d2t": torch.full((200,), 400)}, "maps its tokens to ids that the target does not have"),
        ("", {"layers.2.mlp.up_proj.weight": torch.ones(3)}, "holds 1 .*that nothing here reads"),
        ("", {"markov_head.markov_w1.weight": torch.ones(3)}, "holds 1 .*that nothing here reads"),
        ("", {"layers.0.self_attn.attention_sink_bias": torch.ones(3)}, "holds 1 .*that nothing here reads"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_in_a_sentence(tmp_path, saved_target, without, more, found) -> None:
    config = FORMATS["a part of the vocabulary"]
    weights = {name: weight for name, weight in head_of(config).state_dict().items() if name != without}
    folder = save(tmp_path / "head", config, weights, **more)
    with refused(found, specdec.LoadFailed):
        load_pair(saved_target, specdec.DFlash(folder))
