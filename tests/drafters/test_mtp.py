"""MTP layers: every draft against one made from scratch, texts against ``generate``, and what a checkpoint lacks.

The reading from scratch follows DeepSeek-AI 2412.19437, section 2.2, over the whole text and without a cache; its
decoder layers are transformers' own classes.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch
from comparison import HOURS, Comparison
from drafting import GAMMAS, require_drafts_from_scratch
from enumeration import sampled_apart
from fakes import byte_tokenizer, generated, isolated_rng, prompt_of, tiny
from pairwise import each_once
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, Glm4MoeConfig
from transformers.modeling_layers import MtpModel

import specdec
from specdec.drafters.mtp import MtpDraft
from specdec.measure.enumeration import CLOSE
from specdec.models.loading import load_pair, plan_pair
from specdec.models.pair_check import check_pair

DEPTH, VOCABULARY = 3, 320
SHAPE = {
    "hidden_size": 48, "intermediate_size": 64, "moe_intermediate_size": 32, "num_attention_heads": 4,
    "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "max_position_embeddings": 512, "initializer_range": 0.3,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
FAMILIES: dict[str, Any] = {
    "deepseek_v3": lambda **sizes: DeepseekV3Config(
        **SHAPE, num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=12, **sizes,
    ),
    "glm4_moe": lambda **sizes: Glm4MoeConfig(**SHAPE, num_key_value_heads=2, head_dim=12, **sizes),
}  # fmt: skip


def target_of(family: str, layers: int, vocabulary: int = VOCABULARY, depth: int = DEPTH):
    config = FAMILIES[family](num_mtp_layers=layers, vocab_size=vocabulary, num_hidden_layers=depth)
    with isolated_rng(3):
        target = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    target.generation_config.eos_token_id, target.generation_config.pad_token_id = None, 0
    return target


def pair_of(family: str, layers: int, vocabulary: int = VOCABULARY) -> specdec.Pair:
    """A target with random MTP layers."""
    target = target_of(family, layers, vocabulary)
    with isolated_rng(4):
        model = MtpModel(target, layers).requires_grad_(False)
        for name, weight in model.layers.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
    return specdec.Pair(target, specdec.Mtp(model))


# --- from scratch ----------------------------------------------------------------------------------------------------


def made(pair: specdec.Pair, layer: int, states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """What MTP layer ``layer`` makes of all rows (n, H); ``ids`` (n,) are the tokens that they join."""
    model, count = pair.draft.model, len(states)
    block = model.layers[layer]
    joined = torch.cat([block.enorm(pair.target.get_input_embeddings()(ids)), block.hnorm(states)], -1)
    x = (joined @ block.eh_proj.weight.T)[None]
    places = torch.arange(count)[None]  # rotary angles tell distances alone
    mask = torch.full((count, count), torch.finfo(x.dtype).min).triu(1)[None, None]
    angles = pair.target.get_decoder().rotary_emb(x, position_ids=places)
    out = block.mtp_block(x, attention_mask=mask, position_ids=places, position_embeddings=angles)
    return block.post_norm(out)[0]


def draft_from_scratch(pair: specdec.Pair, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` greedy guesses after ``text``, all of it read anew."""
    ids = torch.tensor(text)
    out = pair.target(input_ids=ids[None], use_cache=False, output_hidden_states=True)
    states, last = out.hidden_states[-1][0, :-1], len(pair.draft.model.layers) - 1
    found: list[torch.Tensor] = []
    for guess in range(gamma):
        layer = min(guess, last)
        if guess > last:
            states = torch.cat([read, new[-1:]])  # noqa: F821 - of the guess before
        read = states
        new = made(pair, layer, read, ids[1 + layer : 1 + layer + len(read)])
        found.append((new[-1] @ pair.target.lm_head.weight.T).double())
        ids = torch.cat([ids, found[-1].argmax()[None]])
        states = new
    return found


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_draft_is_that_of_the_published_layers(monkeypatch, family: str, layers: int) -> None:
    """In each round, after rejections and full acceptances: as many guesses as layers, fewer, and more."""
    pair = pair_of(family, layers)
    for gamma in (2, 4):
        require_drafts_from_scratch(monkeypatch, pair, MtpDraft, gamma, partial(draft_from_scratch, pair))


@pytest.mark.parametrize(
    "bug", ["stale states", "cache not cropped", "rows of guesses kept", "token of the row before", "layers swapped"]
)
def test_a_wrong_draft_is_caught(monkeypatch, bug: str) -> None:
    """The comparison above sees what would cost acceptance, and no text would show."""
    if bug == "stale states":
        take = MtpDraft._take
        monkeypatch.setattr(MtpDraft, "_take", lambda self, start, rows: take(self, start, rows.roll(1, 0)))
    elif bug == "cache not cropped":
        monkeypatch.setattr(MtpDraft, "crop_to", lambda self, length: None)
    elif bug == "rows of guesses kept":
        feed = MtpDraft._feed
        monkeypatch.setattr(MtpDraft, "_feed", lambda self, layer, end, committed: feed(self, layer, end, end))
    else:
        whole = MtpDraft._pass
        step = (0, 1) if bug == "token of the row before" else (1, 0)
        monkeypatch.setattr(
            MtpDraft,
            "_pass",
            lambda self, layer, states, row: whole(self, (layer + step[0]) % 2, states, max(0, row - step[1])),
        )
    # A wrong draft may read a place of its cache where nothing was written, and so anything, NaN included.
    with pytest.raises((AssertionError, specdec.NotNumbers), match="logits differ|hold NaN"):
        test_every_draft_is_that_of_the_published_layers(monkeypatch, "glm4_moe", 2)


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_that_of_generate(family: str, layers: int) -> None:
    pair = pair_of(family, layers)
    prompt_ids, tokens = prompt_of(9), 300 if HOURS else 40
    reference = generated(pair.target, prompt_ids, tokens)
    compared = Comparison()
    for gamma in GAMMAS:
        params = specdec.SamplingParams(max_new_tokens=tokens)
        ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
        compared.require_same(pair.target, prompt_ids, tuple(ids), reference)
    compared.require_few_ties()


