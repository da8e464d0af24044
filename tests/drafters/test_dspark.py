"""DSpark heads: every draft and its confidence against an independent reading, texts, and loading."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from block_heads import (
    CONFIDENT,
    MARKOV,
    SMALL,
    deepspec,
    draft_from_scratch,
    head_of,
    pair_of,
    read_draft,
    require_text_of_generate,
    speculators,
    target_of,
)
from comparison import FULL
from drafting import HIDDEN, VOCABULARY, refused, require_drafts_from_scratch, require_loaded, save, save_target
from enumeration import sampled_apart
from fakes import prompt_of, rounds_of
from pairwise import each_once

import specdec
from specdec.drafters.dflash import DFlashDraft, OutputLayer
from specdec.drafters.dflash_config import DFlashConfig
from specdec.drafters.dflash_head import DFlashHead
from specdec.drafters.dspark import DSparkDraft, DSparkHead
from specdec.facts import takes_one_pass
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report import provenance

FORMATS: dict[str, dict[str, Any]] = {
    "DeepSpec": deepspec(**CONFIDENT),
    "DeepSpec, no confidence": deepspec(**MARKOV),
    "speculators": speculators("dspark", **CONFIDENT, sample_from_anchor=True, block_size=16),
    "the masks alone, some tokens": speculators("dspark", **CONFIDENT, sample_from_anchor=False, draft_vocab_size=200),
    "confidence without the token": speculators("dspark", **CONFIDENT | {"confidence_head_with_markov": False}),
    "confidence alone": speculators("dspark", markov_rank=0, enable_confidence_head=True),
}  # fmt: skip


@each_once(family=("llama", "qwen3", "qwen3_5_text"), written=tuple(FORMATS), own=(True, False))
def test_every_draft_is_that_of_the_published_head(monkeypatch, family: str, written: str, own: bool) -> None:
    """In each round: the logits of all guesses, made from the whole text. ``own``: with matrices of its own."""
    config = FORMATS[written]
    head = head_of(config, own=own or "some tokens" in written)
    require_head_from_scratch(monkeypatch, target_of(family), head, config)


def require_head_from_scratch(monkeypatch, target: Any, head: DSparkHead, config: dict[str, Any]) -> None:
    scratch = partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, pair_of(target, head), DFlashDraft, 2, scratch, 200)


@pytest.mark.parametrize("written", ["DeepSpec", "the masks alone, some tokens"])
def test_a_step_has_the_numbers_of_the_description(written: str) -> None:
    """Logits and chance of a guess, given the state and the logits of its row, within 1e-5."""
    head = head_of(FORMATS[written]).double()
    known = head.config.draft_vocabulary or VOCABULARY
    state, base, token = torch.randn(1, HIDDEN).double(), torch.randn(1, known).double(), torch.tensor([7])
    logits, chance = head.following(token, state, base)
    w = head.state_dict()
    embedded = w["markov_head.markov_w1.weight"][7]
    assert torch.allclose(logits[0], base[0] + w["markov_head.markov_w2.weight"] @ embedded, rtol=0, atol=1e-5)
    score = w["confidence_head.proj.weight"][0] @ torch.cat([state[0], embedded]) + w["confidence_head.proj.bias"]
    assert chance is not None and abs(chance.item() - score.sigmoid().item()) < 1e-5


def first_token(patch) -> None:
    """The last token of the text in place of the guess before."""
    following, first = DSparkHead.following, {}

    def wrong(self, token, state, logits):
        return following(self, first.setdefault(id(self), token), state, logits)

    def fresh(self, context, gamma, stop):
        first.clear()
        return propose(self, context, gamma, stop)

    propose = DFlashDraft.propose
    patch.setattr(DFlashDraft, "propose", fresh)
    patch.setattr(DSparkHead, "following", wrong)


def without_markov(patch) -> None:
    following = DSparkHead.following
    patch.setattr(
        DSparkHead, "following", lambda self, token, state, logits: (logits, following(self, token, state, logits)[1])
    )


def returns(patch, owner: Any, name: str, change: Any) -> None:
    method = getattr(owner, name)
    patch.setattr(owner, name, lambda self, *given: change(method(self, *given)))


FAULTS = {
    "the first token for all guesses": first_token,
    "no Markov head": without_markov,
    "rows one early": lambda patch: returns(patch, DFlashHead, "forward", lambda found: found.roll(1, 0)),
    "states in another order": lambda patch: returns(patch, DFlashConfig, "states_of", lambda found: found[::-1]),
    "logits of the next guess": lambda patch: returns(patch, OutputLayer, "of_draft", lambda found: found.roll(-1, 0)),
    "block left in the cache": lambda patch: patch.setattr(DFlashDraft, "crop_to", lambda self, length: None),
}


@pytest.mark.parametrize("bug", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """The comparison with a draft from scratch sees what would cost acceptance, and no text would show."""
    FAULTS[bug](monkeypatch)
    config = FORMATS["speculators"]
    with pytest.raises(AssertionError, match="logits differ"):
        require_head_from_scratch(monkeypatch, target_of(), head_of(config), config)


# --- confidence ------------------------------------------------------------------------------------------------------


def drafts_of(pair: specdec.Pair, gamma: Any, tokens: int = 24) -> list[tuple[list[int], list[Any]]]:
    """The text in front of each draft, and the draft's tokens."""
    text, found = prompt_of(9).tolist(), []
    for event in rounds_of(
        list(specdec.speculative(pair, prompt_of(9), gamma=gamma, params=specdec.SamplingParams(tokens)))
    ):
        if event.draft:
            found.append(([*text], list(event.draft)))
        text += event.committed_ids
    assert len(found) > 3
    return found


