"""EAGLE-3 heads: the layer against an independent reading of it, drafts against a draft made from scratch, and texts.

The independent reading is written from Li et al. 2503.01840 and from how the published engines describe the layer:
one row at a time, over the whole text, without a cache.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import drafting
import pytest
import torch
from all_types import small_config, small_model
from comparison import FULL, HOURS, Comparison
from drafting import (
    GAMMAS,
    HIDDEN,
    VOCABULARY,
    config_of,
    head_of,
    refused,
    require_close,
    require_drafts_from_scratch,
    require_loaded,
    save_target,
)
from enumeration import sampled_apart
from fakes import generated, isolated_rng, prompt_of, rounds_of, tiny
from pairwise import each_once, few, pairwise
from transformers import CONFIG_MAPPING

import specdec
from specdec.drafters.eagle3 import Eagle3Draft
from specdec.drafters.eagle3_head import FEATURES, Eagle3Head, head_config
from specdec.forward.hf_cache import PreallocatedLayer
from specdec.forward.model_info import why_not_lean
from specdec.forward.runner import Runner
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report import provenance

LAYERS, KNOWN = 6, 200
HYBRIDS = ("qwen3_5_text", "qwen3_next")  # targets with recurrent state beside attention
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normed residual": {"norm_before_residual": True},
    "joined features normed": {"norm_before_fc": True},
    "each feature normed": {"fc_norm": True, "norm_output": True},
    "reduced vocabulary": {"draft_vocab_size": KNOWN},
    "biases, other heads": {"attention_bias": True, "head_dim": 16, "num_key_value_heads": 1},
    "layers named": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]},
}
WINDOW = {"layer_types": ["sliding_attention"], "sliding_window": 4}


def as_speculators(config: dict[str, Any], model_type: str = "llama") -> dict[str, Any]:
    """The same as vLLM's ``speculators`` writes it: the layer in a part of its own."""
    outside = ("draft_vocab_size", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    outside += ("eagle_aux_hidden_state_layer_ids", "target_hidden_size")
    layer = {name: value for name, value in config.items() if name not in (*outside, "architectures")}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer | {"model_type": model_type},
    } | {name: config[name] for name in outside if name in config}


# --- an independent reading ------------------------------------------------------------------------------------------


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.pow(2).mean() + eps).sqrt() * weight


def turned(x: torch.Tensor, position: int, theta: float) -> torch.Tensor:
    """Rotary position: the halves of a vector are the parts of complex numbers."""
    half = len(x) // 2
    angle = position * theta ** (-torch.arange(half, dtype=x.dtype) / half)
    number = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([number.real, number.imag])


