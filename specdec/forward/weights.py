"""Where each family of plain decoder stacks keeps its weights, and these weights by layer.

The query, key and value matrices of a layer are joined into one matrix, and so are the two of a gated MLP. ``FAMILIES``
says where each family keeps its parts. ``lean_check`` compares the logits with those of the model's own ``forward``, so
a family that is described wrongly is detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from specdec.forward.kv_buffer import READ_AHEAD
from specdec.forward.torch_private import parameters_of


class NotLean(Exception):
    """A part of the model is not what its family has at this place."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight (out, in) and bias (out,).

    ``ahead`` is the weight as a flat view, None if it is large or not on a CPU. torch's product of a few rows with a
    small matrix waits for memory, because its kernel reads many rows of the matrix at a time. A sum over the matrix
    reads the same bytes in order, three times as fast, and leaves them in the processor's cache for the product. For
    one row, all products of the embedded target took 1.6 ms on one core with such sums, and 3.1 ms without.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None
    ahead: torch.Tensor | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.ahead is not None:
            self.ahead.sum()
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Family:
    """Where a family keeps the parts of its decoder and of a layer, as paths of attributes."""

    decoder: str
    embedding: str
    layers: str
    norm: str
    attention: str
    attention_norm: str
    qkv: tuple[str, ...]  # one matrix, or three
    out: str
    mlp_norm: str
    up: tuple[str, ...]  # one matrix, or two of a gated MLP: the gate first
    down: str
    activation: str
    gated: bool = True
    learned_positions: str | None = None  # a table that is added to the embedding, in place of rotary angles
    head_major: bool = False  # the rows of the one QKV matrix are ordered by head, then q, k, v
    grouped: bool = False  # several query heads may share a key and value head
    windows: bool = False  # layers may have a sliding window