@each_once(acceptance=("lossless", "block"), layers=(2, 1))
def test_sampled_text_has_the_targets_distribution(layers: int, acceptance: str) -> None:
    """Every outcome of every draw, over rounds that follow each other."""
    pair = pair_of("deepseek_v3", layers, vocabulary=3)
    apart, paths = sampled_apart(pair, acceptance, 4 if HOURS else 3)
    assert paths > 12 and apart < CLOSE


def test_a_prompt_of_one_token_and_drafts_that_pause(monkeypatch) -> None:
    """Layers whose rows wait, because a draft was short or there was none, catch up."""
    pair = pair_of("glm4_moe", 3)
    for prompt_ids in (torch.tensor([5]), torch.tensor([5, 6])):
        reference = generated(pair.target, prompt_ids, 24)
        for gamma in (1, 3, "auto"):
            params = specdec.SamplingParams(max_new_tokens=24)
            ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
            assert tuple(ids) == reference


# --- loading ---------------------------------------------------------------------------------------------------------


def save(folder, layers: int = 1, without: str = "nothing") -> str:
    """A checkpoint as it is published: the MTP layers stand after the target's, with three weights more each."""
    target = target_of("glm4_moe", layers, depth=DEPTH + layers)
    target.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    width = target.config.hidden_size
    with isolated_rng(5):
        for layer in range(DEPTH, DEPTH + layers):
            own = f"model.layers.{layer}."
            weights |= {f"{own}{name}.weight": torch.rand(width) + 0.5 for name in ("enorm", "hnorm")}
            weights[f"{own}shared_head.norm.weight"] = torch.rand(width) + 0.5
            weights[f"{own}eh_proj.weight"] = torch.randn(width, 2 * width) * 0.3
    save_file({name: value for name, value in weights.items() if without not in name}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": DEPTH}))
    return str(folder)


# transformers' pattern ignores the layers of published depths alone, and would refuse these as unexpected otherwise.
@pytest.fixture
def published_depth(monkeypatch) -> None:
    from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeForCausalLM

    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", [rf"model\.layers\.{DEPTH}\..*"])


def test_layers_are_loaded_from_the_targets_checkpoint(tmp_path, published_depth) -> None:
    folder = save(tmp_path)
    drafting, unused = ({f.topic for f in check_pair(plan_pair(folder, draft))} for draft in (specdec.Mtp(), "suffix"))
    assert "MTP" not in drafting and "MTP" in unused, "a note says if the target's layers are not used"
    pair = load_pair(folder, specdec.Mtp())
    facts = pair.facts()["draft"]
    assert facts["kind"] == "mtp" and facts["layers"] == 1
    weights = load_file(tmp_path / "model.safetensors")
    for name in ("enorm", "hnorm", "eh_proj"):
        ours = pair.draft.model.layers[0].get_submodule(name).weight
        assert torch.equal(ours, weights[f"model.layers.{DEPTH}.{name}.weight"])
    params = specdec.SamplingParams(max_new_tokens=12)
    text = specdec.collect(specdec.speculative(pair, "abc", params=params)).token_ids
    assert tuple(text) == generated(pair.target, pair.encode("abc")[0], 12)


def test_a_checkpoint_without_the_layers_is_refused(tmp_path, published_depth) -> None:
    folder = save(tmp_path, without="eh_proj")
    with pytest.raises(specdec.LoadFailed, match="MTP layers"):
        load_pair(folder, specdec.Mtp())


def test_a_checkpoint_without_any_of_the_layers_is_refused_before_weights_are_read(tmp_path) -> None:
    target = target_of("glm4_moe", 1)
    target.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(specdec.LoadFailed, match="has no weights of MTP layers"):
        plan_pair(str(tmp_path), "mtp")
    assert not any("MTP" in finding.sentence for finding in check_pair(plan_pair(str(tmp_path))))


@pytest.mark.parametrize("name", ["mlp.gate.weight_scale_inv", "self_attn.q_proj.bias", "transformer_bias.weight"])
def test_a_weight_of_the_layers_that_nobody_reads_is_refused(tmp_path, published_depth, name: str) -> None:
    """Scales of packed weights, for example. A draft of another kind does not read the layers, and works."""
    folder = save(tmp_path)
    path, whole = tmp_path / "model.safetensors", f"model.layers.{DEPTH}.{name}"
    save_file(load_file(path) | {whole: torch.ones(3)}, path, {"format": "pt"})
    with pytest.raises(specdec.LoadFailed, match=f"holds 1 .*{name}.* that nothing here reads"):
        load_pair(folder, specdec.Mtp())
    load_pair(folder, "prompt-lookup")


def test_a_target_without_mtp_layers_is_refused() -> None:
    with pytest.raises(specdec.IncompatiblePair, match="MTP"):
        specdec.Pair(tiny("llama"), specdec.Mtp())
    with pytest.raises(specdec.InvalidInput, match="load_pair"):
        specdec.Pair(target_of("glm4_moe", 1), specdec.Mtp())
