"""DFlash heads: the forward against transformers and an independent reading, every draft against one made from scratch.

The formats of z-lab and of transformers; those of speculators and of DeepSpec are in ``test_dflash_formats.py``.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import pytest
import torch
from block_heads import (
    MUSE_SIZES,
    SMALL,
    WINDOW,
    capped,
    draft_from_scratch,
    head_of,
    pair_of,
    read_head,
    require_text_of_generate,
    target_of,
    zlab,
)
from comparison import FULL
from drafting import (
    HIDDEN,
    randomised,
    refused,
    require_close,
    require_drafts_from_scratch,
    require_loaded,
    save,
    save_target,
)
from enumeration import sampled_apart
from fakes import generated, isolated_rng, prompt_of, rounds_of
from pairwise import each_once
from transformers import (
    MuseGlimmerAssistantConfig,
    MuseGlimmerAssistantModel,
)
from transformers.cache_utils import DFlashCache
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator

import specdec
from specdec.drafters import dflash
from specdec.drafters.dflash import DFlashDraft
from specdec.drafters.dflash_config import Sight, dflash_config, is_dflash
from specdec.drafters.dflash_head import DFlashAttention, DFlashHead
from specdec.events import longest_draft
from specdec.facts import takes_one_pass
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report import provenance
from specdec.runtime.sampling import Sampler

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": WINDOW,
    "windows, not causal": WINDOW | {"is_causal": False},
    "causal": {"causal": True},
    "scales": {"input_embedding_scale": 3.0, "output_multiplier": 0.3, "final_logit_softcapping": 2.0},
    "biases, other heads": {"attention_bias": True, "head_dim": 16, "num_key_value_heads": 1},
}


def muse_config(**options: Any) -> MuseGlimmerAssistantConfig:
    sizes = {name: value for name, value in zlab(nested=False).items() if name in READ}
    kinds = ["sliding_attention", "full_attention"]
    return MuseGlimmerAssistantConfig(**{**sizes, "layer_types": kinds, "sliding_window": 4, "block_size": 5} | options)


READ = (*MUSE_SIZES, "num_hidden_layers", "mask_token_id", "target_layer_ids")


def muse_weights(model: MuseGlimmerAssistantModel) -> dict[str, torch.Tensor]:
    """Its weights by the names of our head."""
    known = model.state_dict()
    known["fc.weight"] = known.pop("encoder.fc.weight")
    known["hidden_norm.weight"] = known.pop("encoder.output_norm_enc.weight")
    return known


# --- the forward -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_a_forward_is_that_of_the_published_layers(option: str) -> None:
    """Given features: the context read in three parts, with blocks between them; states within 1e-5 of their range."""
    config = zlab(**OPTIONS[option])
    head = head_of(config).double()
    with isolated_rng(1):
        features, blocks = torch.randn(11, 3 * HIDDEN).double(), torch.randn(2, 7, HIDDEN).double()
    caches = head.new_caches()
    head.read(head.fused(features[:6]), caches)
    for end, start, block in ((8, 6, blocks[0]), (11, 8, blocks[1])):
        ours = head(block, head.fused(features[start:end]), caches)
        require_close(ours, read_head(head, config, features[:end], block), 1e-5)
        for layer in caches:
            layer.crop(-len(block))


@pytest.mark.parametrize("kinds", [("sliding", "full"), ("sliding", "sliding"), ("full", "full")])
def test_a_forward_is_that_of_transformers(kinds: tuple[str, ...]) -> None:
    """Over three rounds, in and beyond the window."""
    config = muse_config(layer_types=[f"{kind}_attention" for kind in kinds])
    theirs = randomised(MuseGlimmerAssistantModel(config)).double()
    head = DFlashHead(dflash_config(config.to_dict())).double().eval()
    head.load_state_dict(muse_weights(theirs))
    with isolated_rng(1):
        features, blocks = torch.randn(13, 3 * HIDDEN).double(), torch.randn(3, 5, HIDDEN).double()
    cache, caches = DFlashCache(config=config), head.new_caches()
    cache.activate_past_recording()
    for (start, end), block in zip(((0, 2), (2, 5), (5, 13)), blocks, strict=True):
        cache.set_previous_accepted_tokens(end - start)
        context = features[start:end]
        out = theirs(noise_embeds=block[None], context_hidden_states=context[None], past_key_values=cache)
        cache.crop(-len(block))
        with torch.no_grad():
            require_close(head(block, head.fused(context), caches), out.last_hidden_state[0], 1e-5)
        for layer in caches:
            layer.crop(-len(block))


@pytest.mark.parametrize("bug", ["window ignored", "window one longer", "causal", "rotary positions from 0"])
def test_a_wrong_forward_is_caught(monkeypatch, bug: str) -> None:
    """By the comparison with transformers."""
    of = Sight.of
    if bug == "rotary positions from 0":
        angles = DFlashHead._angles
        monkeypatch.setattr(DFlashHead, "_angles", lambda self, like, start, count: angles(self, like, 0, count))
    else:
        other = {"window ignored": {"reach": None}, "causal": {"causal": True}}
        longer = lambda sight: {"reach": None if sight.reach is None else sight.reach + 1}  # noqa: E731
        monkeypatch.setattr(Sight, "of", lambda self, *given: of(self._replace(**other.get(bug, longer(self))), *given))
    with pytest.raises(AssertionError, match="logits differ"):
        test_a_forward_is_that_of_transformers(("sliding", "full"))


# --- drafts ----------------------------------------------------------------------------------------------------------


@each_once(family=("llama", "qwen3", "qwen3_5_text", "gemma2", "muse_glimmer"), option=tuple(OPTIONS))
def test_every_draft_is_that_of_the_published_layers(monkeypatch, family: str, option: str) -> None:
    """In each round, after rejections and full acceptances: the logits of all guesses, made from the whole text."""
    config = zlab(**OPTIONS[option])
    target, head = target_of(family), head_of(config)
    scratch = partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, specdec.Pair(target, specdec.DFlash(head)), DFlashDraft, 2, scratch, 200)


@pytest.mark.parametrize("family", ["llama", "muse_glimmer"])
def test_every_draft_is_that_of_transformers(monkeypatch, family: str) -> None:
    """Beside ``generate`` with ``DFlashTokenCandidateGenerator``, which leaves out what a target does to its logits."""
    target, prompt_ids, theirs = target_of(family), prompt_of(9), {}
    model = randomised(MuseGlimmerAssistantModel(muse_config()))
    candidates = DFlashTokenCandidateGenerator.get_candidates

    def noted(self, input_ids, *given, **named):
        ids, logits = candidates(self, input_ids, *given, **named)
        if logits is not None:
            theirs[tuple(input_ids[0].tolist())] = logits[0].clone()
        return ids, logits

    monkeypatch.setattr(DFlashTokenCandidateGenerator, "get_candidates", noted)
    text = generated(target, prompt_ids, 30, assistant_model=model, speculation_type="dflash")
    head = DFlashHead(dflash_config(model.config.to_dict())).eval()
    head.load_state_dict(muse_weights(model))
    drafts = drafts_of(monkeypatch, specdec.Pair(target, specdec.DFlash(head)), prompt_ids, 4, 30)
    whole = {before: logits for before, logits in drafts.items() if len(logits) == 4}
    assert len(whole) > 20 and whole.keys() <= theirs.keys() and len(text) == 30
    for before, logits in whole.items():  # whole blocks, because transformers shortens none
        require_close(logits, capped(target, theirs[before].double()), 1e-5)


def drafts_of(monkeypatch, pair: specdec.Pair, prompt_ids: torch.Tensor, gamma: Any, tokens: int) -> dict:
    """The logits of each draft of a greedy call, by the text in front of it."""
    found, propose = {}, DFlashDraft.propose

    def noted(self, context, gamma, stop):
        before, proposal = tuple(context.tokens), propose(self, context, gamma, stop)
        if len(proposal.ids):
            found[before] = torch.cat(proposal.choices.logits)
        return proposal

    with monkeypatch.context() as patched:
        patched.setattr(DFlashDraft, "propose", noted)
        list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=specdec.SamplingParams(tokens)))
    return found


def stale_features(monkeypatch) -> None:
    take = DFlashDraft._take
    monkeypatch.setattr(DFlashDraft, "_take", lambda self, start, rows: take(self, start, rows.roll(1, 0)))


def context_of_rejected_rows(monkeypatch) -> None:
    """The end of the features in place of their beginning."""
    new = DFlashDraft._new_context

    def wrong(self, end: int) -> torch.Tensor:
        self._features = self._features.flip(0)
        return new(self, end)

    monkeypatch.setattr(DFlashDraft, "_new_context", wrong)


def layer_before(monkeypatch) -> None:
    fused = DFlashHead.fused
    monkeypatch.setattr(DFlashHead, "fused", lambda self, rows: fused(self, rows.roll(HIDDEN, -1)))


def context_normed_twice(monkeypatch) -> None:
    write = DFlashAttention.write
    monkeypatch.setattr(DFlashAttention, "write", lambda self, x, *given: write(self, x / x.norm(), *given))


def rows_one_early(monkeypatch) -> None:
    forward = DFlashHead.forward
    monkeypatch.setattr(DFlashHead, "forward", lambda self, *given: forward(self, *given).roll(1, 0))


def scaled_embedding(monkeypatch) -> None:
    """As the target scales it, which is Gemma."""
    forward, scale = DFlashHead.forward, math.sqrt(HIDDEN)
    monkeypatch.setattr(DFlashHead, "forward", lambda self, block, *given: forward(self, block * scale, *given))


FAULTS = {
    "stale features": stale_features,
    "context of rejected rows": context_of_rejected_rows,
    "features in another order": layer_before,
    "another norm of the context": context_normed_twice,
    "row of the place before": rows_one_early,
    "block left in the cache": lambda patch: patch.setattr(DFlashDraft, "crop_to", lambda self, length: None),
    "a scaled embedding": scaled_embedding,
    "softcap left out": lambda patch: patch.setattr(
        dflash.OutputLayer, "__call__", lambda self, states: self.matrix(states).float()
    ),
}


@pytest.mark.parametrize("bug", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """The comparison with a draft from scratch sees what would cost acceptance, and no text would show."""
    FAULTS[bug](monkeypatch)
    with pytest.raises(AssertionError, match="logits differ"):
        test_every_draft_is_that_of_the_published_layers(monkeypatch, "gemma2", "windows")


def test_a_draft_takes_one_pass_and_ends_with_its_block() -> None:
    """Whatever its length; the draft is no longer than the block has masks, and the block no longer than the draft."""
    head = head_of(zlab(block_size=6))
    pair, rows = specdec.Pair(target_of(), specdec.DFlash(head)), []
    handle = head.norm.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    for gamma in (1, 3, 5, 16):
        rows.clear()
        params = specdec.SamplingParams(max_new_tokens=20)
        events = rounds_of(list(specdec.speculative(pair, prompt_of(9), gamma=gamma, params=params)))
        drafts = [len(event.draft) for event in events if event.draft]
        assert rows == [count + 1 for count in drafts] and max(drafts) == min(gamma, 5)
    handle.remove()


# --- texts -----------------------------------------------------------------------------------------------------------

GAMMAS = (*range(1, 17), "auto", specdec.ConfidenceStop(9, 0.02)) if FULL else (1, 3, 16, "auto")


@each_once(family=("llama", "qwen3", "qwen3_5_text"), option=("plain", "windows", "windows, not causal"))
def test_greedy_text_is_that_of_generate(family: str, option: str) -> None:
    """Whatever the head guesses; by the lean forward and by the models' own."""
    require_text_of_generate(pair_of(target_of(family), head_of(zlab(**OPTIONS[option]))), 64 if FULL else 32, GAMMAS)