_LLAMA = Family(
    decoder="model", embedding="embed_tokens", layers="layers", norm="norm",
    attention="self_attn", attention_norm="input_layernorm", qkv=("q_proj", "k_proj", "v_proj"), out="o_proj",
    mlp_norm="post_attention_layernorm", up=("mlp.gate_proj", "mlp.up_proj"), down="mlp.down_proj",
    activation="mlp.act_fn", grouped=True,
)  # fmt: skip
_WINDOWED = replace(_LLAMA, windows=True)
FAMILIES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _WINDOWED,
    "Qwen2ForCausalLM": _WINDOWED,
    "Qwen3ForCausalLM": _WINDOWED,
    "SmolLM3ForCausalLM": _WINDOWED,
    "Phi3ForCausalLM": replace(
        _WINDOWED, qkv=("qkv_proj",), up=("mlp.gate_up_proj",), activation="mlp.activation_fn"
    ),
    "GPT2LMHeadModel": Family(
        decoder="transformer", embedding="wte", layers="h", norm="ln_f",
        attention="attn", attention_norm="ln_1", qkv=("c_attn",), out="c_proj",
        mlp_norm="ln_2", up=("mlp.c_fc",), down="mlp.c_proj", activation="mlp.act",
        gated=False, learned_positions="wpe",
    ),
    "GPTNeoXForCausalLM": Family(
        decoder="gpt_neox", embedding="embed_in", layers="layers", norm="final_layer_norm",
        attention="attention", attention_norm="input_layernorm", qkv=("query_key_value",), out="dense",
        mlp_norm="post_attention_layernorm", up=("mlp.dense_h_to_4h",), down="mlp.dense_4h_to_h",
        activation="mlp.act", gated=False, head_major=True,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layer:
    """The parts of one layer."""

    attention_norm: Callable[[torch.Tensor], torch.Tensor]
    qkv: Matrix
    head_norms: tuple[Callable[[torch.Tensor], torch.Tensor], ...]  # of queries and keys, before the angles
    rotary_dim: int  # how many leading dimensions of a head are rotated by the position
    window: int | None  # how many tokens a token sees, itself included
    scale: float
    out: Matrix
    mlp_norm: Callable[[torch.Tensor], torch.Tensor]
    up: Matrix
    activation: Callable[[torch.Tensor], torch.Tensor]
    down: Matrix


class Weights:
    """A decoder's weights by layer. ``model`` is one of ``FAMILIES``, in eval mode.

    Parameters of the model that are joined become views of one tensor. Training, ``state_dict`` and ``save_pretrained``
    work as before. Pickling a single parameter includes the whole tensor.
    """

    def __init__(self, model: PreTrainedModel):
        config, family = model.config, FAMILIES[type(model).__name__]
        decoder = getattr(model, family.decoder)
        first = getattr(decoder, family.layers)[0]
        attention = getattr(first, family.attention)
        self.size: int = getattr(attention, "head_dim", None) or attention.head_size
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = (getattr(config, "num_key_value_heads", None) if family.grouped else None) or self.heads
        self.embedding = _table(getattr(decoder, family.embedding))
        self.head = _matrix(model.get_output_embeddings())
        self.positions = _table(getattr(decoder, family.learned_positions)) if family.learned_positions else None
        self.rotary = None if family.learned_positions else decoder.rotary_emb
        self.norm = _norm(getattr(decoder, family.norm))
        self.gated, self.head_major = family.gated, family.head_major
        self.parallel = bool(getattr(config, "use_parallel_residual", False))
        count = config.num_hidden_layers
        modules = getattr(decoder, family.layers)[:count]
        rotary_dim = 0 if self.rotary is None else 2 * len(self.rotary.inv_freq)
        self.layers = [_layer(module, family, rotary_dim) for module in modules]

    @property
    def matrices(self) -> list[Matrix]:
        """Those of all layers, and the output head."""
        return [*(part for each in self.layers for part in (each.qkv, each.out, each.up, each.down)), self.head]


def _layer(module: nn.Module, family: Family, rotary_dim: int) -> Layer:
    attention = getattr(module, family.attention)
    norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else ()
    return Layer(
        attention_norm=_norm(getattr(module, family.attention_norm)),
        qkv=_joined([getattr(attention, name) for name in family.qkv]),
        head_norms=tuple(map(_norm, norms)),
        rotary_dim=rotary_dim if getattr(attention, "use_rope", True) else 0,
        window=_window(attention) if family.windows else None,
        scale=attention.scaling,
        out=_matrix(getattr(attention, family.out)),
        mlp_norm=_norm(getattr(module, family.mlp_norm)),
        up=_joined([attrgetter(name)(module) for name in family.up]),
        activation=attrgetter(family.activation)(module).forward,  # calling a module looks for hooks first
        down=_matrix(attrgetter(family.down)(module)),
    )


def _window(attention: Any) -> int | None:
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window
    return getattr(attention.config, "sliding_window", None)


def _parameter(module: Any, name: str) -> Any:
    """The parameter itself. An attribute of that name may be a tensor that somebody replaces unnoticed."""
    if name not in (known := parameters_of(module)):
        raise NotLean(f"the {name} of a {type(module).__name__} is not a parameter")
    return known[name]


def _table(module: Any) -> torch.Tensor:
    if type(module) is not nn.Embedding or module.max_norm is not None:
        raise NotLean(f"a {type(module).__name__} stands where an embedding without a largest norm is expected")
    return _parameter(module, "weight").detach()


def _norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module's own arithmetic. ``F.rms_norm`` is one kernel in place of eight on a GPU, and slower on a CPU."""
    if isinstance(module, nn.LayerNorm):
        weight, bias = _parameter(module, "weight").detach(), _parameter(module, "bias")
        bias = None if bias is None else bias.detach()
        return partial(F.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=module.eps)
    weight, eps = _parameter(module, "weight").detach(), module.variance_epsilon
    if weight.is_cuda:
        return partial(F.rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
    return partial(_rms_norm, weight=weight, eps=eps)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x if x.dtype == torch.float32 else x.float()  # a call takes time even if it changes nothing
    normed = wide * (wide * wide).mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (normed if x.dtype == torch.float32 else normed.to(x.dtype)).mul_(weight)


def _matrix(module: Any) -> Matrix:
    _require_plain(module)
    if not isinstance(module, Conv1D):
        return _as_matrix(module.weight.detach(), module.bias)
    return _as_matrix(module.weight.detach().t(), module.bias)


def _require_plain(module: Any) -> None:
    _parameter(module, "weight"), _parameter(module, "bias")
    if type(module) not in (nn.Linear, Conv1D):
        raise NotLean(f"a {type(module).__name__} stands where a linear layer is expected")


def _as_matrix(weight: torch.Tensor, bias: torch.Tensor | None) -> Matrix:
    small = weight.device.type == "cpu" and weight.nbytes <= READ_AHEAD
    ahead = weight.as_strided((weight.numel(),), (1,)) if small else None
    return Matrix(weight, None if bias is None else bias.detach(), ahead)


def _joined(modules: Sequence[Any]) -> Matrix:
    """Join the matrices of ``modules``. Their parameters become views of the result, so nothing is stored twice."""
    if len(modules) == 1:
        return _matrix(modules[0])
    for module in modules:
        _require_plain(module)
    biases = [module.bias for module in modules]
    bias = None if biases[0] is None else _side_by_side(biases)
    return _as_matrix(_side_by_side([module.weight for module in modules]), bias)


def _side_by_side(parts: Sequence[nn.Parameter]) -> torch.Tensor:
    first, rows = parts[0], sum(len(part) for part in parts)
    places = [part.data_ptr() for part in parts]
    ends = [part.data_ptr() + part.nbytes for part in parts]
    if places[1:] == ends[:-1] and len({part.untyped_storage().data_ptr() for part in parts}) == 1:
        return first.detach().as_strided((rows, *first.shape[1:]), first.stride())  # they were joined before
    whole = torch.cat([part.detach() for part in parts])
    for part, view in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = view
    return whole
