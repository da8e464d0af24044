"""The multi-token prediction layer of Qwen3-Next, Qwen3.5 and later checkpoints, which transformers does not load.

A checkpoint has one such layer, in the weights ``mtp.*``. Embedding E and output matrix are the target's. For the token
t + 1 and the target's last state h at token t, after its final norm:

    x  = fc(cat[pre_fc_norm_embedding(E[t + 1]), pre_fc_norm_hidden(h)])
    h' = norm(layers.0(x))
    logits for token t + 2 = output matrix x h'

``layers.0`` is a decoder layer of the target's class with full attention and a cache of its own, with experts where the
target has them. h' takes the place of h for the next guess. Every RMSNorm multiplies by 1 + weight. (Read in vLLM's
``qwen3_next_mtp.py`` and ``qwen3_5_mtp.py``.)

transformers' ``MtpModel`` computes the same and knows these names, but its configs of these types lack the fields that
say so. This module adds them.
"""

from __future__ import annotations

import copy
import math
import re
from typing import Any

from specdec.drafters.base import Planned
from specdec.errors import IncompatiblePair, quoted

TYPES = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")  # of text configs
PREFIX = "mtp."  # of the layer's weights in a checkpoint
OF_THE_LAYER = re.compile(r"mtp\.(fc|pre_fc_norm_embedding|pre_fc_norm_hidden|norm|layers\.0)\.")

# The names of the layer's parts in ``MtpModel``, and in a checkpoint.
_PARTS = {
    "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "post_norm": "norm",
    "mtp_block": "layers.0",
}  # fmt: skip


def is_qwen(config: Any) -> bool:
    """Whether a model's config is of a type whose MTP layer transformers leaves out."""
    return config.get_text_config(decoder=True).model_type in TYPES


def declared(config: Any) -> Any:
    """A copy of the config of such a model with the fields by which transformers' ``MtpModel`` builds its MTP layer.

    It is ``config`` itself where that names no MTP layer, or is of another type. Raises ``IncompatiblePair`` for a
    layer that is not read here.
    """
    count = _layers_named(config.get_text_config(decoder=True)) if is_qwen(config) else 0
    if not count:
        return config
    twin = copy.deepcopy(config)
    text = twin.get_text_config(decoder=True)
    kind = text.model_type
    if count != 1:
        raise IncompatiblePair(
            f"The target's configuration ({kind}) names {quoted(count)} MTP layers, and only one is read; use a draft "
            "model or prompt-lookup."
        )
    if getattr(text, "mtp_use_dedicated_embeddings", False):
        raise IncompatiblePair(
            f"The target's MTP layer ({kind}) has an embedding of its own (mtp_use_dedicated_embeddings), which is not "
            "read; use a draft model or prompt-lookup."
        )
    if text.layer_types[-1] != "full_attention":  # transformers takes the class of the norms from the last layer
        raise IncompatiblePair(
            f"The target's last layer ({kind}) is of the type {quoted(text.layer_types[-1])}, and its MTP layer is "
            "read only where that is full_attention; use a draft model or prompt-lookup."
        )
    text.update({"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"]})
    if hasattr(text, "mlp_only_layers"):  # which of the target's own layers have no experts
        text.update({"mlp_only_layers": [], "decoder_sparse_step": 1})
    return twin


def name_in_checkpoint(key: str) -> str:
    """The name in a checkpoint of the weight that ``MtpModel`` calls ``key``."""
    part, _, rest = key.removeprefix("layers.0.").partition(".")
    return f"{PREFIX}{_PARTS.get(part, part)}.{rest}"


def _layers_named(text: Any) -> Any:
    """What a text config says about the number of MTP layers. Those of Qwen3-Next say nothing, and have one."""
    silent = 1 if text.model_type == "qwen3_next" else 0
    return getattr(text, "mtp_num_hidden_layers", getattr(text, "num_nextn_predict_layers", silent))


def share_of_pass(target: Planned) -> float:
    """The bytes that a guess reads, over those that a pass of ``target`` over one token reads.

    By the sizes in the checkpoint. Both read the output matrix. Of the experts, each reads those that it chooses.
    """
    text = target.config.get_text_config(decoder=True)
    experts = getattr(text, "num_experts", None)
    chosen = text.num_experts_per_tok / experts if experts else 1.0
    layer = body = embedding = output = 0.0
    for name, (kind, shape) in target.headers.items():
        bits = re.search(r"\d+", kind)
        size = math.prod(shape) * (int(bits[0]) if bits else 8) / 8 * (chosen if ".experts." in name else 1.0)
        if name.startswith(PREFIX):
            layer += size
        elif re.search(r"(^|\.)layers\.\d+\.", name) and ".visual." not in name:
            body += size
        elif name.endswith("embed_tokens.weight"):
            embedding = size
        elif name.endswith("lm_head.weight"):
            output = size
    output = output or embedding  # one matrix for both
    return (layer + output) / (body + output)