@pytest.mark.full
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5_text"])
def test_a_long_greedy_text_is_that_of_generate(family: str) -> None:
    require_text_of_generate(pair_of(target_of(family), head_of(zlab(**WINDOW))), 300, (4, 16, "auto"))


class Pausing:
    """Draft nothing in every other round."""

    least_confidence = None

    def start(self) -> Pausing:
        self._rounds = 0
        return self

    def length(self) -> int:
        return 3 * (self._rounds % 2)

    def saw(self, event: specdec.Round) -> None:
        self._rounds = event.index


@pytest.mark.parametrize("length", [1, 2])
def test_a_short_prompt_and_drafts_that_pause(monkeypatch, length: int) -> None:
    """What the head has not read waits for the next draft, whose logits are those of a draft from scratch."""
    config = zlab()
    target, head, prompt_ids = target_of(), head_of(config), prompt_of(length)
    drafts = drafts_of(monkeypatch, specdec.Pair(target, specdec.DFlash(head)), prompt_ids, Pausing(), 12)
    assert len(drafts) > 3
    for text, logits in drafts.items():
        scratch = draft_from_scratch(target, head, config, list(text), len(logits))
        require_close(logits, torch.stack(scratch), 1e-4)


PARAMS: dict[str, dict[str, Any]] = {"plain": {}, "a penalty": {"repetition_penalty": 1.4}}


