"""P-EAGLE heads, which make all guesses of a draft in one pass, and EAGLE-3 heads of several layers.

The independent reading is written from Hui et al. 2602.01469 and from the rule by which ``speculators`` says which rows
see which. It reads a whole text at once, without a cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import FULL, Comparison
from drafting import (
    GAMMAS,
    HIDDEN,
    VOCABULARY,
    config_of,
    head_of,
    refused,
    require_close,
    require_drafts_from_scratch,
    save,
    save_target,
)
from enumeration import sampled_apart
from fakes import generated, isolated_rng, prompt_of, rounds_of, tiny
from pairwise import each_once, few, pairwise

import specdec
from specdec.drafters.eagle3 import Eagle3Draft, ParallelDraft
from specdec.drafters.eagle3_head import FEATURES, Eagle3Head, head_config
from specdec.forward.hf_cache import PreallocatedLayer
from specdec.measure.costs import Costs
from specdec.measure.enumeration import CLOSE
from specdec.measure.whatif import what_if
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report import provenance

LAYERS, KNOWN, MASK = 6, 200, 7
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normed residual": {"norm_before_residual": True},
    "joined features normed": {"norm_before_fc": True},
    "each feature normed": {"fc_norm": True, "norm_output": True},
    "reduced vocabulary": {"draft_vocab_size": KNOWN},
    "biases, other heads": {"attention_bias": True, "head_dim": 16, "num_key_value_heads": 1},
    "layers named": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]},
}


def parallel(layers: int = 2, **options: Any) -> dict[str, Any]:
    """A ``config.json`` of a P-EAGLE head."""
    return config_of(num_hidden_layers=layers, mask_token_id=MASK, **options)


def target_of(family: str = "llama", **changes: Any):
    return tiny(family, seed=3, layers=LAYERS, **{"vocab_size": VOCABULARY, "context": 512} | changes)


# --- an independent reading ------------------------------------------------------------------------------------------


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rotary positions of x (n, heads, size): the halves of a vector are the parts of complex numbers."""
    half = x.shape[-1] // 2
    angles = places[:, None] * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    numbers = torch.complex(x[..., :half], x[..., half:]) * turns
    return torch.cat([numbers.real, numbers.imag], -1)


