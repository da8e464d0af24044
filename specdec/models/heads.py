"""Reads the weights of a drafting head, and of a target's own MTP layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specdec.drafters.eagle3_head import Eagle3Head, HeadConfig
from specdec.errors import LoadFailed
from specdec.forward.hf_private import MtpModel, read_mtp_layers
from specdec.models.unread import refuse_unread

_EMBEDDING = "embed_tokens.weight"
_BUFFERS = re.compile(r"^t2d$|(^|\.)(rotary_emb\..*|inv_freq)$")  # the inverse of d2t, and what is computed


def read_head(
    name: str, folder: Path, shards: Sequence[str], config: HeadConfig, device: torch.device, dtype: torch.dtype
) -> Eagle3Head:
    """Read the head in ``shards`` of ``folder``. Raises ``LoadFailed`` for weights that do not fit ``config``."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in shards:
        with safe_open(folder / shard, "pt") as file:
            tensors |= {_our_name(key): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    with torch.device("meta"):
        head = Eagle3Head(config, name, embeds=_EMBEDDING in tensors)
    wanted = head.state_dict()
    vocabulary = config.layer.vocab_size
    if config.draft_vocabulary in (None, vocabulary):  # all tokens of the target, in its order
        tensors.setdefault("d2t", torch.zeros(vocabulary, dtype=torch.long))
    unread = [key for key in tensors.keys() - wanted.keys() if not _BUFFERS.search(key)]
    refuse_unread(name, wanted.keys() - tensors.keys(), unread)
    for key, there in wanted.items():
        if tensors[key].shape != there.shape:
            raise LoadFailed(
                f"The weight {key} of {name!r} has the shape {tuple(tensors[key].shape)}, and its configuration asks "
                f"for {tuple(there.shape)}. Fetch the checkpoint again, or choose another."
            )
    offsets = tensors["d2t"].long()
    ids = torch.arange(len(offsets)) + offsets
    if len(ids) and not (0 <= int(ids.min()) and int(ids.max()) < vocabulary and len(ids.unique()) == len(ids)):
        raise LoadFailed(f"{name!r} maps its tokens to ids that the target does not have. Fetch the checkpoint again.")
    kept = {key: tensors[key].to(dtype) for key in wanted if key != "d2t"} | {"d2t": offsets}
    head.load_state_dict(kept, assign=True)
    head.rotary = LlamaRotaryEmbedding(config.layer)
    return head.to(device).requires_grad_(False).eval()


def read_mtp(target: PreTrainedModel, name: str, folder: Path) -> MtpModel:
    """Read the MTP layers of ``target`` from its checkpoint in ``folder``. Raises ``LoadFailed`` if it has none."""
    config = target.config
    named = config.name_or_path
    config.name_or_path = str(folder)  # transformers looks for them there
    try:
        device = next(target.get_decoder().layers[-1].parameters()).device
        found = read_mtp_layers(target, device)
    except (RuntimeError, ValueError) as error:
        raise LoadFailed(
            f"{name!r} names MTP layers in its configuration, and they cannot be read from its weights: {error} "
            "Choose another way to draft."
        ) from error
    finally:
        config.name_or_path = named
    refuse_unread(name, (), found.unread)
    return found.requires_grad_(False).eval()


def _our_name(key: str) -> str:
    """Our name of a weight. SafeAILab and AngelSlim say "midlayer", others "layers.0"; some begin with "model"."""
    key = key.removeprefix("model.")
    return f"layers.0.{key.removeprefix('midlayer.')}" if key.startswith("midlayer.") else key