@each_once(settings=tuple(PARAMS), acceptance=("lossless", "block"), family=("qwen3_5_text", "llama"))
def test_sampled_text_has_the_targets_distribution(family: str, acceptance: str, settings: str) -> None:
    """Every outcome of every draw, over rounds that follow each other."""
    apart, paths = sampled_apart(small_pair(family), acceptance, **PARAMS[settings])
    assert paths > 100 and apart < CLOSE


def small_pair(family: str = "llama") -> specdec.Pair:
    options = SMALL | {"num_target_layers": 3, "target_layer_ids": [0, 1]}
    return pair_of(target_of(family, 3, 3), head_of(zlab(**options, **WINDOW)))


@pytest.mark.parametrize("bug", ["another temperature", "the next row", "no penalty"])
def test_a_wrong_q_is_caught(monkeypatch, bug: str) -> None:
    """By the exact distribution."""
    guesses = DFlashDraft._guesses

    def wrong(self, raw, *given):
        ids, q = guesses(self, raw, *given)
        if bug == "another temperature":
            return ids, raw.softmax(-1)
        return ids, q.roll(1, 0) if bug == "the next row" else (raw / 1.5).softmax(-1)

    monkeypatch.setattr(DFlashDraft, "_guesses", wrong)
    settings, tokens = "a penalty" if bug == "no penalty" else "plain", 4 if bug == "the next row" else 3
    apart, _ = sampled_apart(small_pair(), "lossless", tokens, **PARAMS[settings])
    assert apart > 100 * CLOSE


