"""The MTP layer of Qwen3-Next and Qwen3.5: drafts against a reading from scratch, texts, chances, and checkpoints.

Each checkpoint is written by the test, with tiny random models. The reading from scratch takes the weights by their
names in the checkpoint, and uses neither a cache nor transformers' code. The target's own states are those of its last
layer, which a hook hands over.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from all_types import small_config, small_model
from comparison import FULL, HOURS, Comparison
from drafting import require_drafts_from_scratch
from enumeration import sampled_apart
from fakes import byte_tokenizer, generated, letters, prompt_of, rounds_of
from pairwise import each_once
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, Qwen3_5Config

import specdec
from specdec.drafters import mtp
from specdec.drafters.mtp import MtpDraft
from specdec.forward.recurrent_state import RecurrentSnapshots
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair

VOCABULARY = 320
FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
Weights = dict[str, torch.Tensor]


# --- checkpoints -----------------------------------------------------------------------------------------------------


def config_of(family: str, vocabulary: int = VOCABULARY, **changes: Any) -> Any:
    """A hybrid of two layers. Rotary angles turn 4 of the 16 numbers of a head."""
    kinds = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    named = {} if family == "qwen3_next" else {"mtp_num_hidden_layers": 1}  # as published
    sizes = {"vocab_size": vocabulary, "head_dim": 16, "max_position_embeddings": 512}
    no_ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    return small_config(CONFIG_MAPPING[family], **sizes | kinds | named | no_ids | changes)


def target_of(family: str, vocabulary: int = VOCABULARY) -> Any:
    """A random target. Weights of norms are far from 0, so that a state before a norm is not one after it."""
    target, rng = small_model(config_of(family, vocabulary)), torch.Generator().manual_seed(3)
    for name, weight in target.named_parameters():
        if "norm" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=rng) * 0.3)
    return target


def mtp_weights(config: Any) -> Weights:
    """Random weights of an MTP layer under their names in a checkpoint."""
    size, head, rng = config.hidden_size, config.head_dim, torch.Generator().manual_seed(4)
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (size, 2 * size),
        **dict.fromkeys(("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), (size,)),
        **{f"layers.0.{name}_layernorm": (size,) for name in ("input", "post_attention")},
        "layers.0.self_attn.q_proj": (2 * heads * head, size),
        "layers.0.self_attn.o_proj": (size, heads * head),
        **{f"layers.0.self_attn.{name}_proj": (groups * head, size) for name in "kv"},
        **{f"layers.0.self_attn.{name}_norm": (head,) for name in "qk"},
    }
    if count := getattr(config, "num_experts", 0):
        wide = config.shared_expert_intermediate_size
        shapes |= {
            "layers.0.mlp.gate": (count, size),
            "layers.0.mlp.shared_expert_gate": (1, size),
            **{f"layers.0.mlp.experts.{i}.{name}_proj": (48, size) for i in range(count) for name in ("gate", "up")},
            **{f"layers.0.mlp.experts.{i}.down_proj": (size, 48) for i in range(count)},
        }
    else:
        wide = config.intermediate_size
    mlp = "layers.0.mlp." if not count else "layers.0.mlp.shared_expert."
    shapes |= {f"{mlp}gate_proj": (wide, size), f"{mlp}up_proj": (wide, size), f"{mlp}down_proj": (size, wide)}
    return {f"mtp.{name}.weight": torch.randn(shape, generator=rng) * 0.4 for name, shape in shapes.items()}


def fused(weights: Weights, config: Any) -> Weights:
    """The same weights with all experts in two tensors, as Qwen3.5's checkpoints have them."""
    place, every = "mtp.layers.0.mlp.experts.", range(config.num_experts)
    one = {name: [weights[f"{place}{i}.{name}_proj.weight"] for i in every] for name in ("gate", "up", "down")}
    pairs = zip(one["gate"], one["up"], strict=True)
    joined = {f"{place}gate_up_proj": torch.stack([torch.cat(pair) for pair in pairs])}
    joined[f"{place}down_proj"] = torch.stack(one["down"])
    return {name: weight for name, weight in weights.items() if place not in name} | joined


