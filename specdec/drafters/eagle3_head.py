"""The head of EAGLE-3 (Li et al. 2503.01840): a decoder layer, or a few, that reads hidden states of the target.

It reads the weights and options of published checkpoints in two formats: that of SafeAILab and AngelSlim, and that of
vLLM's ``speculators``. A draft of g guesses takes g passes.

A P-EAGLE head (Hui et al. 2602.01469) drafts in parallel: a draft of g guesses takes one pass. Two learned vectors
stand in for what is not known yet: the embedding of one token of the vocabulary for each further token, and
``mask_hidden`` for the target's states. Published heads have several layers, of which the first alone reads embeddings.

Names of options and weights, and what a pass reads, follow ``speculators`` (``models/peagle/core.py`` and
``attention.py``), vLLM (``model_executor/models/llama_eagle3.py``, ``v1/spec_decode/llm_base_proposer.py``,
``transformers_utils/configs/speculators/algos.py``), NVIDIA's NeMo AutoModel
(``components/speculative/eagle/peagle_draft.py``) and SpecForge (``modeling/draft/peagle.py``). The names in amazon's
checkpoints are those that nkipy's port of them reads (``gpt_oss/eagle``), which was compared with vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from specdec.drafters.trained_head import in_target_ids, require_layers
from specdec.errors import IncompatiblePair, quoted
from specdec.forward.hf_cache import PreallocatedLayer

FEATURES = 3  # hidden states of the target that are joined for each token
_NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# What P-EAGLE heads call the token in place of unknown ones, in the order in which vLLM looks for it, and how many
# guesses they were trained to make: NeMo AutoModel, and speculators in two older versions.
_MASK_TOKEN = ("mask_token_id", "pard_token", "ptd_token_id")
_DEPTHS = ("num_depths", "para_depths", "para_num")
MASK_HIDDEN = "mask_hidden"  # the weight in place of unknown states, in all checkpoints


@dataclass(frozen=True)
class HeadConfig:
    """The settings in a head's ``config.json``.

    layer               sizes, rotary angles and number of its decoder layers; H is ``layer.hidden_size``
    draft_vocabulary    rows of its output; None where it is the target's vocabulary
    target_size         width of the target's hidden states
    layer_ids           the target's layers whose input is read, N for the output of the last of N; None for
                        (2, N/2, N-3)
    windows             of each layer: how many tokens a token sees, itself included; None for all before it
    qk_norm             queries and keys are normed, as in Qwen3
    norm_before_residual   the residual is the normed state
    norm_before_fc, fc_norm   the joined features are normed, together or each by itself
    norm_output         the next guess is made from the normed state
    mask_token          the token in place of unknown ones in a head that drafts in parallel; None in other heads
    most_guesses        how many guesses such a head was trained to make in a pass; None where nothing says it
    """

    layer: LlamaConfig
    draft_vocabulary: int | None
    target_size: int
    layer_ids: tuple[int, ...] | None
    windows: tuple[int | None, ...]
    qk_norm: bool
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    mask_token: int | None
    most_guesses: int | None

    @property
    def parallel(self) -> bool:
        """Whether all guesses of a draft come from one pass, as in P-EAGLE."""
        return self.mask_token is not None

    def layers_of(self, depth: int) -> tuple[int, ...]:
        """The states to read in a target of ``depth`` layers. Raises ``IncompatiblePair`` for one that it lacks."""
        ids = self.layer_ids or (2, depth // 2, depth - 3)
        if wrong := [number for number in ids if not 0 <= number <= depth]:
            raise IncompatiblePair(
                f"The EAGLE-3 head reads layer {wrong[0]}, and the target has layers 0 to {depth - 1} and its last "
                f"output, {depth}. Choose a head that was made for this target."
            )
        return ids


def is_head(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a head: EAGLE-3, P-EAGLE, or a kind that ``head_config`` refuses by name.

    It takes every kind of ``speculators``, so it is asked after the others.
    """
    if config.get("speculators_model_type") or "draft_vocab_size" in config:
        return True
    return any("eagle3" in name or "peagle" in name for name in _architectures(config))