def test_a_penalty_sees_the_guesses_before(monkeypatch) -> None:
    """q of a guess is what the processors make of its row after the committed text and the guesses before it."""
    seen, process = [], Sampler.process

    def noted(self, logits, context, end):
        seen.append((len(logits), end, context.ids(0, end).tolist()))
        return process(self, logits, context, end)

    pair = specdec.Pair(target_of(), specdec.DFlash(head_of(zlab())))
    params = specdec.SamplingParams(max_new_tokens=5, repetition_penalty=1.3)
    monkeypatch.setattr(Sampler, "process", noted)
    events = rounds_of(list(specdec.speculative(pair, prompt_of(9), gamma=3, params=params)))
    drafted = [token.token_id for token in events[1].draft]
    assert [rows for rows, _, _ in seen[1:4]] == [1, 1, 1]  # after the pass over the prompt
    text = [*prompt_of(9).tolist(), *events[0].committed_ids]
    assert [ids for _, _, ids in seen[1:4]] == [[*text, *drafted[:i]] for i in range(3)]


# --- guesses that are right ------------------------------------------------------------------------------------------


@cache
def fitted() -> tuple[DFlashHead, torch.Tensor, tuple[int, ...]]:
    """A head that was trained on one text of the target, that text's prompt, and the text."""
    target, prompt_ids = target_of(), prompt_of(9)
    text = generated(target, prompt_ids, 40)
    ids = torch.tensor([*prompt_ids.tolist(), *text])
    with torch.no_grad():
        out = target(input_ids=ids[None], use_cache=False, output_hidden_states=True)
    features = torch.cat([out.hidden_states[i + 1][0] for i in (0, 2, 4)], -1)
    table, matrix = target.get_input_embeddings().weight.detach(), target.get_output_embeddings().weight.detach()
    head = head_of(zlab(block_size=5)).requires_grad_(True)
    best = torch.optim.Adam(head.parameters(), 3e-3)
    anchors = len(text) - 4
    for step in range(8 * anchors):
        anchor = 9 + 5 * step % anchors
        block = table[torch.tensor([ids[anchor], 3, 3, 3, 3])]
        states = head(block, head.fused(features[:anchor]), head.new_caches())[1:]
        loss = torch.nn.functional.cross_entropy(states @ matrix.T, ids[anchor + 1 : anchor + 5])
        best.zero_grad()
        loss.backward()
        best.step()
    return head.requires_grad_(False), prompt_ids, text