class Reading:
    """The published head over the rows of a text; ``config`` is that of its checkpoint.

    A row has an anchor, which is its last true feature, and a depth, which is how many guesses lie between. Rows of
    depth 0 see those before them. The others see what their anchor sees, and the smaller depths of that anchor.
    """

    def __init__(self, head: Eagle3Head, config: dict[str, Any]):
        self.w, self.c = {name: value.double() for name, value in head.state_dict().items()}, config

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        if self.c.get("fc_norm"):
            parts = enumerate(features.chunk(FEATURES, -1))
            features = torch.cat([rms(part, self.w[f"fc_norm.{i}.weight"]) for i, part in parts], -1)
        if self.c.get("norm_before_fc"):
            features = rms(features, self.w["input_norm.weight"])
        return features @ self.w["fc.weight"].T

    def rows(
        self, states: torch.Tensor, embedded: torch.Tensor, anchor: torch.Tensor, depth: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits over the draft's vocabulary, and the states from which a draft goes on, of all rows."""
        places = anchor + depth
        seen = (depth == 0) & (anchor[:, None] >= anchor)
        seen |= (anchor[:, None] == anchor) & (depth[:, None] >= depth)
        for number in range(self.c["num_hidden_layers"]):
            w = {name.removeprefix(f"layers.{number}."): value for name, value in self.w.items()}
            kind = (self.c.get("layer_types") or ["full_attention"] * 9)[number]
            near = places > places[:, None] - self.c.get("sliding_window", 0) if "sliding" in kind else True
            if number == 0:
                normed = rms(states, w["hidden_norm.weight"])
                read = torch.cat([rms(embedded, w["input_layernorm.weight"]), normed], -1)
                states = normed if self.c.get("norm_before_residual") else states
            else:
                read = rms(states, w["input_layernorm.weight"])
            states = states + self.attended(w, read, places, seen & near)
            inner = rms(states, w["post_attention_layernorm.weight"])
            gate, up = inner @ w["mlp.gate_proj.weight"].T, inner @ w["mlp.up_proj.weight"].T
            states = states + (F.silu(gate) * up) @ w["mlp.down_proj.weight"].T
        final = rms(states, self.w["norm.weight"])
        return final @ self.w["lm_head.weight"].T, final if self.c.get("norm_output") else states

    def attended(
        self, w: dict[str, torch.Tensor], read: torch.Tensor, places: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        size = self.c.get("head_dim") or HIDDEN // self.c["num_attention_heads"]
        q, k, v = (self.projected(w, name, read).view(len(read), -1, size) for name in "qkv")
        if "self_attn.q_norm.weight" in w:
            q, k = rms(q, w["self_attn.q_norm.weight"]), rms(k, w["self_attn.k_norm.weight"])
        q, k = turned(q, places), turned(k, places)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = torch.einsum("nhs,mhs->hnm", q, k) / math.sqrt(size)
        shares = scores.masked_fill(~seen, -math.inf).softmax(-1)
        return self.projected(w, "o", torch.einsum("hnm,mhs->nhs", shares, v).flatten(1))

    @staticmethod
    def projected(w: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
        bias = w.get(f"self_attn.{name}_proj.bias")
        return x @ w[f"self_attn.{name}_proj.weight"].T + (0 if bias is None else bias)


def places_of(true: int, masked: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Anchors and depths of ``true`` rows and of ``masked`` ones after the last of them."""
    anchor = torch.tensor([*range(true), *[true - 1] * masked])
    return anchor, torch.tensor([*[0] * true, *range(1, masked + 1)])


@torch.no_grad()
def draft_from_scratch(target, head: Eagle3Head, config: dict, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` guesses after ``text``, all of it read anew."""
    reading, true = Reading(head, config), len(text) - 1
    table = (head.embed_tokens or target.get_input_embeddings()).weight.double()
    ids = config.get("eagle_aux_hidden_state_layer_ids") or (2, LAYERS // 2, LAYERS - 3)
    hidden = target(torch.tensor([text]), output_hidden_states=True).hidden_states
    states = reading.fused(torch.cat([hidden[i][0, :-1].double() for i in ids], -1))
    embedded = table[torch.tensor(text[1:])]
    if "mask_token_id" in config:
        unknown = reading.fused(reading.w["mask_hidden"])
        states = torch.cat([states, *[unknown[None]] * (gamma - 1)])
        embedded = torch.cat([embedded, *[table[MASK, None]] * (gamma - 1)])
        logits = reading.rows(states, embedded, *places_of(true, gamma - 1))[0][true - 1 :]
        return list(in_target_ids(logits, head, config))
    found: list[torch.Tensor] = []
    while len(found) < gamma:  # a head that reads its own states, in which every row sees those before it
        logits, further = reading.rows(states, embedded, torch.arange(len(states)), torch.zeros(len(states)))
        found += in_target_ids(logits[-1:], head, config)
        states, embedded = torch.cat([states, further[-1:]]), torch.cat([embedded, table[found[-1].argmax(), None]])
    return found


def in_target_ids(logits: torch.Tensor, head: Eagle3Head, config: dict) -> torch.Tensor:
    whole = torch.full((len(logits), VOCABULARY), -math.inf, dtype=torch.float64)
    for k in range(logits.shape[1]):
        whole[:, k + (int(head.d2t[k]) if config.get("draft_vocab_size") else 0)] = logits[:, k]
    return whole


# --- the forward -----------------------------------------------------------------------------------------------------

TURNS = {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "sliding_window": 4}


@pytest.mark.parametrize("option", [*OPTIONS, "windows"])
def test_a_forward_is_that_of_the_published_head(option: str) -> None:
    """Given features, fed in two parts with masked rows after each: logits within 1e-5 of their range."""
    config = parallel(3, **OPTIONS.get(option, TURNS))
    head = head_of(config).double()
    with isolated_rng(1):
        features, embedded = torch.randn(9, FEATURES * HIDDEN).double(), torch.randn(9, HIDDEN).double()
    assert head.embed_tokens is not None and head.mask_hidden is not None
    reading, mask = Reading(head, config), head.embed_tokens.weight[MASK]
    caches, unknown = [PreallocatedLayer() for _ in head.layers], reading.fused(head.mask_hidden)
    for start, end, masked in ((0, 5, 3), (5, 9, 2)):
        states = torch.cat([head.fused(features[start:end]), head.unknown_state().expand(masked, -1)])
        ours = head(states, torch.cat([embedded[start:end], mask.expand(masked, -1)]), *caches)[0]
        rows = torch.cat([reading.fused(features[:end]), unknown.expand(masked, -1)])
        beside = torch.cat([embedded[:end], mask.expand(masked, -1)])
        require_close(ours, reading.rows(rows, beside, *places_of(end, masked))[0][start:], 1e-5)
        for cache in caches:
            cache.crop(-masked)


@pairwise(option=tuple(OPTIONS), layers=(2, 1), kind=("llama", "qwen3"))
def test_every_draft_is_that_of_the_published_head(monkeypatch, option: str, layers: int, kind: str) -> None:
    """In each round, after rejections and full acceptances: the logits of all guesses, made from the whole text."""
    config = parallel(layers, **OPTIONS[option], **{"model_type": kind})
    target, head = target_of(), head_of(config)
    pair, scratch = specdec.Pair(target, specdec.Eagle3(head)), partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, pair, ParallelDraft, 3, scratch)


@pytest.mark.parametrize("option", few(("reduced vocabulary", *OPTIONS), 1))
def test_a_head_of_several_layers_may_read_its_own_states(monkeypatch, option: str) -> None:
    """EAGLE-3 with more than one layer: the output of the last one is the next state."""
    config = config_of(num_hidden_layers=3, **OPTIONS[option])
    target, head = target_of(), head_of(config)
    pair, scratch = specdec.Pair(target, specdec.Eagle3(head)), partial(draft_from_scratch, target, head, config)
    require_drafts_from_scratch(monkeypatch, pair, Eagle3Draft, 2, scratch)


def broken_head(head: Eagle3Head, fault: str) -> None:
    assert head.mask_hidden is not None
    if fault == "another masked token":
        head.config = replace(head.config, mask_token=MASK + 1)
    elif fault == "no learned state":
        head.mask_hidden.zero_()
    elif fault == "a layer skipped":
        head.layers = head.layers[:1]


def break_drafter(monkeypatch, fault: str) -> None:
    whole, take = ParallelDraft._pass, ParallelDraft._take
    patches = {
        "stale features": ("_take", lambda self, start, rows: take(self, start, rows.roll(1, 0))),
        "masked rows stay": ("crop_to", lambda self, length: None),
        "guess of the row before": ("_pass", lambda self, *given: whole(self, *given).roll(1, 0)),
        "masked rows one place late": ("_pass", one_place_late),
        "tokens of the rows before": (
            "_pass",
            lambda self, states, ids, keep=1: whole(self, states, ids.roll(1), keep),
        ),
    }
    if fault in patches:
        monkeypatch.setattr(ParallelDraft, *patches[fault])


def one_place_late(self: ParallelDraft, states: torch.Tensor, ids: torch.Tensor, keep: int = 1) -> torch.Tensor:
    """A masked row too many, whose logits nobody reads."""
    if keep == 1:
        return Eagle3Draft._pass(self, states, ids)
    true = len(ids) - keep + 1
    states, ids = (torch.cat([x[:true], x[-1:], x[true:]]) for x in (states, ids))
    logits = Eagle3Draft._pass(self, states, ids, keep + 1)
    return torch.cat([logits[:1], logits[2:]])


FAULTS = (
    "another masked token", "no learned state", "a layer skipped", "stale features", "masked rows stay",
    "guess of the row before", "masked rows one place late", "tokens of the rows before",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, fault: str) -> None:
    """The comparison above sees what would cost acceptance, and no text would show."""
    config, target = parallel(), target_of()
    head = head_of(config)
    scratch = partial(draft_from_scratch, target, head_of(config), config)
    broken_head(head, fault)
    break_drafter(monkeypatch, fault)
    with pytest.raises(AssertionError, match="logits differ"):
        pair = specdec.Pair(target, specdec.Eagle3(head))
        require_drafts_from_scratch(monkeypatch, pair, ParallelDraft, 3, scratch)


# --- texts -----------------------------------------------------------------------------------------------------------


# Layers, known tokens, guesses that it was trained for, and whether it has its own embedding.
HEADS = ((2, None, None, True), (4, KNOWN, 8, False), (1, None, 3, True))


def require_text_of_generate(family: str, head: tuple[Any, ...], tokens: int, gammas: Iterable[Any]) -> None:
    layers, known, most, own_embedding = head
    target, prompt_ids = target_of(family), prompt_of(9)
    drawn = head_of(parallel(layers, draft_vocab_size=known, num_depths=most), own_embedding)
    reference = generated(target, prompt_ids, tokens)
    pair, compared = specdec.Pair(target, specdec.Eagle3(drawn)), Comparison()
    params = specdec.SamplingParams(max_new_tokens=tokens)
    for gamma in gammas:
        ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
        compared.require_same(target, prompt_ids, tuple(ids), reference)
    compared.require_few_ties()


@each_once(family=("llama", "gemma3", "gpt2", "qwen3_5_text"), head=HEADS)
def test_greedy_text_is_that_of_generate(family: str, head: tuple[Any, ...]) -> None:
    """Whatever the head guesses, at all draft lengths; by the lean forward and by the models' own."""
    require_text_of_generate(family, head, 60 if FULL else 32, dict.fromkeys((*GAMMAS, 1, 16, "auto")))


@pytest.mark.full
@pytest.mark.parametrize("gamma", [1, 5, 16, "auto"])
def test_a_long_greedy_text_is_that_of_generate(gamma: Any) -> None:
    require_text_of_generate("llama", HEADS[0], 300, [gamma])


def distance_of_texts(
    tokens: int = 2, known: int | None = None, acceptance: str = "lossless", penalty: float = 1.0
) -> float:
    """How far texts of four of ``tokens``, over rounds that follow each other, are from the target's distribution."""
    target = tiny("llama", seed=3, layers=2, vocab_size=tokens)
    options = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "draft_vocab_size": known}
    head = head_of(config_of(vocab_size=tokens, num_hidden_layers=2, mask_token_id=1, **options))
    pair = specdec.Pair(target, specdec.Eagle3(head))
    apart, paths = sampled_apart(pair, acceptance, prompt=(1, 0, 1), repetition_penalty=penalty)
    assert paths > 20
    return apart


@each_once(tokens_known=((3, None), (3, 2)), acceptance=few(("lossless", "block"), 1), penalty=(1.0, 1.3))
def test_sampled_text_has_the_targets_distribution(
    tokens_known: tuple[int, int | None], acceptance: str, penalty: float
) -> None:
    """Every outcome of every draw; the head knows all three tokens, or two."""
    assert distance_of_texts(*tokens_known, acceptance, penalty) < CLOSE


@pytest.mark.parametrize("fault", ["q of another temperature", "q of the row before"])
def test_a_wrong_distribution_is_caught(monkeypatch, fault: str) -> None:
    propose = ParallelDraft.propose

    def wrong(self, context, gamma, stop):
        found = propose(self, context, gamma, stop)
        if found.q is None or not len(found.ids):
            return found
        raw = torch.cat(found.choices.logits).softmax(-1)
        return found._replace(q=raw if "temperature" in fault else found.q.roll(1, 0))

    undisturbed = distance_of_texts()
    monkeypatch.setattr(ParallelDraft, "propose", wrong)
    assert distance_of_texts() > 1e-3 > CLOSE > undisturbed


# --- one pass --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "gamma", "length"), [(None, 6, 6), (3, 6, 3), (8, 6, 6), (1, 6, 1)])
def test_a_draft_is_one_pass_and_no_longer_than_the_head_was_trained_for(monkeypatch, most, gamma, length) -> None:
    passes, forward = [], Eagle3Head.forward

    def counted(self, states, *given, **options):
        passes.append(options["keep"])
        return forward(self, states, *given, **options)

    monkeypatch.setattr(Eagle3Head, "forward", counted)
    pair = specdec.Pair(target_of(), specdec.Eagle3(head_of(parallel(num_depths=most))))
    params = specdec.SamplingParams(max_new_tokens=20)
    _, *rounds = rounds_of(list(specdec.speculative(pair, prompt_of(7), gamma=gamma, params=params)))
    lengths = [len(event.draft) for event in rounds]
    assert lengths[0] == max(lengths) == length
    assert passes == [1, *(each for each in lengths if each)]  # the first is that of the prompt


def test_a_draft_may_end_where_the_head_is_unsure() -> None:
    pair = specdec.Pair(target_of(), specdec.Eagle3(head_of(parallel())))
    params, stop = specdec.SamplingParams(max_new_tokens=40), specdec.ConfidenceStop(6, 0.05)
    _, *rounds = rounds_of(list(specdec.speculative(pair, prompt_of(7), gamma=stop, params=params)))
    drafts = [[token.draft_confidence for token in event.draft] for event in rounds if event.draft]
    assert len({len(draft) for draft in drafts}) > 1
    assert all(each >= 0.05 for draft in drafts for each in draft[:-1])


# --- a head that has learned -----------------------------------------------------------------------------------------

DEPTHS, LEARNED, EPOCHS = 4, 40, 12


def fitted(target, prompt_ids: torch.Tensor) -> tuple[Eagle3Head, tuple[int, ...]]:
    """A head that was fitted to the text that the target writes after a prompt, and that text."""
    text = generated(target, prompt_ids, LEARNED)
    ids = torch.cat([prompt_ids, torch.tensor(text)])
    with torch.no_grad():
        hidden = target(ids[None], output_hidden_states=True).hidden_states
        table = target.get_input_embeddings().weight
    head = head_of(parallel(num_depths=DEPTHS), embeds=False, scale=0.1).requires_grad_(True)
    features = torch.cat([hidden[i][0] for i in head.config.layers_of(LAYERS)], -1)
    optimiser, first = torch.optim.Adam(head.parameters(), lr=4e-3), len(prompt_ids) - 1
    # A rate that falls to a twentieth: with a constant one, the last steps decide what share of the guesses is right.
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=EPOCHS - 1)
    with isolated_rng(0):
        for _ in range(EPOCHS):
            for end in (first + torch.randperm(len(ids) - 1 - first)).tolist():
                depth = min(DEPTHS, len(ids) - 1 - end)  # at the end of the text fewer tokens are left to guess
                inputs = torch.cat([ids[1 : end + 1], torch.full((depth - 1,), MASK)])
                states = torch.cat([head.fused(features[:end]), head.unknown_state().expand(depth - 1, -1)])
                logits, _ = head(states, table[inputs], *(PreallocatedLayer() for _ in head.layers), keep=depth)
                F.cross_entropy(logits, ids[end + 1 : end + 1 + depth]).backward()
                optimiser.step()
                optimiser.zero_grad()
            falling.step()
    return head.requires_grad_(False), text


def kept(head: Eagle3Head, target, prompt_ids: torch.Tensor, text: tuple[int, ...]) -> float:
    """The share of guesses that the target keeps."""
    params = specdec.SamplingParams(max_new_tokens=LEARNED)
    pair = specdec.Pair(target, specdec.Eagle3(head))
    events = list(specdec.speculative(pair, prompt_ids, gamma=DEPTHS, params=params))
    assert specdec.collect(iter(events)).token_ids == list(text)
    statuses = [token.status for event in rounds_of(events) for token in event.draft or ()]
    return statuses.count("accepted") / len(statuses)


@pytest.fixture(scope="module")
def learned() -> tuple[Any, torch.Tensor, Eagle3Head, tuple[int, ...]]:
    target, prompt_ids = target_of(), prompt_of(7)
    return target, prompt_ids, *fitted(target, prompt_ids)


def test_what_if_of_a_head_that_has_learned_is_as_real_runs(learned) -> None:
    """Exact at the recorded length; at shorter ones, whose drafts begin elsewhere, expected and close."""
    target, prompt_ids, head, _ = learned
    pair, params = specdec.Pair(target, specdec.Eagle3(head)), specdec.SamplingParams(max_new_tokens=LEARNED)
    runs = {g: list(specdec.speculative(pair, prompt_ids, gamma=g, params=params)) for g in range(DEPTHS + 1)}
    costs = Costs.of(runs[DEPTHS], runs[0])
    assert len({costs.parts(gamma)[0] for gamma in range(1, 17)}) == 1, "one pass"
    for gamma, found in enumerate(what_if(runs[DEPTHS], costs, runs)):
        real = specdec.collect(iter(runs[gamma])).metrics
        assert found.exact == (gamma == DEPTHS) or not gamma
        assert found.target_passes == pytest.approx(real.target_passes, rel=0 if found.exact else 0.15), gamma
    assert [each.gamma for each in what_if(runs[DEPTHS], costs)][:-1] == [*range(DEPTHS + 1)]


def test_the_guesses_of_a_head_that_has_learned_are_kept(monkeypatch, learned) -> None:
    """And hardly any with a fault in the drafter, or before the head has learned anything."""
    target, prompt_ids, head, text = learned
    assert kept(head, target, prompt_ids, text) > 0.8
    assert kept(head_of(parallel(num_depths=DEPTHS)), target, prompt_ids, text) < 0.1
    for fault in ("masked rows stay", "masked rows one place late", "stale features"):
        with monkeypatch.context() as patched:
            break_drafter(patched, fault)
            assert kept(head, target, prompt_ids, text) < 0.5, fault


# --- loading ---------------------------------------------------------------------------------------------------------


def amazon(head: Eagle3Head) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A checkpoint as nkipy reads amazon's: ``midlayer`` and the layers after it, and a table of all tokens."""
    config = {**config_of(num_hidden_layers=3, ptd_token_id=MASK), "draft_vocab_size": VOCABULARY}
    weights = {name.replace("layers.0.", "midlayer."): value for name, value in weights_of(head).items()}
    return config, weights | {"t2d": torch.ones(VOCABULARY, dtype=torch.bool)}


def speculators(head: Eagle3Head) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    methods = [{"proposal_type": "greedy", "speculative_tokens": 5}]
    layer = {name: value for name, value in config_of(num_hidden_layers=3).items() if name != "architectures"}
    config = {
        "architectures": ["PEagleSpeculator"],
        "speculators_model_type": "peagle",
        "speculators_config": {"algorithm": "peagle", "proposal_methods": methods},
        "transformer_layer_config": layer,
        "mask_token_id": MASK,
    }
    return config, weights_of(head)


def nemo(head: Eagle3Head) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """As NeMo AutoModel and, with ``pard_token``, its export for vLLM write it."""
    options = {"parallel_drafting": True, "num_depths": 5, "mask_token_id": MASK, "pard_token": MASK}
    config = config_of(num_hidden_layers=3, architectures=["LlamaEagle3DraftModel"], fc_norm=False, **options)
    outside = ("lm_head.weight", "mask_hidden")
    weights = weights_of(head).items()
    return config, {name if name in outside else f"model.{name}": value for name, value in weights if name != "d2t"}


def specforge(head: Eagle3Head) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """SpecForge keeps the token in the settings of the training, so a person has to add it."""
    config = config_of(num_hidden_layers=3, architectures=["PEagleDraftModel"], draft_vocab_size=VOCABULARY)
    return config | {"mask_token_id": MASK}, weights_of(head)


FORMATS = {"amazon": amazon, "speculators": speculators, "NeMo": nemo, "SpecForge": specforge}


def weights_of(head: Eagle3Head) -> dict[str, torch.Tensor]:
    weights = {name: value.clone() for name, value in head.state_dict().items()}
    return weights | {"mask_hidden": weights["mask_hidden"][None, None]}


@pytest.fixture(scope="module")
def saved_target(tmp_path_factory) -> str:
    return save_target(target_of(), tmp_path_factory)


@pytest.mark.parametrize("written", FORMATS)
def test_a_head_is_recognised_by_its_config_and_loaded(tmp_path, saved_target, written: str) -> None:
    head = head_of(parallel(3))
    folder = save(tmp_path / "head", *FORMATS[written](head))
    said = " ".join(finding.sentence for finding in check_pair(plan_pair(saved_target, folder)))
    assert "A P-EAGLE head of 3 layers: all guesses of a draft together read" in said
    pair = load_pair(saved_target, folder)
    for name, weight in head.state_dict().items():
        assert torch.equal(pair.draft.head.state_dict()[name], weight)
    facts, most = pair.draft.describe(), 5 if written in ("speculators", "NeMo") else None
    assert facts["kind"] == "eagle3" and facts["one_pass"] and facts.get("most_guesses") == most
    assert ("up to 5 guesses at once" in said) == (most is not None)
    assert (
        provenance.head(pair.facts())["Head drafts"] == f"all guesses in one pass{', up to 5' * bool(most)} (P-EAGLE)"
    )
    assert "P-EAGLE head head" in provenance.pair_line(pair.facts())  # it lies in a folder of this name
    params = specdec.SamplingParams(max_new_tokens=12)
    text = specdec.collect(specdec.speculative(pair, "abc", gamma=4, params=params)).token_ids
    assert tuple(text) == generated(pair.target, pair.encode("abc")[0], 12)


def test_another_head_does_not_say_that_it_drafts_in_parallel() -> None:
    facts = specdec.Eagle3(head_of(config_of(num_hidden_layers=2))).describe()
    assert not {"one_pass", "most_guesses"} & facts.keys()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no masked token": ({"mask_token_id": None, "num_depths": 4}, "does not say which token .* Add mask_token_id"),
    "a name alone": ({"mask_token_id": None, "architectures": ["PEagleDraftModel"]}, "does not say which token"),
    "vLLM's class": ({"mask_token_id": None, "architectures": ["PeagleLlamaForCausalLM"]}, "does not say which token"),
    "a switch": ({"mask_token_id": None, "parallel_drafting": True}, "does not say which token"),
    "speculators' name": ({"mask_token_id": None, "speculators_model_type": "peagle"}, "does not say which token"),
    "a token beyond the vocabulary": ({"mask_token_id": VOCABULARY}, "sets mask_token_id to 320; it must be one of"),
    "a token that is no number": ({"mask_token_id": "7"}, "sets mask_token_id to '7'"),
    "two tokens": ({"ptd_token_id": MASK + 1}, "sets mask_token_id to 7, and ptd_token_id to 8"),
    "no depths": ({"num_depths": 0}, "sets num_depths to 0"),
    "depths that are no number": ({"para_depths": [8]}, "sets para_depths to .8."),
    "two depths": ({"num_depths": 4, "para_num": 8}, "sets num_depths to 4, and para_num to 8"),
    "a proposal of nothing": (
        {"speculators_config": {"proposal_methods": [{"speculative_tokens": 0}]}}, "sets speculative_tokens to 0"
    ),
    "another target": ({"vocab_size": VOCABULARY + 1}, "was made for a vocabulary of 321"),
    "fewer layers than kinds": ({"layer_types": ["full_attention"] * 3}, "names 3 layer_types and has 2 layers"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_config_that_cannot_be_right_is_refused_in_a_sentence(tmp_path, saved_target, wrong: str) -> None:
    changes, said = WRONG[wrong]
    folder = save(tmp_path / "head", parallel() | changes, {})
    with refused(said):
        plan_pair(saved_target, specdec.Eagle3(folder))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mask_hidden": None}, "lacks 1 of the weights .* the first is mask_hidden"),
        ({"mask_hidden": torch.ones(1, 1, HIDDEN)}, "mask_hidden .* has the shape .48,., and .* asks for .144,."),
        ({"layers.1.mlp.up_proj.weight": None}, "lacks 1 of the weights .* layers.1.mlp.up_proj.weight"),
        ({"layers.1.hidden_norm.weight": torch.ones(HIDDEN)}, "layers.1.hidden_norm.weight.* nothing here reads"),
        ({"layers.2.mlp.up_proj.weight": torch.ones(3)}, "layers.2.mlp.up_proj.weight.* nothing here reads"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, saved_target, changes, said: str) -> None:
    weights = {name: value for name, value in (weights_of(head_of(parallel())) | changes).items() if value is not None}
    with pytest.raises(specdec.LoadFailed, match=said):
        load_pair(saved_target, save(tmp_path / "head", parallel(), weights))


@pytest.mark.parametrize("place", ["top level", "eagle_config"])
@pytest.mark.parametrize("name", ["mask_token_id", "pard_token", "ptd_token_id"])
def test_the_masked_token_has_three_names_and_two_places(place: str, name: str) -> None:
    option = {name: MASK} if place == "top level" else {"eagle_config": {name: MASK}}
    assert head_config(config_of(**option)).mask_token == MASK
    assert not head_config(config_of()).parallel