def head_config(config: Mapping[str, Any]) -> HeadConfig:
    """The head that a ``config.json`` describes. Raises ``IncompatiblePair`` for one that cannot be built.

    An option may stand at the top level, or in ``eagle_config`` where NVIDIA writes it.
    """
    _refuse_relatives(config)
    nested = config.get("transformer_layer_config")
    layer = dict(nested if isinstance(nested, Mapping) else config)
    kind = layer.get("model_type", "llama")
    if kind not in ("llama", "qwen3", "eagle3"):
        raise IncompatiblePair(
            f"The EAGLE-3 head has a layer of type {str(kind)[:40]!r}; only llama and qwen3 are read."
        )
    depth = layer.setdefault("num_hidden_layers", 1)
    require_layers("EAGLE-3 head", depth)
    kinds = layer.get("layer_types") or ["full_attention"] * depth
    if len(kinds) != depth:
        raise IncompatiblePair(
            f"The EAGLE-3 head names {len(kinds)} layer_types and has {depth} layer{'s' * (depth > 1)}. Correct its "
            "config.json, or choose another head."
        )
    for name in ("architectures", "model_type", "transformers_version", "dtype", "torch_dtype"):
        layer.pop(name, None)
    for name in ("attention_bias", "mlp_bias"):
        layer[name] = _flag({**config, **layer}, name)
    sizes = LlamaConfig(**layer)
    parallel = _is_parallel(config)
    return HeadConfig(
        layer=sizes,
        draft_vocabulary=_option(config, "draft_vocab_size"),
        target_size=_option(config, "target_hidden_size") or sizes.hidden_size,
        layer_ids=_layer_ids(config),
        windows=tuple(_window(layer) if each == "sliding_attention" else None for each in kinds),
        qk_norm=kind == "qwen3",
        **{name: _flag(config, name) for name in _NORMS},
        mask_token=_mask_token(config, sizes.vocab_size) if parallel else None,
        most_guesses=_most_guesses(config) if parallel else None,
    )


def _architectures(config: Mapping[str, Any]) -> list[str]:
    names = config.get("architectures")
    return [str(name).lower() for name in names] if isinstance(names, list) else []