class Reading:
    """The published layer over a whole text; ``weights`` and ``config`` are those of a checkpoint."""

    def __init__(self, weights: dict[str, torch.Tensor], config: dict[str, Any]):
        self.w, self.c = {name: value.double() for name, value in weights.items()}, config
        self.eps, self.theta = config["rms_norm_eps"], 10_000.0
        self.keys: list[list[torch.Tensor]] = []
        self.values: list[list[torch.Tensor]] = []

    def fused(self, features: list[torch.Tensor]) -> torch.Tensor:
        if self.c.get("fc_norm"):
            features = [rms(x, self.w[f"fc_norm.{i}.weight"], self.eps) for i, x in enumerate(features)]
        joined = torch.cat(features)
        if self.c.get("norm_before_fc"):
            joined = rms(joined, self.w["input_norm.weight"], self.eps)
        return self.w["fc.weight"] @ joined

    def step(self, state: torch.Tensor, embedded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One pair: logits over the draft's vocabulary, and the state for the next one."""
        layer = {name.removeprefix("layers.0."): value for name, value in self.w.items()}
        normed = rms(state, layer["hidden_norm.weight"], self.eps)
        read = torch.cat([rms(embedded, layer["input_layernorm.weight"], self.eps), normed])
        heads, groups = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        size = self.c.get("head_dim") or HIDDEN // heads
        q, k, v = (self._projected(layer, name, read).view(-1, size) for name in "qkv")
        if "self_attn.q_norm.weight" in layer:
            q = torch.stack([rms(x, layer["self_attn.q_norm.weight"], self.eps) for x in q])
            k = torch.stack([rms(x, layer["self_attn.k_norm.weight"], self.eps) for x in k])
        place = len(self.keys)
        self.keys.append([turned(x, place, self.theta) for x in k])
        self.values.append(list(v))
        attended, first = [], -(self.c.get("sliding_window") or 0)
        for number in range(heads):
            query, of = turned(q[number], place, self.theta), number * groups // heads
            weights = torch.stack([query @ key[of] for key in self.keys[first:]]).div(math.sqrt(size)).softmax(0)
            attended.append(sum(w * value[of] for w, value in zip(weights, self.values[first:], strict=True)))
        residual = normed if self.c.get("norm_before_residual") else state
        after = residual + self._projected(layer, "o", torch.cat(attended))
        inner = rms(after, layer["post_attention_layernorm.weight"], self.eps)
        gate, up = layer["mlp.gate_proj.weight"] @ inner, layer["mlp.up_proj.weight"] @ inner
        out = after + layer["mlp.down_proj.weight"] @ (torch.nn.functional.silu(gate) * up)
        final = rms(out, self.w["norm.weight"], self.eps)
        return self.w["lm_head.weight"] @ final, final if self.c.get("norm_output") else out

    @staticmethod
    def _projected(layer: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
        bias = layer.get(f"self_attn.{name}_proj.bias")
        return layer[f"self_attn.{name}_proj.weight"] @ x + (0 if bias is None else bias)


@torch.no_grad()
def features_of(target, ids: torch.Tensor, layer_ids: tuple[int, ...]) -> list[list[torch.Tensor]]:
    """For each token the inputs of the target's layers and of its final norm, from one pass over the whole text."""
    seen: dict[int, torch.Tensor] = {}
    layers = [*target.model.layers, target.model.norm]
    handles = [
        layers[i].register_forward_pre_hook(lambda _, args, kwargs, i=i: seen.update({i: args[0][0]}), with_kwargs=True)
        for i in layer_ids
    ]
    target(input_ids=ids[None], use_cache=False)
    for handle in handles:
        handle.remove()
    return [[seen[i][t].double() for i in layer_ids] for t in range(len(ids))]


def draft_from_scratch(target, head: Eagle3Head, config: dict, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` greedy guesses after ``text``, all of it read anew."""
    reading = Reading(dict(head.state_dict()), config)
    table = (head.embed_tokens or target.get_input_embeddings()).weight.double()
    layer_ids = tuple(config.get("eagle_aux_hidden_state_layer_ids") or (2, LAYERS // 2, LAYERS - 3))
    features = features_of(target, torch.tensor(text), layer_ids)
    for t in range(len(text) - 1):
        logits, state = reading.step(reading.fused(features[t]), table[text[t + 1]])
    found = []
    for _ in range(gamma):
        whole = torch.full((VOCABULARY,), -math.inf, dtype=torch.float64)
        offsets = head.d2t if config.get("draft_vocab_size") else torch.zeros(len(logits), dtype=torch.long)
        for k, value in enumerate(logits):
            whole[k + int(offsets[k])] = value
        found.append(whole)
        logits, state = reading.step(state, table[int(whole.argmax())])
    return found


def target_of(family: str = "llama", **changes: Any):
    if family in HYBRIDS:
        sizes = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY}
        kinds = ["linear_attention", "full_attention"] * (LAYERS // 2)
        return small_model(
            small_config(CONFIG_MAPPING[family], layer_types=kinds, max_position_embeddings=512, **sizes)
        )
    return tiny(family, seed=3, layers=LAYERS, **{"vocab_size": VOCABULARY, "context": 512} | changes)


@pytest.mark.parametrize("option", [*OPTIONS, "a window"])
def test_a_forward_is_that_of_the_published_layer(option: str) -> None:
    """Given features, fed in two parts and then two guesses: logits within 1e-5 of their range."""
    config = config_of(**OPTIONS.get(option, WINDOW))
    head = head_of(config).double()
    with isolated_rng(1):
        features, embedded = torch.randn(9, FEATURES, HIDDEN).double(), torch.randn(11, HIDDEN).double()
    reading, cache = Reading(dict(head.state_dict()), config), PreallocatedLayer()
    theirs = [reading.step(reading.fused(list(row)), e) for row, e in zip(features, embedded, strict=False)]
    fused = head.fused(features.flatten(1))
    ours = [head(fused[:5], embedded[:5], cache)[0], head(fused[5:], embedded[5:9], cache)[0]]
    state = head(fused[8:], embedded[8:9], cropped(cache))[1]
    for e in embedded[9:]:
        logits, state = head(state, e[None], cache)
        ours.append(logits)
        theirs.append(reading.step(theirs[-1][1], e))
    require_close(torch.cat(ours), torch.stack([logits for logits, _ in theirs]), 1e-5)


def cropped(cache: PreallocatedLayer) -> PreallocatedLayer:
    cache.crop(-1)
    return cache


@pairwise(option=tuple(OPTIONS), writes=("SafeAILab", "speculators", "speculators, qwen3")[: 3 if FULL else 2])
def test_every_draft_is_that_of_the_published_layer(monkeypatch, option: str, writes: str) -> None:
    """In each round, after rejections and full acceptances: the logits of all guesses, made from the whole text."""
    config = config_of(**OPTIONS[option])
    written = config if writes == "SafeAILab" else as_speculators(config, "qwen3" if "qwen3" in writes else "llama")
    target, head = target_of(), head_of(written)
    pair, scratch = specdec.Pair(target, specdec.Eagle3(head)), partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, pair, Eagle3Draft, 2, scratch)


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5_text"])
def test_the_states_of_layer_n_of_n_are_those_before_the_final_norm(family: str) -> None:
    """By the lean forward and by the models' own, over two passes: what hooks see in one pass over the whole text."""
    target, ids, layer_ids = target_of(family), prompt_of(9), (0, 4, LAYERS)
    assert (why_not_lean(target) is None) == (family == "llama")
    runner, taken = Runner(target), []
    runner.tap(layer_ids, lambda start, rows: taken.append(rows.double()))
    with torch.no_grad():
        runner.forward(ids[:6])
        runner.forward(ids[6:])
    expected = torch.stack([torch.cat(states) for states in features_of(target, ids, layer_ids)])
    require_close(torch.cat(taken), expected, 1e-5)


@pytest.mark.parametrize(
    "bug", ["stale features", "cache not cropped", "offset wrong by one", "embedding of the guess"]
)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """The comparison above sees what would cost acceptance, and no text would show."""
    if bug == "stale features":
        take = Eagle3Draft._take
        monkeypatch.setattr(Eagle3Draft, "_take", lambda self, start, rows: take(self, start, rows.roll(1, 0)))
    elif bug == "cache not cropped":
        monkeypatch.setattr(Eagle3Draft, "crop_to", lambda self, length: None)
    elif bug == "offset wrong by one":
        whole = Eagle3Head.in_target_ids
        monkeypatch.setattr(Eagle3Head, "in_target_ids", lambda self, *given: whole(self, *given).roll(1, -1))
    else:
        whole = Eagle3Draft._pass
        monkeypatch.setattr(Eagle3Draft, "_pass", lambda self, states, ids: whole(self, states, ids.roll(1)))
    with pytest.raises(AssertionError):
        test_every_draft_is_that_of_the_published_layer(monkeypatch, "reduced vocabulary", "SafeAILab")


# --- texts -----------------------------------------------------------------------------------------------------------


@each_once(
    family=("llama", "qwen2", "qwen3", "gemma3", "gpt2", *HYBRIDS), known=(None, KNOWN), own_embedding=(True, False)
)
def test_greedy_text_is_that_of_generate(family: str, known: int | None, own_embedding: bool) -> None:
    """Whatever the head guesses; by the lean forward and by the models' own."""
    target = target_of(family)
    head = head_of(config_of(**({} if known is None else {"draft_vocab_size": known})), own_embedding)
    prompt_ids, tokens = prompt_of(9), 300 if HOURS else 40
    reference = generated(target, prompt_ids, tokens)
    compared = Comparison()
    for gamma in GAMMAS:
        pair = specdec.Pair(target, specdec.Eagle3(head))
        params = specdec.SamplingParams(max_new_tokens=tokens)
        ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
        compared.require_same(target, prompt_ids, tuple(ids), reference)
    compared.require_few_ties()


@each_once(acceptance=few(("lossless", "block"), 1), known=few((2, None), 1))
def test_sampled_text_has_the_targets_distribution(known: int | None, acceptance: str) -> None:
    """Every outcome of every draw, over rounds that follow each other; the head knows all three tokens, or two."""
    target = target_of(vocab_size=3)
    head = head_of(config_of(vocab_size=3, **({} if known is None else {"draft_vocab_size": known})))
    apart, paths = sampled_apart(specdec.Pair(target, specdec.Eagle3(head)), acceptance)
    assert paths > 50 and apart < CLOSE


# --- options ---------------------------------------------------------------------------------------------------------

ANYWHERE: dict[str, tuple[Any, Any]] = {
    "norm_before_residual": (True, False),
    "norm_before_fc": (True, False),
    "fc_norm": (True, False),
    "norm_output": (True, False),
    "attention_bias": (True, False),
    "mlp_bias": (True, False),
    "draft_vocab_size": (KNOWN, KNOWN - 1),
    "target_hidden_size": (64, 80),
    "eagle_aux_hidden_state_layer_ids": ([1, 2, 4], [1, 2, 5]),
    "use_aux_hidden_state": (True, False),
}


@pytest.mark.parametrize("written", ["SafeAILab", "speculators"])
@pytest.mark.parametrize("option", ANYWHERE)
def test_an_option_is_read_in_both_places_and_may_not_contradict_itself(option: str, written: str) -> None:
    """At the top level and in ``eagle_config``, as NVIDIA writes it; null and an empty list say nothing."""
    value, other = ANYWHERE[option]
    plain = config_of() if written == "SafeAILab" else as_speculators(config_of())

    def settings(changes: dict[str, Any]) -> dict[str, Any]:
        found = vars(head_config(plain | changes))
        return found | {"layer": (found["layer"].attention_bias, found["layer"].mlp_bias)}

    outside = settings({option: value})
    assert settings({option: None, "eagle_config": {option: value}}) == outside
    assert settings({option: value, "eagle_config": {option: value}}) == outside
    assert (outside != settings({})) == (option != "use_aux_hidden_state")
    for first, second in ((value, other), (other, value)):
        with pytest.raises(specdec.IncompatiblePair, match=f"sets {option} to .* and eagle_config in it to"):
            head_config(plain | {option: first, "eagle_config": {option: second}})


def test_an_empty_list_of_layers_in_eagle_config_says_nothing() -> None:
    nvidia = {"eagle_aux_hidden_state_layer_ids": [], "use_aux_hidden_state": True, "parallel_draft_step": 1}
    assert head_config(config_of(eagle_config=nvidia)).layers_of(36) == (2, 18, 33)


RELATIVES: dict[str, tuple[dict[str, Any], str]] = {
    "NVIDIA's steps": ({"parallel_draft_step": 4}, "as in Medusa .parallel_draft_step is 4"),
    "EAGLE": ({"speculators_model_type": "eagle"}, "eagle"),
    "the last state alone": ({"use_aux_hidden_state": False}, "use_aux_hidden_state is false"),
    "layers under another name": ({"target_layer_ids": [1, 10, 19]}, "as target_layer_ids"),
    "layers that are no numbers": ({"eagle_aux_hidden_state_layer_ids": ["2", "3", "4"]}, "a list of numbers"),
    "layers that are no list": ({"eagle_aux_hidden_state_layer_ids": "234"}, "a list of numbers"),
}


@pytest.mark.parametrize("place", ["top level", "eagle_config"])
@pytest.mark.parametrize("relative", RELATIVES)
def test_a_head_of_another_kind_is_refused_by_its_name(tmp_path, saved_target, relative: str, place: str) -> None:
    """A weight that is named the same is no reason to read it as an EAGLE-3 head."""
    changes, said = RELATIVES[relative]
    if place == "eagle_config" and not {"architectures", "speculators_model_type"} & changes.keys():
        changes = {"eagle_config": changes}
    folder = save(tmp_path / "head", config_of(**changes), head_of(config_of()))
    for draft in (folder, specdec.Eagle3(folder)):
        with refused(said, specdec.IncompatiblePair):
            plan_pair(saved_target, draft)


# --- loading ---------------------------------------------------------------------------------------------------------


def save(
    folder, config: dict, head: Eagle3Head | None, rename: str = "midlayer.", without: str = "", more: Any = None
) -> str:
    weights = {} if head is None else head.state_dict()
    kept = {name.replace("layers.0.", rename): value for name, value in weights.items() if name != without}
    return drafting.save(folder, config, kept, **(more or {}))


@pytest.fixture(scope="module")
def saved_target(tmp_path_factory) -> str:
    return save_target(target_of(), tmp_path_factory)


@pytest.mark.parametrize("written", ["SafeAILab", "speculators"])
@pytest.mark.parametrize("named", ["a draft", "a head"])
def test_a_head_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, written: str, named: str) -> None:
    config = config_of(draft_vocab_size=KNOWN)
    config = config if written == "SafeAILab" else as_speculators(config)
    head = head_of(config, embeds=written != "SafeAILab")
    folder = save(tmp_path / "head", config, head, "midlayer." if written == "SafeAILab" else "layers.0.")
    draft = folder if named == "a draft" else specdec.Eagle3(folder)
    findings = check_pair(plan_pair(saved_target, draft))
    assert any("EAGLE-3" in finding.sentence for finding in findings)
    pair = load_pair(saved_target, draft)
    assert pair.draft.describe()["kind"] == "eagle3" and pair.draft.describe()["text"].startswith("eagle3:")
    assert "EAGLE-3 head head" in provenance.pair_line(pair.facts())  # it lies in a folder of this name
    require_loaded(pair, head.state_dict())


@pytest.mark.parametrize(
    ("changes", "damage", "found"),
    [
        ({"hidden_size": 64}, {}, "a hidden size of 64"),
        ({"vocab_size": 400}, {}, "a vocabulary of 400"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 40]}, {}, "layer 40"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, {}, "reads 2 hidden states"),
        ({"num_hidden_layers": 2}, {}, "lacks 9 of the weights .* layers.1.input_layernorm.weight"),
        ({"num_hidden_layers": 0}, {}, "sets num_hidden_layers to 0"),
        ({"num_hidden_layers": "2"}, {}, "sets num_hidden_layers to '2'"),
        ({"norm_before_residual": "false"}, {}, "sets norm_before_residual to 'false'; it must be true or false"),
        ({"attention_bias": 2}, {}, "sets attention_bias to 2; it must be true or false"),
        (WINDOW | {"sliding_window": "4"}, {}, "sets sliding_window to '4'; it must be a whole number"),
        (WINDOW | {"sliding_window": -1}, {}, "sets sliding_window to -1"),
        (WINDOW | {"sliding_window": None}, {}, "sets sliding_window to None"),
        ({"architectures": ["LlamaForCausalLM"]}, {}, "not that of an EAGLE-3 head"),
        ({}, {"without": "fc.weight"}, "lacks 1 of the weights"),
        ({"intermediate_size": 96}, {}, "has the shape"),
        ({"draft_vocab_size": KNOWN}, {"without": "d2t"}, "d2t"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_in_a_sentence(tmp_path, saved_target, changes, damage, found) -> None:
    """Wrong target, another format, missing weights."""
    head = head_of(config_of(**{k: v for k, v in changes.items() if k == "draft_vocab_size"}))
    folder = save(tmp_path / "head", config_of(**changes), head, **damage)
    with refused(found):
        load_pair(saved_target, specdec.Eagle3(folder))


@pytest.mark.parametrize(
    "name",
    [
        "input_norm.weight", "model.input_norm.weight", "fc.bias", "fc_norm.0.weight", "midlayer.self_attn.q_proj.bias",
        "midlayer.self_attn.q_norm.weight", "layers.0.mlp.up_proj.bias", "mask_hidden", "mtp.layers.0.weight",
        "enorm.weight", "parallel_draft_heads.0.weight", "midlayer.mlp.up_proj.weight_scale", "layers.1.mlp.up.weight",
        "draft_id_to_target_id",
    ],
)  # fmt: skip
def test_a_weight_of_a_head_that_nobody_reads_is_refused_by_name(tmp_path, saved_target, name: str) -> None:
    """Its config does not ask for it, so only acceptance would show that it is missing."""
    folder = save(tmp_path / "head", config_of(), head_of(config_of()), more={name: torch.ones(3)})
    ours = name.removeprefix("model.").replace("midlayer.", "layers.0.")
    with pytest.raises(specdec.LoadFailed, match=f"holds 1 .*{ours}.* that nothing here reads"):
        load_pair(saved_target, folder)


def test_the_table_of_known_tokens_and_rotary_buffers_may_be_unread(tmp_path, saved_target) -> None:
    buffers = ("t2d", "midlayer.self_attn.rotary_emb.inv_freq", "rotary_emb.cos_cached", "model.rotary_emb.inv_freq")
    more = {name: torch.ones(VOCABULARY, dtype=torch.bool) for name in buffers}
    config = config_of(draft_vocab_size=KNOWN)
    load_pair(saved_target, save(tmp_path / "head", config, head_of(config), more=more))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.uint8], ids=str)
def test_a_packed_head_is_refused(tmp_path, saved_target, dtype: torch.dtype) -> None:
    head = head_of(config_of())
    name, weight = "midlayer.mlp.up_proj.weight", head.layers[0].mlp.up_proj.weight
    folder = save(tmp_path / "head", config_of(), head, without=name, more={name: weight.to(dtype)})
    with pytest.raises(specdec.LoadFailed, match="in 8 bits or fewer"):
        plan_pair(saved_target, folder)
    named = save(tmp_path / "head", config_of(quantization_config={"quant_method": "fp8"}), head)
    with pytest.raises(specdec.LoadFailed, match="quantized by fp8.* heads"):
        plan_pair(saved_target, named)


def test_options_in_eagle_config_make_the_head_that_was_trained(tmp_path, saved_target) -> None:
    """With the norm that stands in front of the first matrix, biases and the last output: the guesses of that head."""
    options = {"norm_before_fc": True, "attention_bias": True, "eagle_aux_hidden_state_layer_ids": [2, 4, 6]}
    head = head_of(config_of(**options))
    pair = load_pair(saved_target, save(tmp_path / "head", config_of(eagle_config=options), head))
    params = specdec.SamplingParams(max_new_tokens=6)
    drafts = [
        [
            token.token_id
            for event in rounds_of(list(specdec.speculative(of, "abc", params=params)))
            for token in event.draft
        ]
        for of in (pair, specdec.Pair(pair.target, specdec.Eagle3(head), pair.tokenizer))
    ]
    assert drafts[0] == drafts[1] and drafts[0]


@pytest.mark.parametrize("ids", [None, [0, 4, LAYERS]])
def test_check_and_details_say_which_layers_a_head_reads(tmp_path, saved_target, ids) -> None:
    config = config_of(eagle_config={"eagle_aux_hidden_state_layer_ids": ids})
    folder = save(tmp_path / "head", config, head_of(config))
    listing = ", ".join(map(str, ids or (2, 3, 3)))
    said = f"hidden states {listing} (0 is the embedding, 6 the output of the last layer)"
    assert [f.sentence for f in check_pair(plan_pair(saved_target, folder)) if f.topic == "Head"] == [
        f"It reads the target's {said}."
    ]
    assert provenance.head(load_pair(saved_target, folder).facts()) == {"Head reads": said}
    assert provenance.head(load_pair(saved_target, "suffix").facts()) == {}


def test_a_pickled_head_is_refused(tmp_path, saved_target) -> None:
    folder = save(tmp_path / "head", config_of(), None)
    (tmp_path / "head" / "model.safetensors").rename(tmp_path / "head" / "pytorch_model.bin")
    with pytest.raises(specdec.LoadFailed, match="can run code"):
        load_pair(saved_target, specdec.Eagle3(folder))


def test_a_head_for_ids_that_the_target_lacks_is_refused(tmp_path, saved_target) -> None:
    config = config_of(draft_vocab_size=KNOWN)
    head = head_of(config)
    head.d2t += VOCABULARY
    with pytest.raises(specdec.LoadFailed, match="ids that the target does not have"):
        load_pair(saved_target, save(tmp_path / "head", config, head))


def test_a_draft_that_is_no_head_stays_a_draft_model(saved_target) -> None:
    assert load_pair(saved_target, saved_target).draft.describe()["kind"] == "model"