def write(folder: Path, target: Any, weights: Weights, **changes: Any) -> str:
    """A checkpoint of ``target`` with more ``weights``, and with ``changes`` to its config."""
    target.save_pretrained(folder)
    vocabulary = target.config.vocab_size
    (byte_tokenizer() if vocabulary >= 300 else letters(vocabulary)).save_pretrained(folder)
    path = folder / "model.safetensors"
    whole = load_file(path) | weights
    save_file({name: weight.contiguous() for name, weight in whole.items()}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return str(folder)


@functools.cache
def pair_of(family: str, vocabulary: int = VOCABULARY) -> specdec.Pair:
    """A loaded pair. Tests that change it use another."""
    with tempfile.TemporaryDirectory() as folder:
        target = target_of(family, vocabulary)
        return load_pair(write(Path(folder), target, mtp_weights(target.config)), "mtp")


# --- from scratch ----------------------------------------------------------------------------------------------------


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + weight)


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary angles for (n, heads, 16): numbers 0 and 2 of the first 4 are a pair, and so are 1 and 3."""
    angles = torch.arange(len(x))[:, None, None] * torch.tensor([1, theta**-0.5], dtype=torch.float64)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :2], x[..., 2:4]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 4:]], -1)


def attended(x: torch.Tensor, weights: Weights, config: Any) -> torch.Tensor:
    """Causal attention over rows (n, H), with a gate for each number of its output."""
    count, head, theta = len(x), config.head_dim, config.rope_parameters["rope_theta"]
    q, k, v = ((x @ weights[f"self_attn.{name}_proj"].T).view(count, -1, 2 * head if name == "q" else head)
               for name in "qkv")  # fmt: skip
    q, gate = q[..., :head], q[..., head:]
    q, k = turned(norm(q, weights["self_attn.q_norm"]), theta), turned(norm(k, weights["self_attn.k_norm"]), theta)
    out = torch.zeros_like(q)
    for number in range(q.shape[1]):
        group = number * k.shape[1] // q.shape[1]
        scores = q[:, number] @ k[:, group].T / math.sqrt(head)
        unseen = torch.ones(count, count, dtype=torch.bool).triu(1)
        out[:, number] = scores.masked_fill(unseen, -math.inf).softmax(-1) @ v[:, group]
    return (out * gate.sigmoid()).reshape(count, -1) @ weights["self_attn.o_proj"].T


def glu(x: torch.Tensor, weights: Weights, place: str) -> torch.Tensor:
    gate, up, down = (weights[f"{place}{name}_proj"] for name in ("gate", "up", "down"))
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def mixed(x: torch.Tensor, weights: Weights, config: Any) -> torch.Tensor:
    """The dense MLP, or the likeliest experts with chances that sum to 1, and the shared expert."""
    if "mlp.gate" not in weights:
        return glu(x, weights, "mlp.")
    rows = []
    for row in x:
        chances, chosen = (weights["mlp.gate"] @ row).softmax(-1).topk(config.num_experts_per_tok)
        outs = [glu(row, weights, f"mlp.experts.{i}.") for i in chosen.tolist()]
        rows.append(sum(p * out for p, out in zip(chances / chances.sum(), outs, strict=True)))
    shared = (x @ weights["mlp.shared_expert_gate"].T).sigmoid() * glu(x, weights, "mlp.shared_expert.")
    return torch.stack(rows) + shared


def step(target: Any, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The states h' (n, H) for the target's ``states`` (n, H) and the ids (n,) that follow each of them."""
    config = target.config
    weights = {name.removeprefix("mtp.").removesuffix(".weight"): w.double() for name, w in mtp_weights(config).items()}
    own = {name.removeprefix("layers.0."): w for name, w in weights.items() if name.startswith("layers.0.")}
    embedded = target.get_input_embeddings().weight.double()[ids]
    first = norm(embedded, weights["pre_fc_norm_embedding"])
    x = torch.cat([first, norm(states, weights["pre_fc_norm_hidden"])], -1) @ weights["fc"].T
    x = x + attended(norm(x, own["input_layernorm"]), own, config)
    x = x + mixed(norm(x, own["post_attention_layernorm"]), own, config)
    return norm(x, weights["norm"])