@pytest.mark.parametrize("written", ["DeepSpec", "the masks alone, some tokens", "confidence without the token"])
def test_the_confidence_of_a_guess_is_what_the_head_predicts(written: str) -> None:
    config = FORMATS[written]
    target, head = target_of(), head_of(config)
    for text, draft in drafts_of(pair_of(target, head), 4):
        _, sure = read_draft(target, head, config, text, len(draft))
        assert [token.draft_confidence for token in draft] == pytest.approx(sure, abs=1e-4)


def test_without_a_confidence_head_it_is_the_softmax_of_its_logits() -> None:
    config = FORMATS["DeepSpec, no confidence"]
    target, head = target_of(), head_of(config)
    for text, draft in drafts_of(pair_of(target, head), 3):
        logits, sure = read_draft(target, head, config, text, len(draft))
        chances = [row.softmax(-1).max().item() for row in logits]
        assert not sure and [token.draft_confidence for token in draft] == pytest.approx(chances, abs=1e-4)


def test_a_draft_ends_with_the_first_guess_that_the_head_doubts() -> None:
    """That guess is still checked: whether it is proposed depends on the guesses before it alone."""
    config = FORMATS["DeepSpec"]
    head, least, short = head_of(config), 0.4, 0
    for _, draft in drafts_of(pair_of(target_of(), head), specdec.ConfidenceStop(8, least)):
        doubted = [token.draft_confidence < least for token in draft]
        assert not any(doubted[:-1]) and (doubted[-1] or len(draft) <= 8)
        short += len(draft) < 8 and doubted[-1]
    assert short


# --- texts -----------------------------------------------------------------------------------------------------------

GAMMAS = (*range(1, 17), "auto", specdec.ConfidenceStop(9, 0.4)) if FULL else (1, 16, "auto")


@each_once(
    family=("llama", "qwen3", "qwen3_5_text"), written=("DeepSpec", "the masks alone, some tokens", "confidence alone")
)
def test_greedy_text_is_that_of_generate(family: str, written: str) -> None:
    require_text_of_generate(pair_of(target_of(family), head_of(FORMATS[written])), 48 if FULL else 32, GAMMAS)


@pytest.mark.full
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5_text"])
def test_a_long_greedy_text_is_that_of_generate(family: str) -> None:
    require_text_of_generate(pair_of(target_of(family), head_of(FORMATS["DeepSpec"])), 300, (4, 16, "auto"))


def small_pair(family: str = "llama", **options: Any) -> specdec.Pair:
    """Of 3 tokens, so that every outcome of every draw can be tried."""
    config = speculators("dspark", **SMALL | CONFIDENT | {"aux_hidden_state_layer_ids": [1, 2]} | options)
    return pair_of(target_of(family, 3, 3), head_of(config))


WAYS: dict[str, dict[str, Any]] = {
    "plain": {}, "a penalty": {"repetition_penalty": 1.4}, "a stop": {"gamma": specdec.ConfidenceStop(2, 0.5)},
}  # fmt: skip


@each_once(
    way=tuple(WAYS),
    acceptance=("lossless", "block"),
    family=("qwen3_5_text", "llama"),
    known=(2, 3),
    anchor=(True, False),
)
def test_sampled_text_has_the_targets_distribution(
    way: str, acceptance: str, family: str, known: int, anchor: bool
) -> None:
    """Every outcome of every draw, over rounds that follow each other."""
    pair = small_pair(family, draft_vocab_size=known, sample_from_anchor=anchor)
    apart, paths = sampled_apart(pair, acceptance, **WAYS[way])
    assert paths > 50 and apart < CLOSE


@pytest.mark.parametrize("bug", ["q before the Markov head", "q of the next guess", "another temperature"])
def test_a_q_that_no_guess_was_drawn_from_is_caught(monkeypatch, bug: str) -> None:
    """By the exact distribution."""
    drafted = DSparkDraft._drafted

    def wrong(self, states, context):
        raw, ids, q, chances = drafted(self, states, context)
        other = {
            "q before the Markov head": (self._output(states) / 1.5).softmax(-1),
            "q of the next guess": q.roll(1, 0),
            "another temperature": raw.softmax(-1),
        }
        return raw, ids, other[bug], chances

    monkeypatch.setattr(DSparkDraft, "_drafted", wrong)
    apart, _ = sampled_apart(small_pair(draft_vocab_size=3), "lossless", 4 if bug == "q of the next guess" else 3)
    assert apart > 100 * CLOSE