def accepted_share() -> float:
    head, prompt_ids, text = fitted()
    pair = specdec.Pair(target_of(), specdec.DFlash(head))
    params = specdec.SamplingParams(max_new_tokens=40)
    result = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=4, params=params))
    assert tuple(result.token_ids) == text
    return result.metrics.alpha


def test_a_head_that_was_fitted_guesses_right() -> None:
    """A random head keeps next to nothing. This one would too if the call fed it other features or places."""
    assert accepted_share() > 0.8


@pytest.mark.parametrize("bug", ["stale features", "row of the place before", "features in another order"])
def test_a_fitted_head_that_is_fed_wrongly_guesses_wrong(monkeypatch, bug: str) -> None:
    fitted()
    FAULTS[bug](monkeypatch)
    assert accepted_share() < 0.4


# --- configs ---------------------------------------------------------------------------------------------------------


def test_an_option_is_read_in_both_places_and_may_not_contradict_itself() -> None:
    """In ``dflash_config``, and at the top level as in z-lab's older configs."""
    everywhere = {"causal": True, "input_embedding_scale": 3.0, "output_multiplier": 0.3}
    outside, inside = (dflash_config(zlab(nested, **everywhere)) for nested in (False, True))
    assert vars(outside) | {"layer": None} == vars(inside) | {"layer": None}
    for name, other in (("block_size", 9), ("mask_token_id", 4), ("target_layer_ids", [0, 1])):
        config = zlab(**{name: other}) | {name: zlab(nested=False)[name]}
        with pytest.raises(specdec.IncompatiblePair, match=f"sets {name} to .* another place"):
            dflash_config(config)
    contradiction = zlab(causal=True, is_causal=False)
    with pytest.raises(specdec.IncompatiblePair, match="sets is_causal to False, and to True"):
        dflash_config(contradiction)


