"""Gemma 4 assistants: the forward and every draft against transformers' own module, texts, and what fits no target.

transformers 5.23 cannot build an assistant, because it refuses a config of layers that all read another model's keys.
Here that one property is repaired, and the module is taken as it is. What it is given is made from scratch: the
target's states and keys from a pass over the whole text.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import drafting
import pytest
import torch
import torch.nn.functional as F
from comparison import FULL, HOURS, Comparison
from drafting import refused, require_close, require_drafts_from_scratch, save_target
from enumeration import OfModel, sampled_apart
from fakes import generated, isolated_rng, prompt_of, rounds_of, tiny
from pairwise import each_once, few, pairwise
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DynamicCache,
    Gemma4Config,
    Gemma4TextConfig,
    Gemma4UnifiedTextConfig,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

import specdec
from specdec.drafters.gemma4_assistant import Gemma4AssistantDraft
from specdec.drafters.gemma4_assistant_head import AssistantConfig, Gemma4AssistantHead, assistant_config
from specdec.forward.hf import HFForward
from specdec.forward.runner import Runner
from specdec.lanes import hf_generate
from specdec.lanes.hf_assistants import Assistance, with_config
from specdec.measure.enumeration import CLOSE, Script, Undecided, distance
from specdec.measure.losslessness import self_test
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report.losslessness import losslessness_headline

HIDDEN, VOCABULARY, WINDOW, CONTEXT = 48, 320, 8, 512
TURNS = ["sliding_attention", "full_attention"]
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16}
# Like E2B and E4B; like 31B, whose layers share nothing; like 26B-A4B; a text model within a larger one; like 12B.
TARGETS: dict[str, dict[str, Any]] = {
    "shared": {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "final_logit_softcapping": 30.0},
    "unshared": {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    "experts": {
        "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    "images too": {"num_kv_shared_layers": 2},
    "unified": {},
}  # fmt: skip


def target_of(like: str = "shared", vocabulary: int = VOCABULARY):
    sizes = {
        "hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 6, "layer_types": TURNS * 3,
        "vocab_size": vocabulary, "sliding_window": WINDOW, "max_position_embeddings": CONTEXT,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0, "tie_word_embeddings": False,
    } | HEADS  # fmt: skip
    inputs = {"vocab_size_per_layer_input": vocabulary, "hidden_size_per_layer_input": 8}
    if like == "unified":
        config = Gemma4UnifiedTextConfig(**sizes)
    else:
        config = Gemma4TextConfig(**sizes | inputs | TARGETS[like])
    if like == "images too":
        config = Gemma4Config(text_config=config, vision_config=None, audio_config=None, tie_word_embeddings=False)
    with isolated_rng(3):
        target = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for weight in target.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.3)
    target.generation_config.eos_token_id, target.generation_config.pad_token_id = None, 0
    return target


def config_of(like: str = "shared", vocabulary: int = VOCABULARY, layer: Any = None, **options: Any) -> dict[str, Any]:
    """A ``config.json`` as it is published, for a target like this one."""
    family = "gemma4_unified" if like == "unified" else "gemma4"
    text = {
        "model_type": f"{family}_text", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
        "layer_types": [TURNS[0], TURNS[0], TURNS[1]], "vocab_size": vocabulary, "sliding_window": WINDOW,
        **({} if like == "unified" else {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}),
        **({"attention_k_eq_v": True, "num_global_key_value_heads": 1} if like == "unshared" else {}),
    } | HEADS | (layer or {})  # fmt: skip
    return {"model_type": f"{family}_assistant", "backbone_hidden_size": HIDDEN, "text_config": text} | options


def grouped(groups: int = 16, best: int = 3) -> dict[str, Any]:
    return {"use_ordered_embeddings": True, "num_centroids": groups, "centroid_intermediate_top_k": best}


def head_of(config: dict[str, Any]) -> Gemma4AssistantHead:
    """An assistant with random weights; its groups hold scattered tokens."""
    with isolated_rng(0):
        head = Gemma4AssistantHead(assistant_config(config), "random").eval().requires_grad_(False)
        for name, weight in head.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
        for layer in head.layers:
            layer.layer_scalar.fill_(float(torch.rand(())) + 0.5)
        if head.masked_embedding is not None:
            head.masked_embedding.token_ordering.copy_(torch.randperm(head.config.layer.vocab_size))
    return head


# --- transformers' module ---------------------------------------------------------------------------------------------

OUTSIDE = ("pre_projection", "post_projection", "lm_head", "masked_embedding")


def their_names(head: Gemma4AssistantHead) -> dict[str, torch.Tensor]:
    """The weights under the names that transformers gives them."""
    named = head.state_dict().items()
    return {name if name.startswith(OUTSIDE) else f"model.{name}": weight.clone() for name, weight in named}


def theirs_of(head: Gemma4AssistantHead, config: dict[str, Any]) -> PreTrainedModel:
    """The same weights in transformers' module, built where layers without keys of their own are no error."""
    kind = Gemma4UnifiedTextConfig if "unified" in config["model_type"] else Gemma4TextConfig
    with mock.patch.object(kind, "kv_sharing_modes", property(lambda layers: ["reuse"] * layers.num_hidden_layers)):
        theirs = AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]](**config))
    theirs.load_state_dict(their_names(head) | {"model.embed_tokens.weight": head.lm_head.weight})
    return theirs.eval().requires_grad_(False).to(head.norm.weight.dtype)


