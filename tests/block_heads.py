"""What the tests of DFlash and DSpark heads share: heads with random weights, and an independent reading of them.

The reading is written from Chen et al. 2602.06036, from 2607.05147, and from how the published code describes the
layers (z-lab, speculators, DeepSpec): over the whole text, without a cache, in float64.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import torch
from comparison import Comparison
from drafting import HIDDEN, VOCABULARY, randomised
from fakes import generated, isolated_rng, prompt_of, tiny
from transformers import GenerationConfig, MuseGlimmerConfig, MuseGlimmerForConditionalGeneration

import specdec
from specdec.drafters.dflash_config import dflash_config, is_dspark
from specdec.drafters.dflash_head import DFlashHead
from specdec.drafters.dspark import DSparkHead, dspark_config

LAYERS = 6  # of a target
WINDOW = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "use_sliding_window": True}
SIZES = {
    "hidden_size": HIDDEN, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
}  # fmt: skip
NESTED = ("block_size", "mask_token_id", "target_layer_ids", "causal", "input_embedding_scale", "output_multiplier")
NESTED += ("final_logit_softcapping",)
MARKOV = {"markov_rank": 8, "markov_head_type": "vanilla"}
CONFIDENT = MARKOV | {"enable_confidence_head": True, "confidence_head_with_markov": True}


def zlab(nested: bool = True, **options: Any) -> dict[str, Any]:
    """A ``config.json`` as z-lab writes it; its oldest ones have no ``dflash_config``."""
    found = SIZES | {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_target_layers": LAYERS, "block_size": 17,
        "mask_token_id": 3, "target_layer_ids": [0, 2, 4],
    } | options  # fmt: skip
    inner = {name: found.pop(name) for name in NESTED if name in found} if nested else {}
    return found | ({"dflash_config": inner} if nested else {})


def speculators(kind: str = "dflash", **options: Any) -> dict[str, Any]:
    """A ``config.json`` as ``speculators`` writes it. An option of the layers goes to where their sizes stand."""
    layers = SIZES | WINDOW | {"attention_bias": False, "rope_parameters": None}
    inner = {name: options.pop(name) for name in [*options] if name in layers}
    guesses = {"proposal_type": "greedy", "speculative_tokens": 16}
    return {
        "architectures": ["DFlashDraftModel" if kind == "dflash" else "DSparkDraftModel"],
        "speculators_model_type": kind, "transformer_layer_config": SIZES | {"model_type": "qwen3"} | inner,
        "speculators_config": {"algorithm": kind, "proposal_methods": [guesses], "verifier": {"name_or_path": "a/b"}},
        "aux_hidden_state_layer_ids": [1, 3, 5], "block_size": 17, "mask_token_id": 3, "draft_vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    } | options  # fmt: skip


def deepspec(**options: Any) -> dict[str, Any]:
    """A ``config.json`` as DeepSpec writes it; without Markov head and confidence head, it is that of a DFlash head."""
    return SIZES | {
        "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "num_target_layers": LAYERS, "block_size": 16,
        "mask_token_id": 3, "target_layer_ids": [0, 2, 4], "num_anchors": 512, "markov_rank": 0,
        "enable_confidence_head": False, "tie_word_embeddings": False,
        "layer_types": ["full_attention", "full_attention"],
    } | options  # fmt: skip


def head_of(config: dict[str, Any], seed: int = 0, own: bool = True) -> Any:
    """A head with random weights. ``own``: with an embedding and an output matrix, in the formats that have them."""
    known = dspark_config(config) if is_dspark(config) else dflash_config(config)
    weights = DSparkHead if is_dspark(config) else DFlashHead
    head = randomised(weights(known, "random", own and known.own_weights, own and known.own_weights), seed)
    if head.d2t is not None:
        with isolated_rng(seed):
            chosen = torch.randperm(known.layer.vocab_size)[: len(head.d2t)].sort().values
        head.d2t.copy_(chosen - torch.arange(len(chosen)))
    return head


def pair_of(target: Any, head: DFlashHead) -> specdec.Pair:
    return specdec.Pair(target, specdec.DSpark(head) if isinstance(head, DSparkHead) else specdec.DFlash(head))


@cache
def target_of(family: str = "llama", vocabulary: int = VOCABULARY, layers: int = LAYERS) -> Any:
    if family != "muse_glimmer":
        return tiny(family, seed=3, layers=layers, vocab_size=vocabulary, context=512)
    sizes = {name: SIZES[name] for name in MUSE_SIZES} | {"num_hidden_layers": layers}
    tokens = {"vocab_size": vocabulary, "bos_token_id": None, "eos_token_id": None}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with isolated_rng(3):
        target = MuseGlimmerForConditionalGeneration(
            MuseGlimmerConfig(text_config=sizes | tokens, vision_config=vision, bos_token_id=None, eos_token_id=None)
        ).eval()
        for weight in target.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    target.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0)
    return target


MUSE_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")


def capped(target: Any, logits: torch.Tensor, options: dict[str, Any] | None = None) -> torch.Tensor:
    """What a target does to its logits; ``options`` of a head take the place of the target's own."""
    own, text = options or {}, target.config.get_text_config()
    logits = logits * (own.get("output_multiplier") or getattr(text, "output_multiplier", 1.0))
    cap = own.get("final_logit_softcapping") or getattr(text, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


# --- an independent reading ------------------------------------------------------------------------------------------


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(x: torch.Tensor, first: int) -> torch.Tensor:
    """Rotary positions from ``first`` on: the halves of a vector (n, heads, D) are the parts of complex numbers."""
    half, places = x.shape[-1] // 2, torch.arange(first, first + len(x), dtype=x.dtype)
    angles = places[:, None] * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    number = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    return torch.cat([number.real, number.imag], -1)


def sees(c: dict[str, Any], sizes: dict[str, Any], kind: str, anchor: int, row: int, place: int) -> bool:
    """Whether a row of the block sees a place; the block begins at place ``anchor``."""
    back, sliding = anchor + row - place, kind == "sliding_attention"
    if "speculators_model_type" in c:
        near = place >= anchor - sizes["sliding_window"] if sliding else True
        return near and (back >= 0 or not sliding or c.get("sliding_window_non_causal", False))
    causal = c.get("is_causal", c.get("dflash_config", {}).get("causal", sliding))
    return not ((causal and back < 0) or (sliding and abs(back) >= sizes["sliding_window"]))


def read_layer(
    w: dict[str, torch.Tensor], c: dict[str, Any], kind: str, context: torch.Tensor, block: torch.Tensor
) -> torch.Tensor:
    """A layer over the rows of a block (b, H) and the context (n, H)."""
    sizes = c.get("transformer_layer_config", c)
    n, size, groups = len(context), sizes["head_dim"], sizes["num_attention_heads"] // sizes["num_key_value_heads"]

    def projected(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"self_attn.{name}_proj.weight"].T + w.get(f"self_attn.{name}_proj.bias", 0)

    x = rms(block, w["input_layernorm.weight"])
    both = torch.cat([context, x])
    q = turned(rms(projected("q", x).view(len(x), -1, size), w["self_attn.q_norm.weight"]), n)
    k = turned(rms(projected("k", both).view(len(both), -1, size), w["self_attn.k_norm.weight"]), 0)
    v = projected("v", both).view(len(both), -1, size)
    k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(size)
    for row, place in itertools.product(range(len(x)), range(len(both))):
        if not sees(c, sizes, kind, n, row, place):
            scores[:, row, place] = -math.inf
    attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(len(x), -1)
    block = block + projected("o", attended)
    inner = rms(block, w["post_attention_layernorm.weight"])
    gated = torch.nn.functional.silu(inner @ w["mlp.gate_proj.weight"].T) * (inner @ w["mlp.up_proj.weight"].T)
    return block + gated @ w["mlp.down_proj.weight"].T


def read_head(head: DFlashHead, c: dict[str, Any], features: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """Normed states of the block after all context; ``c`` is the config of the checkpoint."""
    w = {name: value.double() for name, value in head.state_dict().items()}
    context = rms(features.double() @ w["fc.weight"].T, w["hidden_norm.weight"])
    x, sizes = block.double(), c.get("transformer_layer_config", c)
    for number in range(sizes["num_hidden_layers"]):
        own = f"layers.{number}."
        layer = {name.removeprefix(own): value for name, value in w.items() if name.startswith(own)}
        kinds = sizes.get("layer_types") or ["full_attention"] * sizes["num_hidden_layers"]
        x = read_layer(layer, c, kinds[number], context, x)
    return rms(x, w["norm.weight"])


def draft_from_scratch(target: Any, head: DFlashHead, c: dict, text: list[int], gamma: int) -> list[torch.Tensor]:
    """Logits of ``gamma`` guesses after ``text``, all of it read anew."""
    return read_draft(target, head, c, text, gamma)[0]


@torch.no_grad()
def read_draft(
    target: Any, head: DFlashHead, c: dict, text: list[int], gamma: int
) -> tuple[list[torch.Tensor], list[float]]:
    """Logits of ``gamma`` greedy guesses after ``text``, and what a confidence head says of each."""
    options, w = c | c.get("dflash_config", {}), {n: v.double() for n, v in head.state_dict().items()}
    out = target(input_ids=torch.tensor([text]), use_cache=False, output_hidden_states=True)
    states = options.get("aux_hidden_state_layer_ids") or [i + 1 for i in options["target_layer_ids"]]
    features = torch.cat([out.hidden_states[i][0, :-1] for i in states], -1)
    native = "Qwen3DSparkModel" in c["architectures"]
    anchor = options.get("sample_from_anchor", native)
    ids = torch.tensor([text[-1], *[options["mask_token_id"]] * (gamma - anchor)])
    table = w.get("embed_tokens.weight", target.get_input_embeddings().weight)
    block = table[ids] * options.get("input_embedding_scale", 1.0)
    rows = read_head(head, c, features, block)[-gamma:]
    logits = rows @ w.get("lm_head.weight", target.get_output_embeddings().weight.double()).T
    if not native and "speculators_model_type" not in c:
        logits = capped(target, logits, options)
    before, found, sure = text[-1], [], []
    for row, state in zip(logits, rows, strict=True):
        if "markov_head.markov_w1.weight" in w:
            embedded = w["markov_head.markov_w1.weight"][before]
            row = row + w["markov_head.markov_w2.weight"] @ embedded
            state = torch.cat([state, embedded]) if options.get("confidence_head_with_markov") else state
        if "d2t" in w:
            whole = torch.full((len(target.get_output_embeddings().weight),), -math.inf).double()
            row = whole.index_copy(0, torch.arange(len(row)) + head.d2t, row)
        if "confidence_head.proj.weight" in w:
            sure.append((w["confidence_head.proj.weight"][0] @ state + w["confidence_head.proj.bias"]).sigmoid().item())
        before = int(row.argmax())
        found.append(row)
    return found, sure


# --- texts -----------------------------------------------------------------------------------------------------------


def require_text_of_generate(pair: specdec.Pair, tokens: int, gammas: tuple[Any, ...]) -> None:
    """At each of ``gammas``, up to ties of rounding."""
    prompt_ids, compared = prompt_of(9), Comparison()
    reference = generated(pair.target, prompt_ids, tokens)
    for gamma in gammas:
        params = specdec.SamplingParams(max_new_tokens=tokens)
        ids = specdec.collect(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params)).token_ids
        compared.require_same(pair.target, prompt_ids, tuple(ids), reference)
    compared.require_few_ties()


SMALL = {"vocab_size": 3, "mask_token_id": 0, "block_size": 4}  # of heads for a target of 3 tokens and 3 layers