def test_what_a_layer_sees_follows_its_type() -> None:
    """z-lab's layers with a window are causal unless the config says otherwise; those of Muse-Glimmer never are."""
    sights = {name: dflash_config(zlab(**OPTIONS[name])).sights for name in OPTIONS}
    full, past, around = Sight(False, None), Sight(True, 3), Sight(False, 3)
    assert sights["plain"] == (full, full) and sights["causal"] == (Sight(True, None),) * 2
    assert sights["windows"] == (past, full) and sights["windows, not causal"] == (around, full)
    unsaid = zlab(**WINDOW)
    del unsaid["use_sliding_window"]
    assert dflash_config(unsaid).sights == (past, full)
    assert dflash_config(muse_config().to_dict()).sights == (Sight(False, 4), full)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"target_layer_ids": None}, "does not say its target_layer_ids"),
    "an empty list of layers": ({"target_layer_ids": []}, "does not say its target_layer_ids"),
    "layers that are no numbers": ({"target_layer_ids": ["0"]}, "a list of layers"),
    "no mask": ({"mask_token_id": None}, "does not say its mask_token_id"),
    "no block": ({"block_size": None}, "does not say its block_size"),
    "a block of one": ({"block_size": 1}, "a whole number, 2 or more"),
    "a block that is no number": ({"block_size": "16"}, "a whole number, 2 or more"),
    "a negative mask": ({"mask_token_id": -1}, "a whole number, 0 or more"),
    "no scale": ({"input_embedding_scale": 0}, "a number above 0"),
    "a wrong scale": ({"output_multiplier": "1"}, "a number above 0"),
    "a causal text": ({"is_causal": "yes"}, "true or false"),
    "other layers": ({"model_type": "llama"}, "only qwen3 is read"),
    "a window without a size": (WINDOW | {"sliding_window": None}, "sets sliding_window to None"),
    "a window that nothing says": (WINDOW | {"sliding_window": ...}, "sets sliding_window to None"),
    "no layer": ({"num_hidden_layers": 0, "layer_types": []}, "sets num_hidden_layers to 0"),
    "too few types": ({"layer_types": ["full_attention"]}, "could not be loaded|names 1 layer_types for 2"),
    "other types": ({"layer_types": ["full_attention", "linear_attention"]}, "'linear_attention' among them"),
    "dynamic angles": ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "change with the length"),
    "DFlash 2": ({"architectures": ["DFlash2DraftModel"]}, "of the class DFlash2DraftModel"),
    "an option of another engine": ({"dflash_config": {"attention_sink_bias": True}}, "sets attention_sink_bias"),
    "another kind of speculators": ({"speculators_model_type": "dflash2"}, "of the kind dflash2"),
    "another width": ({"hidden_size": 64}, "a hidden size of 64"),
    "another vocabulary": ({"vocab_size": 400}, "a vocabulary of 400"),
    "another depth": ({"num_target_layers": 36}, "a depth in layers of 36"),
    "a mask beyond the vocabulary": ({"mask_token_id": 5000}, "the token 5,000 as its mask"),
    "a layer beyond the target": ({"target_layer_ids": [1, 6]}, "reads layer 6, and the target has layers 0 to 5"),
    "the last layer": ({"target_layer_ids": [1, 5]}, "reads layer 5, the target's last one"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_config_that_cannot_be_used_is_refused_in_a_sentence(tmp_path, saved_target, bad: str) -> None:
    """Before any weights are read, as a draft and as a head."""
    changes, said = BAD[bad]
    config = zlab(**{name: value for name, value in changes.items() if name != "dflash_config"})
    config["dflash_config"] |= changes.get("dflash_config", {})
    config = {name: value for name, value in config.items() if value is not ...}  # left out
    folder = save(tmp_path / "head", config, {})
    for draft in (folder, specdec.DFlash(folder)):
        with refused(said):
            plan_pair(saved_target, draft)


def test_a_config_of_a_whole_model_is_none_of_a_head() -> None:
    assert is_dflash(zlab()) and is_dflash(muse_config().to_dict())
    assert not is_dflash(target_of("qwen3").config.to_dict())


# --- loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved_target(tmp_path_factory) -> str:
    return save_target(target_of(), tmp_path_factory)


@pytest.mark.parametrize("written", ["z-lab", "z-lab, older", "transformers"])
@pytest.mark.parametrize("named", ["a draft", "a head"])
def test_a_head_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, written: str, named: str) -> None:
    folder = tmp_path / "head"
    if written == "transformers":
        model = randomised(MuseGlimmerAssistantModel(muse_config()))
        model.save_pretrained(folder)
        weights = muse_weights(model)
    else:
        head = head_of(zlab(nested=written == "z-lab"))
        weights = head.state_dict()
        save(folder, zlab(nested=written == "z-lab"), weights)
    draft = str(folder) if named == "a draft" else specdec.DFlash(str(folder))
    findings = {finding.topic: finding.sentence for finding in check_pair(plan_pair(saved_target, draft))}
    assert "up to 4 guesses" in findings["Cost"] or "up to 16 guesses" in findings["Cost"]
    assert "hidden states 1, 3, 5 (0 is the embedding, 6 the output" in findings["Head"]
    pair = load_pair(saved_target, draft)
    facts = pair.draft.describe()
    assert (facts["kind"], facts["text"], facts["layers"]) == ("dflash", "dflash:head", 2)
    assert facts["depends_on_start"] and facts["local"] and facts["layer_ids"] == [1, 3, 5]
    assert facts["one_pass"] and takes_one_pass(pair.facts())
    assert facts["most_guesses"] == longest_draft(pair.facts()) == pair.draft.head.config.guesses
    assert "DFlash head head" in provenance.pair_line(pair.facts())  # it lies in a folder of this name
    require_loaded(pair, weights)