# --- configs and loading ---------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another width": (deepspec(**CONFIDENT, hidden_size=64), "The DSpark head was made for a hidden size of 64"),
    "another vocabulary": (deepspec(**CONFIDENT, vocab_size=400), "a vocabulary of 400"),
    "another depth": (deepspec(**CONFIDENT, num_target_layers=36), "a depth in layers of 36"),
    "a layer beyond the target": (deepspec(**CONFIDENT, target_layer_ids=[1, 6]), "reads layer 6, and the target has"),
    "a mask beyond the vocabulary": (deepspec(**CONFIDENT, mask_token_id=5000), "the token 5,000 as its mask"),
    "no block": (deepspec(**CONFIDENT, block_size=None), "does not say its block_size"),
    "a block of one": (deepspec(**CONFIDENT, block_size=1), "a whole number, 2 or more"),
    "no rank": (deepspec(**CONFIDENT | {"markov_rank": None}), "does not say its markov_rank"),
    "a rank that is none": (deepspec(**CONFIDENT | {"markov_rank": -1}), "a whole number, 0 or more"),
    "another Markov head": (deepspec(**CONFIDENT | {"markov_head_type": "rnn"}), "of the type 'rnn', and only vanilla"),
    "a token without an embedding": (deepspec(**CONFIDENT | {"markov_rank": 0}), "which needs a markov_rank above 0"),
    "a head that is no flag": (deepspec(**CONFIDENT | {"enable_confidence_head": 3}), "it must be true or false"),
    "for Gemma 4": (deepspec(**CONFIDENT, architectures=["Gemma4DSparkModel"]), "of the class Gemma4DSparkModel"),
    "another format": (deepspec(**CONFIDENT, architectures=["DSparkDraftModel"]), "of the class DSparkDraftModel"),
    "an option of another engine": (
        deepspec(**CONFIDENT, dflash_config={"attention_sink_bias": True}), "sets attention_sink_bias",
    ),
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


@pytest.mark.parametrize("written", ["DeepSpec", "the masks alone, some tokens"])
@pytest.mark.parametrize("named", ["a draft", "a head"])
def test_a_head_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, written: str, named: str) -> None:
    config = FORMATS[written]
    weights = head_of(config).state_dict()
    folder = save(tmp_path / "head", config, weights)
    draft = folder if named == "a draft" else specdec.DSpark(folder)
    findings = {finding.topic: finding.sentence for finding in check_pair(plan_pair(saved_target, draft))}
    assert "A DSpark head of 2 layers: a draft of up to 16 guesses" in findings["Cost"]
    assert "Each guess reads another" in findings["Guesses"] and "will be accepted" in findings["Confidence"]
    pair = load_pair(saved_target, draft)
    facts = pair.draft.describe()
    assert (facts["kind"], facts["text"], facts["most_guesses"]) == ("dspark", "dspark:head", 16)
    assert takes_one_pass(pair.facts()) and "DSpark head head" in provenance.pair_line(pair.facts())
    require_loaded(pair, weights)


@pytest.mark.parametrize(
    ("without", "more", "found"),
    [
        ("markov_head.markov_w2.weight", {}, "lacks 1 of the weights.* markov_head.markov_w2.weight"),
        ("confidence_head.proj.bias", {}, "lacks 1 of the weights.* confidence_head.proj.bias"),
        ("fc.weight", {}, "lacks 1 of the weights.* fc.weight"),
        ("markov_head.markov_w1.weight", {"markov_head.markov_w1.weight": torch.ones(VOCABULARY, 4)}, "has the shape"),
        ("", {"markov_head.gate_proj.weight": torch.ones(3)}, "holds 1 .*that nothing here reads"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_in_a_sentence(tmp_path, saved_target, without, more, found) -> None:
    config = FORMATS["DeepSpec"]
    weights = {name: weight for name, weight in head_of(config).state_dict().items() if name != without}
    folder = save(tmp_path / "head", config, weights, **more)
    with refused(found, specdec.LoadFailed):
        load_pair(saved_target, specdec.DSpark(folder))


def test_a_head_of_another_kind_is_no_dspark_head(tmp_path, saved_target) -> None:
    """A DFlash head would draft without what it lacks, and a DSpark head without what DFlash does not read."""
    plain = save(tmp_path / "plain", deepspec(), head_of(deepspec()).state_dict())
    with pytest.raises(specdec.IncompatiblePair, match="is not that of a DSpark head"):
        plan_pair(saved_target, specdec.DSpark(plain))
    more = save(tmp_path / "more", FORMATS["DeepSpec"], head_of(FORMATS["DeepSpec"]).state_dict())
    with pytest.raises(specdec.IncompatiblePair, match="is not that of a DFlash head"):
        plan_pair(saved_target, specdec.DFlash(more))
    for method, config in ((specdec.DFlash, FORMATS["DeepSpec"]), (specdec.DSpark, deepspec())):
        with pytest.raises(specdec.InvalidInput, match=f"give a loaded {method.label}"):
            specdec.Pair(target_of(), method(head_of(config)))