def _places(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Where options stand: at the top level, and in ``eagle_config``."""
    inner = config.get("eagle_config")
    return [config, inner] if isinstance(inner, Mapping) else [config]


def _option(config: Mapping[str, Any], name: str) -> Any:
    """An option from either place; None if it is at neither. Raises ``IncompatiblePair`` where the two differ."""
    found = [value for place in _places(config) if (value := place.get(name)) not in (None, [])]
    if any(value != found[0] for value in found):
        raise IncompatiblePair(
            f"The config.json of the EAGLE-3 head sets {name} to {found[0]}, and eagle_config in it to {found[1]}. "
            "Correct the one that is wrong, or choose another head."
        )
    return found[0] if found else None


def _flag(config: Mapping[str, Any], name: str) -> bool:
    """An option that is true or false; false where nothing says it."""
    found = _option(config, name)
    if found not in (None, True, False):
        raise IncompatiblePair(
            f"The EAGLE-3 head sets {name} to {quoted(found)}; it must be true or false. Correct its config.json, or "
            "choose another head."
        )
    return bool(found)


def _window(layer: Mapping[str, Any]) -> int:
    """How many tokens a token sees in a layer with a sliding window."""
    found = layer.get("sliding_window")
    if type(found) is not int or found < 1:
        raise IncompatiblePair(
            f"The EAGLE-3 head has layers with a sliding window, and sets sliding_window to {quoted(found)}; it must "
            "be a whole number, 1 or more. Correct its config.json, or choose another head."
        )
    return found


def _layer_ids(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    others = {name for place in _places(config) for name in place if str(name).endswith("layer_ids")} - {_LAYER_IDS}
    if others:
        raise IncompatiblePair(
            f"The EAGLE-3 head names the layers that it reads as {sorted(others)[0][:80]}, whose meaning is not known "
            f"here; only {_LAYER_IDS} is read. Choose another head."
        )
    ids = _option(config, _LAYER_IDS)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise IncompatiblePair(
            f"The EAGLE-3 head sets {_LAYER_IDS} to {quoted(ids)}; it must be a list of numbers. Choose another head."
        )
    if len(ids) != FEATURES:
        raise IncompatiblePair(
            f"The EAGLE-3 head reads {len(ids)} hidden states; only heads that read {FEATURES} are known."
        )
    return tuple(ids)


def _refuse_relatives(config: Mapping[str, Any]) -> None:
    """Refuse, by its name, a head that drafts in another way than EAGLE-3 and P-EAGLE."""
    kind = str(config.get("speculators_model_type") or "eagle3")
    if kind not in ("eagle3", "peagle"):
        raise IncompatiblePair(
            f"The head is of the kind {kind[:40]}, and only EAGLE-3 heads are read. Choose an EAGLE-3 head."
        )
    if (_option(config, "parallel_draft_step") or 1) != 1:
        raise IncompatiblePair(
            "The head makes further guesses by heads of their own, as in Medusa (parallel_draft_step is "
            f"{quoted(_option(config, 'parallel_draft_step'))}), and only EAGLE-3 and P-EAGLE heads are read. Choose "
            "another head."
        )
    if _option(config, "use_aux_hidden_state") is False:
        raise IncompatiblePair(
            "The EAGLE-3 head reads the target's last state alone (use_aux_hidden_state is false), and only heads that "
            f"read {FEATURES} hidden states are known. Choose another head."
        )


def _is_parallel(config: Mapping[str, Any]) -> bool:
    """Whether a head drafts in parallel. vLLM is told so by its user; here the config must say it."""
    named = config.get("speculators_model_type") == "peagle" or any("peagle" in n for n in _architectures(config))
    options = any(_option(config, name) is not None for name in (*_MASK_TOKEN, *_DEPTHS))
    return named or options or bool(_option(config, "parallel_drafting"))


def _agreed(config: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """Find an option that may have one of several ``names``. Returns the name and the value, or the first and None.

    Raises ``IncompatiblePair`` where two of them differ.
    """
    found = [(name, value) for name in names if (value := _option(config, name)) is not None]
    for name, value in found:
        if value != found[0][1]:
            raise IncompatiblePair(
                f"The config.json of the P-EAGLE head sets {found[0][0]} to {quoted(found[0][1])}, and {name} to "
                f"{quoted(value)}, which mean the same. Correct the one that is wrong, or choose another head."
            )
    return found[0] if found else (names[0], None)


def _mask_token(config: Mapping[str, Any], vocabulary: int) -> int:
    name, token = _agreed(config, _MASK_TOKEN)
    if token is None:
        raise IncompatiblePair(
            f"The P-EAGLE head does not say which token stands in place of unknown ones. Add {_MASK_TOKEN[0]} to its "
            "config.json, with the value that it was trained with, or choose another head."
        )
    if type(token) is not int or not 0 <= token < vocabulary:
        raise IncompatiblePair(
            f"The P-EAGLE head sets {name} to {quoted(token)}; it must be one of its {vocabulary:,} tokens. Choose "
            "another head."
        )
    return token


def _most_guesses(config: Mapping[str, Any]) -> int | None:
    """How many guesses a head was trained to make in a pass. ``speculators`` writes it as what it proposes to draft."""
    name, most = _agreed(config, _DEPTHS)
    if most is None:
        name, most = "speculative_tokens", _proposed(config)
    if most is not None and (type(most) is not int or most < 1):
        raise IncompatiblePair(
            f"The P-EAGLE head sets {name} to {quoted(most)}; it must be a number of guesses. Choose another head."
        )
    return most


def _proposed(config: Mapping[str, Any]) -> Any:
    """The number of tokens that ``speculators_config`` proposes to draft; None if it says nothing."""
    written = config.get("speculators_config")
    methods = written.get("proposal_methods") if isinstance(written, Mapping) else None
    known = [each for each in methods if isinstance(each, Mapping)] if isinstance(methods, list) else []
    return next((value for each in known if (value := each.get("speculative_tokens")) is not None), None)


class Eagle3Head(nn.Module):
    """The head. H: its width. V: the target's vocabulary. D: the head's vocabulary, which may be a part of V."""

    def __init__(self, config: HeadConfig, name: str = "an EAGLE-3 head", embeds: bool = True):
        """``embeds`` says whether it has its own embedding; else it uses the target's."""
        super().__init__()
        self.config, self.name, layer = config, name, config.layer
        size, wide = layer.hidden_size, FEATURES * config.target_size
        eps = layer.rms_norm_eps
        vocabulary = config.draft_vocabulary or layer.vocab_size
        self.input_norm = LlamaRMSNorm(wide, eps) if config.norm_before_fc else None
        norms = [LlamaRMSNorm(config.target_size, eps) for _ in range(FEATURES)] if config.fc_norm else []
        self.fc_norm = nn.ModuleList(norms)
        self.fc = nn.Linear(wide, size, bias=False)
        self.embed_tokens = nn.Embedding(layer.vocab_size, size) if embeds else None
        further = (FurtherLayer(config, index) for index in range(1, layer.num_hidden_layers))
        self.layers = nn.ModuleList([Eagle3Layer(config), *further])
        self.norm = LlamaRMSNorm(size, eps)
        self.lm_head = nn.Linear(size, vocabulary, bias=False)
        self.rotary = LlamaRotaryEmbedding(layer)
        self.mask_hidden = nn.Parameter(torch.zeros(wide)) if config.parallel else None
        self.d2t: torch.Tensor  # (D,): the id in the target's vocabulary minus the id in the head's
        self.register_buffer("d2t", torch.zeros(vocabulary, dtype=torch.long))

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """Map joined hidden states of the target (n, 3 x target size) to the layer's input (n, H)."""
        features = features.to(self.fc.weight.dtype)
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm:
            parts = zip(self.fc_norm, features.chunk(FEATURES, -1), strict=True)
            features = torch.cat([norm(part) for norm, part in parts], -1)
        return self.fc(features)

    def unknown_state(self) -> torch.Tensor:
        """The state (1, H) in place of unknown ones in a head that drafts in parallel, mapped as true ones are."""
        assert self.mask_hidden is not None  # it drafts in parallel
        return self.fused(self.mask_hidden[None])

    def forward(
        self, states: torch.Tensor, embedded: torch.Tensor, *caches: PreallocatedLayer, keep: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed states (n, H), each with the embedding (n, H) of the token after it, after the rows in ``caches``.

        There is a cache for each layer. Returns the last ``keep`` logits (keep, D), and the states (keep, H) that the
        next guesses are made from.
        """
        start = caches[0].get_seq_length()
        places = torch.arange(start, start + len(states), device=states.device)[None]
        angles = self.rotary(states[None], places)
        out = self.layers[0](embedded, states, angles, caches[0])
        for layer, cache in zip(self.layers[1:], caches[1:], strict=True):
            out = layer(out, angles, cache)
        out = out if keep is None else out[-keep:]
        normed = self.norm(out)
        return self.lm_head(normed), normed if self.config.norm_output else out

    def in_target_ids(self, logits: torch.Tensor, vocabulary: int) -> torch.Tensor:
        """Turn logits (n, D) into logits (n, V): -inf for tokens that the head does not know."""
        if self.config.draft_vocabulary is None and logits.shape[-1] == vocabulary:
            return logits
        return in_target_ids(logits, self.d2t, vocabulary)


class Eagle3Layer(nn.Module):
    """A Llama layer whose attention reads the token's embedding beside the state."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        layer, size = config.layer, config.layer.hidden_size
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = LlamaRMSNorm(size, layer.rms_norm_eps)
        self.hidden_norm = LlamaRMSNorm(size, layer.rms_norm_eps)
        self.self_attn = Eagle3Attention(config, 0)
        self.post_attention_layernorm = LlamaRMSNorm(size, layer.rms_norm_eps)
        self.mlp = LlamaMLP(layer)

    def forward(
        self,
        embeddings: torch.Tensor,
        states: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        cache: PreallocatedLayer,
    ) -> torch.Tensor:
        normed = self.hidden_norm(states)
        residual = normed if self.norm_before_residual else states
        read = torch.cat([self.input_layernorm(embeddings), normed], -1)
        states = residual + self.self_attn(read, angles, cache)
        return states + self.mlp(self.post_attention_layernorm(states))


class FurtherLayer(nn.Module):
    """A Llama layer after the first one. It reads that one's output alone."""

    def __init__(self, config: HeadConfig, index: int):
        super().__init__()
        layer, size = config.layer, config.layer.hidden_size
        self.input_layernorm = LlamaRMSNorm(size, layer.rms_norm_eps)
        self.self_attn = Eagle3Attention(config, index)
        self.post_attention_layernorm = LlamaRMSNorm(size, layer.rms_norm_eps)
        self.mlp = LlamaMLP(layer)

    def forward(
        self, states: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], cache: PreallocatedLayer
    ) -> torch.Tensor:
        states = states + self.self_attn(self.input_layernorm(states), angles, cache)
        return states + self.mlp(self.post_attention_layernorm(states))


class Eagle3Attention(nn.Module):
    """Causal attention over rows (n, 2H) in the first layer, and (n, H) in layer ``index`` after it."""

    def __init__(self, config: HeadConfig, index: int):
        super().__init__()
        layer = config.layer
        self.size = getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads
        wide, bias = layer.hidden_size if index else 2 * layer.hidden_size, layer.attention_bias
        self.q_proj = nn.Linear(wide, layer.num_attention_heads * self.size, bias=bias)
        self.k_proj = nn.Linear(wide, layer.num_key_value_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(wide, layer.num_key_value_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(layer.num_attention_heads * self.size, layer.hidden_size, bias=bias)
        self.q_norm = LlamaRMSNorm(self.size, layer.rms_norm_eps) if config.qk_norm else None
        self.k_norm = LlamaRMSNorm(self.size, layer.rms_norm_eps) if config.qk_norm else None
        self.window = config.windows[index]

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], cache: PreallocatedLayer
    ) -> torch.Tensor:
        count, start = len(x), cache.get_seq_length()
        q, k, v = (project(x).view(1, count, -1, self.size) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), *angles)
        keys, values = cache.update(k, v.transpose(1, 2))
        # A row sees what is cached and the rows up to itself, or the last of them.
        mask = None
        if count > 1 or self.window:
            mask = torch.ones(count, start + count, dtype=torch.bool, device=x.device).tril(start)
            mask = mask.triu(start - self.window + 1) if self.window else mask
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=q.shape[1] > k.shape[1])
        return self.o_proj(attended.transpose(1, 2).reshape(count, -1))