@pytest.mark.parametrize(
    ("without", "more", "found"),
    [
        ("fc.weight", {}, "lacks 1 of the weights.* fc.weight"),
        ("layers.1.self_attn.k_norm.weight", {}, "lacks 1 of the weights"),
        ("norm.weight", {"norm.weight": torch.ones(64)}, "has the shape"),
        ("", {"lm_head.weight": torch.ones(3)}, "holds 1 .*lm_head.weight.* that nothing here reads"),
        ("", {"layers.2.mlp.up_proj.weight": torch.ones(3)}, "holds 1 .*that nothing here reads"),
        ("", {"markov_head.w1.weight": torch.ones(3)}, "holds 1 .*that nothing here reads"),
        ("", {"mask_embedding": torch.ones(3)}, "holds 1 .*that nothing here reads"),
        ("norm.weight", {"norm.weight": torch.full((HIDDEN,), math.nan)}, "holds NaN or infinity"),
        ("fc.weight", {"fc.weight": torch.ones(HIDDEN, 3 * HIDDEN, dtype=torch.int8)}, "in 8 bits or fewer"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_a_sentence(tmp_path, saved_target, without, more, found) -> None:
    weights = {name: weight for name, weight in head_of(zlab()).state_dict().items() if name != without}
    folder = save(tmp_path / "head", zlab(), weights, **more)
    with refused(found, specdec.LoadFailed):
        load_pair(saved_target, specdec.DFlash(folder))


def test_a_head_of_another_kind_is_no_dflash_head(saved_target) -> None:
    embedded = str(load_pair.__globals__["EMBEDDED"] / "head")
    with pytest.raises(specdec.IncompatiblePair, match="is not that of a DFlash head"):
        plan_pair(saved_target, specdec.DFlash(embedded))
    with pytest.raises(specdec.InvalidInput, match="load_pair takes names"):
        specdec.Pair(target_of(), specdec.DFlash("some/head"))


def test_in_float16_the_features_are_joined_in_float32(tmp_path, saved_target) -> None:
    """Their sums exceed what float16 holds."""
    weights = head_of(zlab()).state_dict()
    weights["fc.weight"] = weights["fc.weight"] * 1e5
    folder = save(tmp_path / "head", zlab(), weights)
    pair = load_pair(saved_target, folder, dtype="float16", draft_dtype="float16")
    head = pair.draft.head
    assert (head.fc.weight.dtype, head.norm.weight.dtype) == (torch.float32, torch.float16)
    params = specdec.SamplingParams(max_new_tokens=8)
    events = rounds_of(list(specdec.speculative(pair, "abc", gamma=3, params=params)))
    chances = [token.draft_confidence for event in events for token in event.draft]
    assert chances and all(math.isfinite(chance) for chance in chances)
    with pytest.raises(specdec.InvalidInput, match="fc in float16"):
        specdec.Pair(pair.target, specdec.DFlash(head.half()))