def their_guess(theirs, embedded, state, place: int, keys: dict) -> tuple[torch.Tensor, torch.Tensor]:
    out = theirs(
        inputs_embeds=torch.cat([embedded, state], -1)[None],
        position_ids=torch.tensor([[place]]),
        shared_kv_states={kind: tuple(part[None] for part in states) for kind, states in keys.items()},
    )
    logits = out.logits[0]
    if theirs.masked_embedding is not None:  # what is no candidate has one logit, below those of the candidates
        logits = torch.where(logits > logits.min(), logits, float("-inf"))
    return logits, out.last_hidden_state[0]


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("shared", {}),
    "groups of tokens": ("shared", grouped()),
    "biases, one head of keys": ("unshared", {"layer": {"attention_bias": True}}),
    "its own output matrix": ("shared", {"tie_word_embeddings": False}),
    "other layers": ("shared", {"layer": {"layer_types": TURNS * 2, "num_hidden_layers": 4, "sliding_window": 5}}),
    "unified": ("unified", {}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_forward_is_that_of_transformers(option: str) -> None:
    """Given keys of the target, and three guesses that follow each other: within 1e-5 of the range of the logits."""
    like, settings = OPTIONS[option]
    config = config_of(like, **settings)
    head = head_of(config).double()
    theirs, layer, keys = theirs_of(head, config), head.config.layer, {}
    with isolated_rng(1):
        embedded, state = torch.randn(3, 1, HIDDEN).double(), torch.randn(1, HIDDEN).double()
        for kind in TURNS:
            one = layer.per_layer_config[kind]
            keys[kind] = tuple(torch.randn(2, one.num_key_value_heads, 30, one.head_dim).double())
    seen = head.seen(30, keys)
    cut = keys | {TURNS[0]: tuple(part[:, 31 - layer.sliding_window :] for part in keys[TURNS[0]])}
    ours = after = state
    for e in embedded:
        logits, ours = head(e, ours, seen)
        expected, after = their_guess(theirs, e, after, 30, cut)
        require_close(logits, expected, 1e-5)
        require_close(ours, after, 1e-5)


# --- drafts from scratch ----------------------------------------------------------------------------------------------


@torch.no_grad()
def read(target, text: list[int]) -> tuple[torch.Tensor, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """The target's last state before the last token of ``text``, and the keys and values that this token would see."""
    cache, keys = DynamicCache(), {}  # without a config every layer keeps all tokens
    ids = torch.tensor([text[:-1]])
    out = target(input_ids=ids, past_key_values=cache, use_cache=True, output_hidden_states=True)
    for number, layer in enumerate(target.get_decoder().layers):
        if hasattr(layer.self_attn, "k_proj"):  # the last of each kind counts
            kind, held = layer.self_attn.layer_type, cache.layers[number]
            low = max(0, len(text) - WINDOW) if kind == TURNS[0] else 0
            keys[kind] = held.keys[0, :, low:], held.values[0, :, low:]
    return out.hidden_states[-1][0, -1:], keys


def draft_from_scratch(target, theirs, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` greedy guesses after ``text``, all of it read anew."""
    state, keys = read(target, text)
    token, found = torch.tensor(text[-1:]), []
    for _ in range(gamma):
        logits, state = their_guess(theirs, target.get_input_embeddings()(token), state, len(text) - 1, keys)
        found.append(logits[0].double())
        token = logits.argmax(-1)
    return found


@pairwise(like=tuple(TARGETS), option=("plain", "groups of tokens"))
def test_every_draft_is_that_of_transformers(monkeypatch, like: str, option: str) -> None:
    """In each round, after rejections and full acceptances, beyond the window: the logits of all guesses."""
    config = config_of(like, **OPTIONS[option][1])
    target, head = target_of(like), head_of(config)
    pair, scratch = specdec.Pair(target, specdec.Gemma4Assistant(head)), partial(draft_from_scratch, target)
    require_drafts_from_scratch(monkeypatch, pair, Gemma4AssistantDraft, 2, partial(scratch, theirs_of(head, config)))


take, forward, bound = Gemma4AssistantDraft._take, Gemma4AssistantDraft._forward, specdec.Gemma4Assistant.bound_to
sees, guess, keys_of = Gemma4AssistantHead.seen, Gemma4AssistantHead.forward, Runner.keys_values


def moving(self, context, end):
    """The place moves on with each guess."""
    found = forward(self, context, end)
    self._seen = self._head.seen(end, {kind: keys_of(self._target, number) for kind, number in self._sources.items()})
    return found


def unscaled(self, target, tokenizer):
    found = bound(self, target, tokenizer)
    return replace(found, embedding=partial(F.embedding, weight=found.embedding.weight))


def uncropped(self, layer: int, length: int):
    held = self._cache.layers[layer]
    return held.keys[0], held.values[0]


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the state of the token before": (Gemma4AssistantDraft, "_take", lambda s, at, rows: take(s, at, rows.roll(1, 0))),
    "the place moves on": (Gemma4AssistantDraft, "_forward", moving),
    "the place of the token before": (Gemma4AssistantHead, "seen", lambda s, at, held: sees(s, at - 1, held)),
    "keys of rejected guesses": (HFForward, "keys_values", uncropped),
    "keys without the first": (Runner, "keys_values", lambda s, n: tuple(part[:, 1:] for part in keys_of(s, n))),
    "keys of another layer": (AssistantConfig, "sources", lambda s, target: dict(zip(TURNS, (0, 1), strict=True))),
    "an embedding without its scale": (specdec.Gemma4Assistant, "bound_to", unscaled),
    "joined the other way round": (Gemma4AssistantHead, "forward", lambda s, e, state, k: guess(s, state, e, k)),
    "one state for all guesses": (
        Gemma4AssistantHead, "forward", lambda s, e, state, k: (guess(s, e, state, k)[0], state)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, fault: str) -> None:
    """The comparison with transformers sees what would cost acceptance, and no text would show."""
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match="logits differ"):
        test_every_draft_is_that_of_transformers(monkeypatch, "shared", "plain")


def test_a_fitted_assistant_guesses_right() -> None:
    """Its output is fitted to the states that transformers' module makes along a greedy text, two from each place."""
    target, config, prompt_ids = target_of(), config_of(layer={"hidden_size": 96}), prompt_of(9)
    head, text = head_of(config), [*prompt_ids.tolist(), *generated(target, prompt_ids, 40)]
    pair, params = specdec.Pair(target, specdec.Gemma4Assistant(head)), specdec.SamplingParams(max_new_tokens=40)

    def alpha() -> float:
        return specdec.collect(specdec.speculative(pair, prompt_ids, gamma=2, params=params)).metrics.alpha

    assert alpha() < 0.1
    theirs, made, wanted = theirs_of(head, config), [], []
    theirs.lm_head.register_forward_pre_hook(lambda module, given: made.append(given[0][0]))
    for length in range(len(prompt_ids) + 1, len(text) - 1):
        state, keys = read(target, text[:length])
        for end in (length, length + 1):
            token = target.get_input_embeddings()(torch.tensor(text[end - 1 : end])).detach()
            state = their_guess(theirs, token, state, length - 1, keys)[1]
            wanted.append(text[end])
    rows, choices = torch.cat(made).double(), F.one_hot(torch.tensor(wanted), VOCABULARY).double()
    assert len(rows) < rows.shape[1], "so that the fit is exact"
    head.lm_head.weight.copy_(torch.linalg.lstsq(rows, 10 * choices, driver="gelsd").solution.T)
    assert alpha() == 1.0


# --- texts ------------------------------------------------------------------------------------------------------------


@each_once(like=few(tuple(TARGETS), 2), option=("groups of tokens", "plain"))
def test_greedy_text_is_that_of_generate(like: str, option: str) -> None:
    """Beyond the window, whatever the assistant guesses."""
    target, prompt_ids, tokens = target_of(like), prompt_of(9), 300 if FULL else 32
    pair = specdec.Pair(target, specdec.Gemma4Assistant(head_of(config_of(like, **OPTIONS[option][1]))))
    reference, compared = generated(target, prompt_ids, tokens), Comparison()
    for gamma in (*range(1, 17), "auto") if HOURS else (1, 4, 16, "auto"):
        params = specdec.SamplingParams(max_new_tokens=tokens)
        ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
        compared.require_same(target, prompt_ids, tuple(ids), reference)
    compared.require_few_ties()


def test_after_a_prompt_of_one_token_an_assistant_sees_one_key() -> None:
    target, params = target_of(), specdec.SamplingParams(max_new_tokens=12)
    pair, prompt_ids = specdec.Pair(target, specdec.Gemma4Assistant(head_of(config_of()))), torch.tensor([5])
    ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=3, params=params)).token_ids
    assert tuple(ids) == generated(target, prompt_ids, 12)


PROMPT = (2, 1, 0, 2)
# The vocabulary, and the options of the assistant.
SMALL: dict[str, tuple[int, dict[str, Any]]] = {"one of two groups": (4, grouped(2, 1)), "all tokens": (3, {})}


def small_pair(which: str = "one of two groups") -> specdec.Pair:
    vocabulary, settings = SMALL[which]
    head = head_of(config_of(vocabulary=vocabulary, **settings))
    return specdec.Pair(target_of(vocabulary=vocabulary), specdec.Gemma4Assistant(head))


def written(lane: Any) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(list(lane))))


def farthest(pair: specdec.Pair, acceptance: str = "lossless") -> tuple[float, int]:
    """The largest error in the chance of a text, over every outcome of every draw of rounds that follow each other.

    Returns it and the number of paths.
    """
    return sampled_apart(pair, acceptance, prompt=PROMPT, top_k=2)


@each_once(acceptance=("lossless", "block"), which=tuple(SMALL))
def test_sampled_text_has_the_targets_distribution(which: str, acceptance: str) -> None:
    error, paths = farthest(small_pair(which), acceptance)
    assert error < CLOSE and paths > 15


propose = Gemma4AssistantDraft.propose


def flatter(self, *given):
    """q of twice the temperature."""
    proposal = propose(self, *given)
    return proposal._replace(q=(proposal.q.log() / 2).softmax(-1))


def likeliest(self, *given):
    """The likeliest token as if it had been drawn, as in transformers."""
    with mock.patch.object(self._sampler, "draw", lambda q: q.argmax(-1)):
        return propose(self, *given)


@pytest.mark.parametrize("fault", [flatter, likeliest])
def test_a_q_that_no_guess_was_drawn_from_is_caught(monkeypatch, fault: Any) -> None:
    monkeypatch.setattr(Gemma4AssistantDraft, "propose", fault)
    assert farthest(small_pair())[0] > 0.01


# --- transformers' own lane -------------------------------------------------------------------------------------------


class Draws(Undecided):
    """Random numbers that transformers compares with ``<=``."""

    def __le__(self, bounds: torch.Tensor) -> torch.Tensor:
        return (self < bounds.flatten()).view(bounds.shape)


def their_distribution(write: Any) -> dict[Any, float]:
    """The chance of each text that transformers writes; see ``enumeration.distribution``."""
    script, chances = Script(), defaultdict(float)

    def uniform(like: torch.Tensor) -> torch.Tensor:
        numbers = torch.full((like.numel(),), math.nan).as_subclass(Draws)
        numbers.script = script
        return numbers

    def multinomial(p: torch.Tensor, num_samples: int) -> torch.Tensor:
        return script.draw(p, torch.default_generator)[:, None]

    with mock.patch.multiple(torch, multinomial=multinomial, rand_like=uniform):
        while True:
            text = write()
            chances[text] += script.chance
            if not script.next():
                return chances


@pytest.fixture
def theirs(monkeypatch) -> specdec.Pair:
    """A pair for which the lane of transformers' assisted generation runs transformers' assistant, once it is built."""
    target, config = target_of(vocabulary=4), config_of(vocabulary=4)
    pair = specdec.Pair(target, specdec.Gemma4Assistant(head_of(config)))
    assistant = theirs_of(pair.draft.head, config)

    def drafting(request: Any, gamma: int) -> Assistance:
        return Assistance(with_config(target, GenerationConfig()), {"assistant_model": assistant})

    monkeypatch.setattr(hf_generate, "cannot_assist", lambda pair: None)
    monkeypatch.setattr(hf_generate, "assistance", drafting)
    return pair


candidates = SinglePositionMultiTokenCandidateGenerator.get_candidates


def one_hot(self, *given, **named):
    """What transformers guesses, with the q that its guesses have."""
    ids, logits = candidates(self, *given, **named)
    return ids, logits if logits is None else logits.masked_fill(logits < logits.amax(-1, keepdim=True), -math.inf)


def test_transformers_samples_from_a_wrong_distribution(monkeypatch, theirs) -> None:
    """It drafts the likeliest tokens and judges them by the softmax of the logits. Nothing else is wrong with it."""
    params = specdec.SamplingParams(temperature=1.5, max_new_tokens=3, seed=0)
    lane = partial(specdec.assisted, theirs, torch.tensor(PROMPT), gamma=2, params=params)
    exact = OfModel(theirs.target, PROMPT, params).completed({(): 1.0})
    biased = their_distribution(lambda: written(lane()))
    assert sum(abs(biased.get(text, 0.0) - p) for text, p in exact.items()) / 2 > 0.05
    monkeypatch.setattr(SinglePositionMultiTokenCandidateGenerator, "get_candidates", one_hot)
    assert distance(their_distribution(lambda: written(lane())), exact) < CLOSE


@pytest.mark.full
def test_the_test_of_losslessness_finds_that(theirs) -> None:
    asked = {"prompt": torch.tensor(PROMPT), "params": specdec.SamplingParams(temperature=1.5, seed=0)}
    *_, findings = self_test(theirs, lane="assisted", draws=200, accept_top_k=2, **asked)
    assert findings.verdict == "not lossless" and findings.lossless.p_value < 1e-4
    assert losslessness_headline(findings) == "Not lossless: the two samples differ by more than chance allows."


# --- loading ----------------------------------------------------------------------------------------------------------


def save(folder, config: dict[str, Any], without: str = "", more: Any = None, of: Any = None) -> str:
    """A checkpoint as it is published: the output matrix has the name of an embedding. ``of``: the weights' config."""
    weights = their_names(head_of(of or config))
    if config.get("tie_word_embeddings", True):
        weights["model.embed_tokens.weight"] = weights.pop("lm_head.weight")
    kept = {name: weight for name, weight in weights.items() if name != without}
    return drafting.save(folder, config, kept, **(more or {}))


@pytest.fixture(scope="module")
def saved_target(tmp_path_factory) -> str:
    return save_target(target_of(), tmp_path_factory)


@pytest.mark.parametrize("option", ["plain", "groups of tokens", "its own output matrix"])
def test_an_assistant_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, option: str) -> None:
    config = config_of(**OPTIONS[option][1])
    head, folder = head_of(config), save(tmp_path / "head", config)
    draft = folder if option == "plain" else specdec.Gemma4Assistant(folder)
    said = {finding.topic: finding.sentence for finding in check_pair(plan_pair(saved_target, draft))}
    assert said["Head"].endswith("keys and values of the target's layers 2 (a window) and 3 (the whole text).")
    assert said["Cost"].startswith("A Gemma 4 assistant of 3 layers, which keep no cache: a guess reads 0.")
    pair = load_pair(saved_target, draft)
    facts = pair.describe()["draft"]
    assert facts["kind"] == "gemma4-assistant" and facts["text"] == "gemma4-assistant:head" and facts["layers"] == 3
    for name, weight in head.state_dict().items():
        assert torch.equal(pair.draft.head.state_dict()[name], weight)
    params, drafts = specdec.SamplingParams(max_new_tokens=12), []
    for of in (pair, specdec.Pair(pair.target, specdec.Gemma4Assistant(head), pair.tokenizer)):
        rounds = rounds_of(list(specdec.speculative(of, "abc", params=params)))
        drafts.append([token.token_id for event in rounds for token in event.draft])
    assert drafts[0] == drafts[1] and drafts[0]


@torch.no_grad()
def test_only_keys_that_are_held_count_as_memory(tmp_path, saved_target) -> None:
    """An assistant keeps none, and neither do layers that share those of others. Few candidates cost less to read."""
    plans = [
        plan_pair(saved_target, save(tmp_path / str(best), config_of(**grouped(16, best)), of=config_of(**grouped())))
        for best in (1, 16)
    ]
    cache = DynamicCache()
    target_of()(input_ids=torch.zeros(1, CONTEXT, dtype=torch.long), past_key_values=cache, use_cache=True)
    held = sum(states.nbytes for layer in cache.layers for states in (layer.keys, layer.values))
    assert plans[0].cache == plans[1].cache == held
    costs = [next(plan.draft.findings(plan.target, plan.draft_parts)).sentence for plan in plans]
    assert costs[0] < costs[1]  # the share is all that differs


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another size": ({"backbone_hidden_size": 64}, "a hidden size of 64"),
    "another vocabulary": ({"vocabulary": 400}, "a vocabulary of 400"),
    "other heads": ({"layer": {"global_head_dim": 32}}, "head_dim 32 in layers of the kind full_attention"),
    "other heads of keys": ({"layer": {"num_key_value_heads": 4}}, "num_key_value_heads 4"),
    "another input": ({"layer": {"hidden_size_per_layer_input": 8}}, "hidden_size_per_layer_input to 8"),
    "experts": ({"layer": {"enable_moe_block": True}}, "enable_moe_block to True"),
    "groups of unequal size": (grouped(7), "3 of 7 groups of equal size, and its 320 tokens"),
    "more groups than there are": (grouped(4, 5), "5 of 4 groups"),
    "a number that is none": ({"backbone_hidden_size": "48"}, "backbone_hidden_size to '48'"),
    "no layers": ({"text_config": None}, "text_config to None"),
    "no layer": ({"layer": {"num_hidden_layers": 0, "layer_types": []}}, "num_hidden_layers to 0"),
    "a size that is none": ({"layer": {"intermediate_size": "x"}}, "intermediate_size"),
    "no assistant": ({"model_type": "llama"}, "not that of a Gemma 4 assistant"),
    "no name of a type": ({"model_type": ["llama"]}, "not that of a Gemma 4 assistant"),
}


@pytest.mark.parametrize("found", BAD)
def test_an_assistant_that_does_not_fit_is_refused_in_a_sentence(tmp_path, saved_target, found: str) -> None:
    changes, said = BAD[found]
    folder = save(tmp_path / "head", config_of(**changes), of=config_of())
    with refused(said):
        plan_pair(saved_target, specdec.Gemma4Assistant(folder))


GATE = "model.layers.0.per_layer_input_gate.weight"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"without": "pre_projection.weight"}, "lacks 1 of the weights .* pre_projection.weight"),
        ({"without": "model.embed_tokens.weight"}, "lacks 1 of the weights .* lm_head.weight"),
        ({"without": "masked_embedding.token_ordering"}, "lacks 1 .* masked_embedding.token_ordering"),
        ({"more": {GATE: torch.ones(3)}}, "holds 1 .*per_layer_input_gate.* that nothing here reads"),
        ({"more": {"model.layers.0.mlp.up_proj.weight": torch.ones(3, 32)}}, "has the shape"),
        ({"more": {"model.layers.0.layer_scalar": torch.full((1,), math.nan)}}, "holds NaN or infinity"),
        ({"more": {"masked_embedding.token_ordering": torch.zeros(VOCABULARY).long()}}, "each token once"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_a_sentence(tmp_path, saved_target, damage, said: str) -> None:
    folder = save(tmp_path / "head", config_of(**grouped()), **damage)
    with refused(said, specdec.LoadFailed):
        load_pair(saved_target, folder)


def test_keys_and_values_that_no_assistant_uses_may_be_unread(tmp_path, saved_target) -> None:
    """transformers leaves them out too."""
    unused = (f"model.layers.0.self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm", "v_norm"))
    load_pair(saved_target, save(tmp_path / "head", config_of(), more={name: torch.ones(8) for name in unused}))


def test_another_target_is_refused() -> None:
    draft = specdec.Gemma4Assistant(head_of(config_of()))
    with pytest.raises(specdec.IncompatiblePair, match="one is of the type llama"):
        specdec.Pair(tiny("llama"), draft)
    windowless = Gemma4TextConfig(**HEADS, hidden_size=HIDDEN, vocab_size=VOCABULARY, layer_types=[TURNS[1]] * 30)
    with pytest.raises(specdec.IncompatiblePair, match="kind sliding_attention, and the target has none"):
        draft.refuse(windowless)
    with pytest.raises(specdec.InvalidInput, match="load_pair takes names"):
        specdec.Pair(target_of(), specdec.Gemma4Assistant("some/head"))
    with pytest.raises(specdec.InvalidInput, match="names no assistant"):
        specdec.Gemma4Assistant.parse("gemma4-assistant")


def test_a_layer_of_no_size_is_refused(tmp_path) -> None:
    """The layers of such a target have sizes of their own."""
    target_of("unified").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["per_layer_config"]["1"]["head_dim"] = 0
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(specdec.LoadFailed, match="sets head_dim to 0"):
        plan_pair(str(tmp_path))
