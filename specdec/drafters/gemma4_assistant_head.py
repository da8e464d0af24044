"""The assistant of a Gemma 4 target: layers that have queries alone and attend to the target's keys and values.

A guess takes one pass over one row. It reads the target's embedding of the last token and a hidden state: for the first
guess the target's own, after its final norm, and then the one that the assistant made for the guess before. Each layer
attends to what the target keeps in the last layer of the same kind that has keys and values of its own.

Source: ``models/gemma4_assistant`` and ``generation/candidate_generator.py`` of transformers 5.23, which cannot build
an assistant. There it would also see keys of rejected guesses, and two tokens more than the window has. Here it sees
the keys of committed tokens that the target's own layer would see, as in ``gemma4_assistant`` of mlx-vlm. A soft cap of
the logits that a config names is applied neither there nor here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Gemma4AssistantConfig, Gemma4TextConfig, Gemma4UnifiedAssistantConfig, Gemma4UnifiedTextConfig
from transformers.activations import ACT2FN
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm, Gemma4TextRotaryEmbedding, apply_rotary_pos_emb

from specdec.drafters.trained_head import require_layers
from specdec.errors import IncompatiblePair, quoted

SLIDING = "sliding_attention"
TARGETS = ("gemma4_text", "gemma4_unified_text")  # types of text models
# Options of a Gemma 4 layer that no assistant has.
_OTHER_LAYERS = ("hidden_size_per_layer_input", "enable_moe_block", "use_double_wide_mlp")
_COUNTS = ("backbone_hidden_size", "num_centroids", "centroid_intermediate_top_k")


class _WithoutKeys:
    """A config whose layers all read keys and values from elsewhere. transformers 5.23 refuses that."""

    num_hidden_layers: int

    @property
    def kv_sharing_modes(self) -> list[str]:
        return ["reuse"] * self.num_hidden_layers


class _Layers(_WithoutKeys, Gemma4TextConfig): ...


class _UnifiedLayers(_WithoutKeys, Gemma4UnifiedTextConfig): ...


# By the ``model_type`` of an assistant: transformers' config, which has the defaults, and the config of its layers.
_TYPES: dict[str, tuple[Any, Any]] = {
    "gemma4_assistant": (Gemma4AssistantConfig, _Layers),
    "gemma4_unified_assistant": (Gemma4UnifiedAssistantConfig, _UnifiedLayers),
}


@dataclass(frozen=True)
class AssistantConfig:
    """The settings in an assistant's ``config.json``.

    layer        sizes, kinds and rotary angles of its layers; H is ``layer.hidden_size``, V ``layer.vocab_size``
    target_size  T, the width of the target's embeddings and hidden states
    tied         the output matrix has the name of an embedding, which an assistant does not need
    groups       into how many groups of equal size the tokens are divided; 0 where all tokens are candidates
    best         the tokens of so many groups are the candidates for a guess
    """

    layer: Any
    target_size: int
    tied: bool
    groups: int
    best: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its layers, each once."""
        return tuple(dict.fromkeys(self.layer.layer_types))

    @property
    def candidates(self) -> int:
        """How many rows of the output matrix are read for a guess."""
        rows: int = self.layer.vocab_size
        return self.best * (rows // self.groups) if self.groups else rows

    def sources(self, target_config: Any) -> dict[str, int]:
        """The number of the target's layer that each kind of layer reads: the last one with keys of its own.

        Raises ``IncompatiblePair`` where the target has none, or one of another shape.
        """
        text = target_config.get_text_config(decoder=True)
        own = text.layer_types[: text.num_hidden_layers - text.num_kv_shared_layers]
        found = {}
        for kind in self.kinds:
            if kind not in own:
                raise IncompatiblePair(
                    f"The Gemma 4 assistant reads keys of a layer of the kind {kind}, and the target has none of its "
                    "own. Choose an assistant that was made for this target."
                )
            found[kind] = len(own) - 1 - own[::-1].index(kind)
            for what in ("num_key_value_heads", "head_dim"):
                theirs = getattr(self.layer.per_layer_config[kind], what)
                ours = getattr(text.per_layer_config[found[kind]], what)
                if theirs != ours:
                    raise IncompatiblePair(
                        f"The Gemma 4 assistant reads keys with {what} {theirs} in layers of the kind {kind}, and the "
                        f"target's have {ours}. Choose an assistant that was made for this target."
                    )
        return found


def is_assistant(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of an assistant."""
    return str(config.get("model_type")) in _TYPES


def assistant_config(config: Mapping[str, Any]) -> AssistantConfig:
    """The assistant that a ``config.json`` describes. Raises ``IncompatiblePair`` for one that cannot be built."""
    defaults, layers = _TYPES[config["model_type"]]
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise IncompatiblePair(
            f"The Gemma 4 assistant sets text_config to {quoted(text)}; it must have the sizes of its layers. Choose "
            "another assistant."
        )
    layer = layers(**text)
    require_layers("Gemma 4 assistant", layer.num_hidden_layers)
    for name in _OTHER_LAYERS:
        if getattr(layer, name, None):
            raise IncompatiblePair(
                f"The Gemma 4 assistant sets {name} to {getattr(layer, name)}, and only assistants without it are "
                "known. Choose another assistant."
            )
    settings = {name: config.get(name, getattr(defaults, name)) for name in _COUNTS}
    for name, value in settings.items():
        if type(value) is not int or value < 1:
            raise IncompatiblePair(
                f"The Gemma 4 assistant sets {name} to {quoted(value)}; it must be a whole number, 1 or more. Choose "
                "another assistant."
            )
    target_size, groups, best = settings.values()
    if not config.get("use_ordered_embeddings", defaults.use_ordered_embeddings):
        groups = best = 0
    elif layer.vocab_size % groups or best > groups:
        raise IncompatiblePair(
            f"The Gemma 4 assistant reads {best:,} of {groups:,} groups of equal size, and its {layer.vocab_size:,} "
            "tokens do not divide into so many. Choose another assistant."
        )
    tied = bool(config.get("tie_word_embeddings", defaults.tie_word_embeddings))
    return AssistantConfig(layer, target_size, tied, groups, best)


class Seen(NamedTuple):
    """What the layers of one kind see in a draft: the target's keys and values, from one place in the text.

    keys, values  (1, kv heads, m, D) of the target's last m tokens
    cos, sin      (1, 1, D): the angles of the place, by which queries are rotated
    """

    keys: torch.Tensor
    values: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor


class Gemma4AssistantHead(nn.Module):
    """The assistant. H: its width. T: the target's. V: the vocabulary of both."""

    def __init__(self, config: AssistantConfig, name: str = "a Gemma 4 assistant"):
        super().__init__()
        self.config, self.name, layer = config, name, config.layer
        size, rows = layer.hidden_size, layer.vocab_size
        self.pre_projection = nn.Linear(2 * config.target_size, size, bias=False)
        self.layers = nn.ModuleList([AssistantLayer(layer, number) for number in range(layer.num_hidden_layers)])
        self.norm = Gemma4RMSNorm(size, layer.rms_norm_eps)
        self.post_projection = nn.Linear(size, config.target_size, bias=False)
        self.lm_head = nn.Linear(size, rows, bias=False)
        self.masked_embedding = TokenGroups(size, rows, config.groups, config.best) if config.groups else None
        self.rotary = Gemma4TextRotaryEmbedding(layer)

    def seen(self, place: int, held: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> dict[str, Seen]:
        """What each kind of layer sees from ``place``, the number of tokens before the last committed one.

        ``held``: for each kind of layer the target's keys and values, each (kv heads, m, D).
        """
        weight = self.pre_projection.weight
        where = torch.full((1, 1), place, device=weight.device)
        found = {}
        for kind, states in held.items():
            # A window counts the place itself, which has no key.
            low = max(0, states[0].shape[1] - self.config.layer.sliding_window + 1) if kind == SLIDING else 0
            keys, values = (part[None, :, low:].to(weight) for part in states)
            found[kind] = Seen(keys, values, *self.rotary(weight, where, kind))
        return found

    def forward(
        self, embedded: torch.Tensor, state: torch.Tensor, seen: Mapping[str, Seen]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Guess from the target's embedding (1, T) of the last token and the last state (1, T).

        Returns logits (1, V), -inf for tokens that are no candidates, and the state (1, T) for the guess after.
        """
        read = torch.cat([embedded, state], -1).to(self.pre_projection.weight)
        hidden = self.pre_projection(read)
        for kind, layer in zip(self.config.layer.layer_types, self.layers, strict=True):
            hidden = layer(hidden, seen[kind])
        hidden = self.norm(hidden)
        logits = self.lm_head(hidden) if self.masked_embedding is None else self.masked_embedding(hidden, self.lm_head)
        return logits, self.post_projection(hidden)


class TokenGroups(nn.Module):
    """The output of small assistants: the tokens are divided into groups, and only those of the best are candidates.

    H: the assistant's width. V: its vocabulary. Each of C groups has V / C tokens.
    """

    def __init__(self, size: int, rows: int, groups: int, best: int):
        super().__init__()
        self.best = best
        self.centroids = nn.Linear(size, groups, bias=False)
        self.token_ordering: torch.Tensor  # (V,): the tokens, group by group
        self.register_buffer("token_ordering", torch.arange(rows))

    def forward(self, hidden: torch.Tensor, matrix: nn.Linear) -> torch.Tensor:
        """Logits (1, V) of ``hidden`` (1, H) by the rows of ``matrix`` that belong to candidates; -inf for others."""
        scores = self.centroids(hidden)
        best = scores.topk(self.best, -1).indices[0]
        ids = self.token_ordering.view(scores.shape[-1], -1)[best].flatten()
        whole = hidden.new_full((1, len(self.token_ordering)), float("-inf"))
        return whole.index_copy_(1, ids, F.linear(hidden, matrix.weight[ids]))


class AssistantLayer(nn.Module):
    """A Gemma 4 layer without keys and values of its own."""

    def __init__(self, config: Any, number: int):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = Gemma4RMSNorm(size, eps)
        self.self_attn = AssistantAttention(config, config.per_layer_config[number].head_dim)
        self.post_attention_layernorm = Gemma4RMSNorm(size, eps)
        self.pre_feedforward_layernorm = Gemma4RMSNorm(size, eps)
        self.mlp = AssistantMLP(config)
        self.post_feedforward_layernorm = Gemma4RMSNorm(size, eps)
        self.layer_scalar: torch.Tensor
        self.register_buffer("layer_scalar", torch.ones(1))

    def forward(self, hidden: torch.Tensor, seen: Seen) -> torch.Tensor:
        attended = self.self_attn(self.input_layernorm(hidden), seen)
        hidden = hidden + self.post_attention_layernorm(attended)
        mixed = self.mlp(self.pre_feedforward_layernorm(hidden))
        return (hidden + self.post_feedforward_layernorm(mixed)) * self.layer_scalar


class AssistantAttention(nn.Module):
    """Attention of one row (1, H) over the target's keys and values. Its scores are not scaled."""

    def __init__(self, config: Any, size: int):
        super().__init__()
        wide, bias = config.num_attention_heads * size, config.attention_bias
        self.size = size
        self.q_proj = nn.Linear(config.hidden_size, wide, bias=bias)
        self.q_norm = Gemma4RMSNorm(size, config.rms_norm_eps)
        self.o_proj = nn.Linear(wide, config.hidden_size, bias=bias)

    def forward(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        q = self.q_norm(self.q_proj(x).view(1, 1, -1, self.size))
        q = apply_rotary_pos_emb(q, seen.cos, seen.sin, unsqueeze_dim=2).transpose(1, 2)
        grouped = q.shape[1] > seen.keys.shape[1]
        attended = F.scaled_dot_product_attention(q, seen.keys, seen.values, scale=1.0, enable_gqa=grouped)
        return self.o_proj(attended.view(1, -1))


class AssistantMLP(nn.Module):
    """The feed-forward part of a Gemma 4 layer."""

    def __init__(self, config: Any):
        super().__init__()
        size, wide = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(size, wide, bias=False)
        self.up_proj = nn.Linear(size, wide, bias=False)
        self.down_proj = nn.Linear(wide, size, bias=False)
        self.activation = ACT2FN[config.hidden_activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