@torch.no_grad()
def draft_from_scratch(pair: specdec.Pair, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` greedy guesses after ``text``, all of it read anew."""
    target, ids, seen = pair.target, torch.tensor(text), []
    hook = target.model.layers[-1].register_forward_hook(lambda module, given, out: seen.append(out[0]))
    target(input_ids=ids[None], use_cache=False)
    hook.remove()
    states = norm(seen[0].double(), target.model.norm.weight.double())[:-1]
    found: list[torch.Tensor] = []
    for _ in range(gamma):
        new = step(target, states, ids[1 : 1 + len(states)])
        found.append(new[-1] @ target.lm_head.weight.double().T)
        ids, states = torch.cat([ids, found[-1].argmax()[None]]), torch.cat([states, new[-1:]])
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_draft_is_that_of_the_description(monkeypatch, family: str) -> None:
    """In each round, after rejections and full acceptances, with a recurrent state that goes back."""
    pair = pair_of(family)
    for gamma, kept in ((1, 260), (3, 240), (8, 290)):
        require_drafts_from_scratch(monkeypatch, pair, MtpDraft, gamma, partial(draft_from_scratch, pair), kept)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_has_the_numbers_of_the_description(family: str) -> None:
    """From the same states, without the loop: within 1e-5 of the largest number."""
    pair = pair_of(family)
    states = torch.randn(9, pair.target.config.hidden_size, generator=torch.Generator().manual_seed(1))
    ids, places = prompt_of(9), torch.arange(1, 10)
    cache = mtp.MtpCache(config=pair.draft.model.config)
    with torch.no_grad():
        ours = pair.draft.model.forward_layer(0, states[None], places[None], cache, input_ids=ids[None])[0]
        theirs = step(pair.target, states.double(), ids)
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


BUGS = (
    "state before the target's norm", "state before the layer's norm", "norms without the 1", "halves swapped",
    "token of the row before", "stale states", "cache not cropped",
)  # fmt: skip


def plant(monkeypatch, bug: str) -> None:
    layer, project = pair_of("qwen3_5_text").draft.model.layers[0], mtp.mtp_logits
    take, whole = MtpDraft._take, MtpDraft._pass
    if bug == "state before the target's norm":
        monkeypatch.setattr(mtp, "NORMED", 2)  # the output of the last layer
    elif bug == "state before the layer's norm":
        monkeypatch.setattr(layer, "use_post_norm", False)
        monkeypatch.setattr(mtp, "mtp_logits", lambda model, states: project(model, layer.post_norm(states)))
    elif bug == "norms without the 1":
        monkeypatch.setattr(layer.hnorm, "forward", lambda x: layer.hnorm._norm(x) * layer.hnorm.weight)
    elif bug == "halves swapped":
        halves = layer.eh_proj.weight.chunk(2, 1)
        monkeypatch.setattr(layer.eh_proj, "weight", torch.nn.Parameter(torch.cat(halves[::-1], 1)))
    elif bug == "token of the row before":
        before = lambda self, number, states, row: whole(self, number, states, max(0, row - 1))  # noqa: E731
        monkeypatch.setattr(MtpDraft, "_pass", before)
    elif bug == "stale states":
        monkeypatch.setattr(MtpDraft, "_take", lambda self, start, rows: take(self, start, rows.roll(1, 0)))
    elif bug == "cache not cropped":
        monkeypatch.setattr(MtpDraft, "crop_to", lambda self, length: None)


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """The comparison above sees what would cost acceptance, and no text would show."""
    plant(monkeypatch, bug)
    # A wrong draft may read a place of its cache where nothing was written, and so anything, NaN included.
    with pytest.raises((AssertionError, specdec.NotNumbers), match="logits differ|hold NaN"):
        test_every_draft_is_that_of_the_description(monkeypatch, "qwen3_5_text")


# --- texts and chances -----------------------------------------------------------------------------------------------


def require_text_of_generate(pair: specdec.Pair, tokens: int, gammas: tuple[Any, ...]) -> set[str]:
    """Also after prompts of one and two tokens. Returns the kinds of guesses that were seen."""
    compared, seen = Comparison(), set()
    for length in (1, 2, 9):
        prompt_ids = prompt_of(length)
        reference = generated(pair.target, prompt_ids, tokens)
        for gamma in gammas if length == 9 else gammas[:1]:
            params = specdec.SamplingParams(max_new_tokens=tokens)
            events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params))
            ids = tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(events)))
            compared.require_same(pair.target, prompt_ids, ids, reference)
            seen |= {token.status for event in rounds_of(events) for token in event.draft}
    compared.require_few_ties()
    return seen


@pytest.mark.parametrize(("family", "one"), [*zip(FAMILIES, (2, 8, 16), strict=True)])
def test_greedy_text_is_that_of_generate(family: str, one: int) -> None:
    gammas = (*range(1, 17), "auto") if HOURS else (4, 2, 8, 16, "auto") if FULL else (4, one, "auto")
    assert "rejected" in require_text_of_generate(pair_of(family), 64 if FULL else 32, gammas)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_long_greedy_text_is_that_of_generate(family: str) -> None:
    require_text_of_generate(pair_of(family), 300, (3, 16))


@pytest.mark.parametrize("bug", ["state not restored", "restored one token late"])
def test_a_wrong_rollback_of_the_target_is_caught(monkeypatch, bug: str) -> None:
    restore = RecurrentSnapshots.restore

    def wrong(self, length):
        states = [state.clone() for state in self._present()]
        place = restore(self, length)
        if bug == "state not restored":
            for state, kept in zip(self._present(), states, strict=True):
                state.copy_(kept)
        return min(place + (bug != "state not restored"), length)

    monkeypatch.setattr(RecurrentSnapshots, "restore", wrong)
    with pytest.raises(AssertionError, match="gap"):
        require_text_of_generate(pair_of("qwen3_next"), 64, (4,))


def difference(family: str, acceptance: str = "lossless") -> float:
    """How far the text's distribution is from the target's, by every outcome of every draw over several rounds."""
    apart, paths = sampled_apart(pair_of(family, vocabulary=3), acceptance, 4 if HOURS else 3)
    assert paths > 12
    return apart


@each_once(acceptance=("lossless", "block"), family=FAMILIES)
def test_sampled_text_has_the_targets_distribution(family: str, acceptance: str) -> None:
    assert difference(family, acceptance) < CLOSE


def test_a_q_that_no_guess_was_drawn_from_is_caught(monkeypatch) -> None:
    draft = MtpDraft._draft

    def sharper(self, context, gamma, stop, missed):
        proposal = draft(self, context, gamma, stop, missed)
        return proposal._replace(q=proposal.q.square() / proposal.q.square().sum(-1, keepdim=True))

    monkeypatch.setattr(MtpDraft, "_draft", sharper)
    assert difference("qwen3_5_text") > 100 * CLOSE


# --- a layer that knows the answer -----------------------------------------------------------------------------------


def knowing(folder: Path, reads: str, experts: bool) -> specdec.Pair:
    """A target that goes through its 32 tokens in a fixed order, and a layer that was made for it.

    Layers add nothing. Token a has the state e_a, and the output matrix has its row for token a + 7 along e_a. So fc
    copies the embedding of token t + 1, or moves the state of token t on by 7.
    """
    target = target_of("qwen3_5_moe_text" if experts else "qwen3_5_text", vocabulary=32)
    for name, weight in target.named_parameters():
        weight.data.zero_()
        if name.endswith(("A_log", "dt_bias")):
            weight.data.fill_(1.0)
    step = torch.eye(32).roll(7, 0)  # e_a to e_(a + 7)
    target.get_input_embeddings().weight.data.copy_(torch.eye(32))
    target.lm_head.weight.data.copy_(step)
    weights = {name: torch.zeros_like(weight) for name, weight in mtp_weights(target.config).items()}
    halves = (torch.eye(32), torch.zeros(32, 32)) if reads == "embedding" else (torch.zeros(32, 32), step)
    weights["mtp.fc.weight"] = torch.cat(halves, 1)
    return load_pair(write(folder, target, weights), "mtp")


def alpha(pair: specdec.Pair, gamma: int, temperature: float = 0.0) -> float:
    params = specdec.SamplingParams(max_new_tokens=40, temperature=temperature, seed=1)
    return specdec.collect(specdec.speculative(pair, torch.tensor([3, 10]), gamma=gamma, params=params)).metrics.alpha


@each_once(reads=("embedding", "state"), experts=(False, True))
def test_a_layer_that_knows_the_next_token_is_always_right(monkeypatch, tmp_path, reads: str, experts: bool) -> None:
    """At each depth from 1 to 8, also where the logits are sampled. One token too early, it is never right."""
    pair = knowing(tmp_path, reads, experts)
    assert {alpha(pair, gamma) for gamma in (1, 2, 5, 8)} == {1.0} and alpha(pair, 4, temperature=0.5) > 0.9
    take, whole = MtpDraft._take, MtpDraft._pass
    if reads == "embedding":
        before = lambda self, number, states, row: whole(self, number, states, max(0, row - 1))  # noqa: E731
        monkeypatch.setattr(MtpDraft, "_pass", before)
    else:  # the state at the token before
        monkeypatch.setattr(MtpDraft, "_take", lambda self, start, rows: take(self, start, rows.roll(-7, -1)))
    assert alpha(pair, 1) == 0


# --- loading ---------------------------------------------------------------------------------------------------------


NAMES = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "post_norm"}


@pytest.fixture(scope="module")
def dense() -> tuple[Any, Weights]:
    target = target_of("qwen3_5_text")
    return target, mtp_weights(target.config)


def test_the_weights_are_those_of_the_checkpoint(tmp_path, dense) -> None:
    """The target itself stays as it is, and other ways to draft leave the layer unread."""
    target, weights = dense
    folder = write(tmp_path, target, weights)
    pair = load_pair(folder, "mtp")
    layer = pair.draft.model.layers[0]
    for name, weight in weights.items():
        ours = NAMES.get(name.split(".")[1], "mtp_block" + name[len("mtp.layers.0") : -len(".weight")])
        assert torch.equal(layer.get_submodule(ours).weight, weight), name
    assert len(weights) == len(list(layer.parameters()))
    facts = pair.facts()["draft"]
    assert facts["layers"] == 1 and facts["parameters"] == sum(weight.numel() for weight in weights.values())
    plain = load_pair(folder, "prompt-lookup")
    for (name, weight), other in zip(pair.target.named_parameters(), plain.target.parameters(), strict=True):
        assert torch.equal(weight, other) and weight.dtype == other.dtype, name
    assert pair.target.config.to_dict() == plain.target.config.to_dict()
    assert pair.draft.model.embed_tokens is pair.target.get_input_embeddings()


@each_once(family=FAMILIES[1:], joined=(True, False))
def test_experts_are_read_together_or_one_by_one(tmp_path, family: str, joined: bool) -> None:
    target = target_of(family)
    weights = mtp_weights(target.config)
    together = fused(weights, target.config)
    pair = load_pair(write(tmp_path, target, together if joined else weights), "mtp")
    experts = pair.draft.model.layers[0].mtp_block.mlp.experts
    for name in ("gate_up_proj", "down_proj"):
        assert torch.equal(getattr(experts, name), together[f"mtp.layers.0.mlp.experts.{name}"])


def test_a_checkpoint_that_also_reads_images(tmp_path, dense) -> None:
    """As published: the text's config is a part of another, its weights have one more name, and there is a tower.

    The layer's weights are in a file of their own.
    """
    target, weights = dense
    target.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    parts = {
        "a.safetensors": {name.replace("model.", "model.language_model.", 1): w for name, w in whole.items()}
        | {"model.visual.blocks.0.norm.weight": torch.ones(3)},
        "b.safetensors": weights,
    }
    (tmp_path / "model.safetensors").unlink()
    for file, held in parts.items():
        save_file(held, tmp_path / file, {"format": "pt"})
    places = {name: file for file, held in parts.items() for name in held}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    Qwen3_5Config(text_config=target.config.to_dict()).save_pretrained(tmp_path)
    pair, prompt_ids = load_pair(tmp_path, "mtp"), prompt_of(9)
    assert torch.equal(pair.draft.model.layers[0].eh_proj.weight, weights["mtp.fc.weight"])
    params = specdec.SamplingParams(max_new_tokens=12)
    text = specdec.collect(specdec.speculative(pair, prompt_ids, params=params)).token_ids
    assert tuple(text) == generated(target, prompt_ids, 12)
    assert all(finding.level != "bad" for finding in check_pair(plan_pair(tmp_path, "mtp")))


FULL_ATTENTION, LINEAR = "full_attention", "linear_attention"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mtp_num_hidden_layers": 0}, r"\(qwen3_5_text\) names no MTP layers .*mtp_num_hidden_layers"),
        ({"mtp_num_hidden_layers": None}, "names no MTP layers"),
        ({"mtp_num_hidden_layers": 2}, "names 2 MTP layers, and only one is read"),
        ({"mtp_num_hidden_layers": "many"}, "names 'many' MTP layers"),
        ({"mtp_use_dedicated_embeddings": True}, "has an embedding of its own"),
        ({"layer_types": [FULL_ATTENTION, LINEAR]}, "last layer .* is of the type 'linear_attention'"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_before_weights_are_read(tmp_path, dense, changes, said: str) -> None:
    folder = write(tmp_path, *dense, **changes)
    with pytest.raises(specdec.IncompatiblePair, match=said):
        plan_pair(folder, "mtp")


def test_qwen3_next_says_nothing_and_has_one(tmp_path) -> None:
    target = target_of("qwen3_next")
    assert not hasattr(target.config, "mtp_num_hidden_layers")
    plan_pair(write(tmp_path, target, mtp_weights(target.config)), "mtp")
    with pytest.raises(specdec.IncompatiblePair, match="names no MTP layers"):
        plan_pair(write(tmp_path, target, {}, num_nextn_predict_layers=0), "mtp")


def test_experts_that_some_of_the_targets_layers_lack(tmp_path) -> None:
    """The numbers in ``mlp_only_layers`` are those of the target's layers. The MTP layer is none of them."""
    target = small_model(config_of("qwen3_next", mlp_only_layers=[0]))
    pair = load_pair(write(tmp_path, target, mtp_weights(target.config)), "mtp")
    assert hasattr(pair.draft.model.layers[0].mtp_block.mlp, "experts")
    assert pair.target.config.mlp_only_layers == [0]


def test_a_checkpoint_without_the_layer_is_refused_before_weights_are_read(tmp_path, dense) -> None:
    folder = write(tmp_path, dense[0], {})
    with pytest.raises(specdec.LoadFailed, match=r"has no weights of an MTP layer \(mtp\.\*\)"):
        plan_pair(folder, "mtp")
    for draft in ("prompt-lookup", None):  # neither offers it nor speaks of it
        assert not any("MTP" in finding.sentence for finding in check_pair(plan_pair(folder, draft)))


@pytest.mark.parametrize("name", ["fc", "norm", "layers.0.self_attn.q_norm", "layers.0.mlp.up_proj"])
def test_a_layer_that_lacks_a_weight_is_refused(tmp_path, dense, name: str) -> None:
    target, weights = dense
    folder = write(tmp_path, target, {key: w for key, w in weights.items() if key != f"mtp.{name}.weight"})
    with pytest.raises(specdec.LoadFailed, match=f"MTP layers .* lacks 1 of their weights; the first is mtp.{name}"):
        load_pair(folder, "mtp")


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.mlp.up_proj.weight_scale_inv", "layers.0.self_attn.q_proj.bias", "fc.bias", "other.weight",
        "layers.1.input_layernorm.weight", "embed_tokens.weight", "lm_head.weight", "shared_head.head.weight",
    ],
)  # fmt: skip
def test_a_weight_of_the_layer_that_nobody_reads_is_refused(tmp_path, dense, name: str) -> None:
    """An embedding or output matrix of its own among them. A draft of another kind does not read them, and works."""
    target, weights = dense
    extra = {f"mtp.{name}": torch.ones(VOCABULARY, target.config.hidden_size)}
    folder = write(tmp_path, target, weights | extra)
    with pytest.raises(specdec.LoadFailed, match=f"holds 1 .*{name}.* that nothing here reads"):
        load_pair(folder, "mtp")
    load_pair(folder, "prompt-lookup")


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (torch.ones(32, 32), r"mtp.fc.weight .* has the shape \(32, 32\), .* asks for \(32, 64\)"),
        (torch.full((32, 64), torch.nan), "eh_proj.weight.* holds NaN or infinity"),
    ],
)
def test_a_weight_of_another_shape_or_without_numbers_is_refused(tmp_path, dense, weight, said: str) -> None:
    target, weights = dense
    with pytest.raises(specdec.LoadFailed, match=said):
        load_pair(write(tmp_path, target, weights | {"mtp.fc.weight": weight}), "mtp")


# --- what a check says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_check_says_what_a_guess_costs(tmp_path, family: str) -> None:
    """By bytes, for the experts that one token reads: 2 of 4."""
    target = target_of(family)
    weights = mtp_weights(target.config)
    folder = write(tmp_path, target, weights)

    def size(held: Weights) -> float:
        return sum(w.numel() * (0.5 if ".experts." in name else 1.0) for name, w in held.items())

    head = target.lm_head.weight.numel()
    body = size({name: w for name, w in target.named_parameters() if ".layers." in name})
    share = (size(weights) + head) / (body + head)
    found = {finding.topic: finding for finding in check_pair(plan_pair(folder, "mtp"))}
    assert found["Cost"].level == "note" and f" {share:.2f} of the bytes" in found["Cost"].sentence
    assert "MTP" not in found
    # A deeper target with a smaller vocabulary: a guess is cheap.
    more = {f"model.layers.{i}.mlp.up_proj.weight": torch.ones(300, 300) for i in range(2, 6)}
    deep = check_pair(plan_pair(write(tmp_path, target, weights | more), "mtp"))
    assert next(finding.level for finding in deep if finding.topic == "Cost") == "good"


def test_one_matrix_for_input_and_output_counts_once(tmp_path) -> None:
    target = small_model(config_of("qwen3_5_text", tie_word_embeddings=True))
    weights = mtp_weights(target.config)
    head = target.get_input_embeddings().weight.numel()
    body = sum(w.numel() for name, w in target.named_parameters() if ".layers." in name)
    share = (sum(w.numel() for w in weights.values()) + head) / (body + head)
    found = check_pair(plan_pair(write(tmp_path, target, weights), "mtp"))
    assert f" {share:.2f} of the bytes" in next(f.sentence for f in found if f.topic == "Cost")
