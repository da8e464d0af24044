"""The kinds of drafting heads that a checkpoint may hold, and how the weights of each and of MTP layers are read.

A head is small, belongs to one target and is no whole model. What a checkpoint holds is told by its ``config.json``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from specdec.drafters.base import DraftMethod
from specdec.drafters.dflash import DFlash, require_dflash_fit
from specdec.drafters.dflash_config import DFlashConfig, dflash_config, is_dflash, is_dspark
from specdec.drafters.dflash_head import EMBEDDING, OUTPUT, DFlashHead
from specdec.drafters.dspark import DSpark, DSparkConfig, DSparkHead, dspark_config
from specdec.drafters.eagle3 import Eagle3, require_fit
from specdec.drafters.eagle3_head import MASK_HIDDEN, Eagle3Head, HeadConfig, head_config, is_head
from specdec.drafters.gemma4_assistant import Gemma4Assistant, require_assistant_fit
from specdec.drafters.gemma4_assistant_head import (
    AssistantConfig,
    Gemma4AssistantHead,
    assistant_config,
    is_assistant,
)
from specdec.drafters.qwen_mtp import OF_THE_LAYER, PREFIX, declared, is_qwen, name_in_checkpoint
from specdec.errors import LoadFailed
from specdec.forward.hf_private import MtpModel, read_mtp_layers
from specdec.models.unread import Headers, refuse_unread

_FUSION = ("fc.", "hidden_norm.")  # the weights that join the features of a DFlash head
_TARGETS = "verifier_"  # how the copies of the target's own weights begin that speculators trains a head with
_BUFFERS = re.compile(r"^t2d$|(^|\.)(rotary_emb\..*|inv_freq)$")  # the inverse of d2t, and what is computed

_ORDERING = "masked_embedding.token_ordering"
_LISTS = ("d2t", _ORDERING)  # of tokens; all other weights are fractions
# What an assistant does not use: the embedding of its own width, and keys and values in the place of the target's.
_NO_ASSISTANTS = re.compile(r"^embed_tokens\.weight$|\.self_attn\.[kv]_(proj|norm)\.")


@dataclass(frozen=True)
class HeadKind:
    """A kind of head.

    method       the way to draft with it, made from the name of its checkpoint
    is_mine      whether a ``config.json`` is of this kind
    config_of    reads that config. Its ``layer`` is a config of transformers, by which the memory of a call is counted.
                 Raises ``IncompatiblePair`` for a head that cannot be built
    require_fit  takes that config and the target's; raises ``IncompatiblePair`` for a head of another target
    read         reads its weights; takes the name, the folder and the shards of the checkpoint, what ``config_of``
                 gave, the device and the number type. Raises ``LoadFailed`` for weights that do not fit
    """

    method: type[DraftMethod]
    is_mine: Callable[[Mapping[str, Any]], bool]
    config_of: Callable[[Mapping[str, Any]], Any]
    require_fit: Callable[[Any, Any], None]
    read: Callable[[str, Path, Sequence[str], Any, torch.device, torch.dtype], nn.Module]


def kind_of(config: Mapping[str, Any]) -> HeadKind | None:
    """The kind of head that a ``config.json`` describes; None for that of a whole model."""
    return next((kind for kind in HEADS if kind.is_mine(config)), None)


def tensors_of(folder: Path, shards: Sequence[str], our_name: Callable[[str], str]) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint by ``our_name`` of each. Raises ``LoadFailed`` for one with two values."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in shards:
        with safe_open(folder / shard, "pt") as file:
            for key in file.keys():  # noqa: SIM118
                name, tensor = our_name(key), file.get_tensor(key)
                if name in tensors and not torch.equal(tensors[name], tensor):
                    raise LoadFailed(
                        f"{folder.name!r} has the weight {key} twice, the second time in {shard}, with other numbers. "
                        "Fetch the checkpoint again, or choose another."
                    )
                tensors[name] = tensor
    return tensors


def require_shapes(name: str, wanted: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise ``LoadFailed`` where one of ``tensors`` has not the shape that the configuration asks for, or no fractions.

    Lists of tokens are whole numbers.
    """
    for key, there in wanted.items():
        if key not in _LISTS and not tensors[key].is_floating_point():
            kind = str(tensors[key].dtype).removeprefix("torch.")
            raise LoadFailed(
                f"The weight {key} of {name!r} has numbers of the type {kind}, which no such weight has. Fetch the "
                "checkpoint again, or choose another."
            )
        if tensors[key].shape != there.shape:
            raise _misshapen(name, key, tuple(tensors[key].shape), tuple(there.shape))


def _misshapen(name: str, key: str, found: tuple[int, ...], right: tuple[int, ...]) -> LoadFailed:
    return LoadFailed(
        f"The weight {key} of {name!r} has the shape {found}, and its configuration asks for {right}. Fetch the "
        "checkpoint again, or choose another."
    )


def read_eagle3(
    name: str, folder: Path, shards: Sequence[str], config: HeadConfig, device: torch.device, dtype: torch.dtype
) -> Eagle3Head:
    """Read an EAGLE-3 head, as ``HeadKind.read`` does."""
    tensors = tensors_of(folder, shards, _our_name)
    if MASK_HIDDEN in tensors:
        tensors[MASK_HIDDEN] = tensors[MASK_HIDDEN].flatten()  # (1, 1, n) in most checkpoints
    with torch.device("meta"):
        head = Eagle3Head(config, name, embeds=EMBEDDING in tensors)
    wanted = head.state_dict()
    vocabulary = config.layer.vocab_size
    if config.draft_vocabulary in (None, vocabulary):  # all tokens of the target, in its order
        tensors.setdefault("d2t", torch.zeros(vocabulary, dtype=torch.long))
    unread = [key for key in tensors.keys() - wanted.keys() if not _BUFFERS.search(key)]
    refuse_unread(name, wanted.keys() - tensors.keys(), unread)
    require_shapes(name, wanted, tensors)
    kept = {key: tensors[key].to(dtype) for key in wanted if key != "d2t"}
    kept["d2t"] = _offsets(name, tensors["d2t"], vocabulary)
    head.load_state_dict(kept, assign=True)
    head.rotary = LlamaRotaryEmbedding(config.layer)
    return head.to(device).requires_grad_(False).eval()


def _offsets(name: str, given: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The weight d2t (D,) of a head, see ``in_target_ids``. Raises ``LoadFailed`` where it names no tokens."""
    offsets = given.long()
    ids = torch.arange(len(offsets)) + offsets
    if len(ids) and not (0 <= int(ids.min()) and int(ids.max()) < vocabulary and len(ids.unique()) == len(ids)):
        raise LoadFailed(f"{name!r} maps its tokens to ids that the target does not have. Fetch the checkpoint again.")
    return offsets


def require_mtp(name: str, config: Any, headers: Headers) -> None:
    """Refuse a checkpoint without weights of MTP layers, and one of Qwen with those of more than one.

    ``config`` is that of the target. Raises ``LoadFailed``. Which weights the layers of other types lack, ``read_mtp``
    finds out.
    """
    if not is_qwen(config):
        layers = config.get_text_config(decoder=True).num_hidden_layers
        numbers = (int(found[1]) for key in headers if (found := re.search(r"(?:^|\.)layers\.(\d+)\.", key)))
        if headers and not any("mtp" in key for key in headers) and max(numbers, default=0) < layers:
            raise LoadFailed(
                f"{name!r} has no weights of MTP layers, though its configuration names some. Choose a checkpoint that "
                "has them, or draft in another way."
            )
        return
    held = [key for key in headers if key.startswith(PREFIX)]
    if not held:
        raise LoadFailed(
            f"{name!r} has no weights of an MTP layer ({PREFIX}*), which those who fine-tune or quantize a model often "
            "leave out. Choose a checkpoint that has them, or draft in another way."
        )
    refuse_unread(name, (), [key for key in held if not OF_THE_LAYER.match(key)])


def read_dflash(
    name: str, folder: Path, shards: Sequence[str], config: DFlashConfig, device: torch.device, dtype: torch.dtype
) -> DFlashHead:
    """Read a DFlash or a DSpark head, as ``HeadKind.read`` does. Of a float16 head, ``fc`` and its norm are float32."""
    tensors = tensors_of(folder, shards, _dflash_name)
    own, reduced = config.own_weights, config.draft_vocabulary is not None
    with torch.device("meta"):
        embeds, outputs = own and EMBEDDING in tensors, own and (reduced or OUTPUT in tensors)
        head = (
            DSparkHead(config, name, embeds, outputs)
            if isinstance(config, DSparkConfig)
            else DFlashHead(config, name, embeds, outputs)
        )
    wanted = head.state_dict()
    unread = [
        key for key in tensors.keys() - wanted.keys() if not (_BUFFERS.search(key) or own and key.startswith(_TARGETS))
    ]
    refuse_unread(name, wanted.keys() - tensors.keys(), unread)
    require_shapes(name, wanted, tensors)
    wide = torch.float32 if dtype == torch.float16 else dtype
    kept = {key: tensors[key].to(wide if key.startswith(_FUSION) else dtype) for key in wanted}
    if reduced:
        kept["d2t"] = _offsets(name, tensors["d2t"], config.layer.vocab_size)
    head.load_state_dict(kept, assign=True)
    head.rotary = Qwen3RotaryEmbedding(config.layer)
    return head.to(device).requires_grad_(False).eval()


def read_gemma4_assistant(
    name: str, folder: Path, shards: Sequence[str], config: AssistantConfig, device: torch.device, dtype: torch.dtype
) -> Gemma4AssistantHead:
    """Read the assistant of a Gemma 4 target, as ``HeadKind.read`` does."""
    tensors = tensors_of(folder, shards, lambda key: key.removeprefix("model."))
    if config.tied and EMBEDDING in tensors:
        tensors[OUTPUT] = tensors[EMBEDDING]
    with torch.device("meta"):
        head = Gemma4AssistantHead(config, name)
    wanted = head.state_dict()
    unread = [key for key in tensors.keys() - wanted.keys() if not _NO_ASSISTANTS.search(key)]
    refuse_unread(name, wanted.keys() - tensors.keys(), unread)
    require_shapes(name, wanted, tensors)
    kept = {key: tensors[key].to(dtype) for key in wanted if key != _ORDERING}
    if _ORDERING in wanted:
        kept[_ORDERING] = order = tensors[_ORDERING].long()
        if not torch.equal(order.sort().values, torch.arange(len(order))):
            raise LoadFailed(
                f"{name!r} divides its tokens into groups that do not hold each token once. Fetch the checkpoint again."
            )
    head.load_state_dict(kept, assign=True)
    head.rotary = Gemma4TextRotaryEmbedding(config.layer)
    return head.to(device).requires_grad_(False).eval()


def read_mtp(target: PreTrainedModel, name: str, folder: Path) -> MtpModel:
    """Read the MTP layers of ``target`` from its checkpoint in ``folder``. Raises ``LoadFailed`` if it has none."""
    config, named = target.config, target.config.name_or_path
    target.config = declared(config)
    target.config.name_or_path = str(folder)  # transformers looks for them there
    try:
        device = next(target.get_decoder().layers[-1].parameters()).device
        found = read_mtp_layers(target, device)
    except (RuntimeError, ValueError) as error:
        raise LoadFailed(
            f"{name!r} names MTP layers in its configuration, and they cannot be read from its weights: {error} "
            "Choose another way to draft."
        ) from error
    finally:
        target.config, config.name_or_path = config, named
    key_of = name_in_checkpoint if is_qwen(config) else str
    refuse_unread(name, (), map(key_of, found.unread))
    if found.missing:
        lacks = sorted(map(key_of, found.missing))
        raise LoadFailed(
            f"{name!r} names MTP layers in its configuration and lacks {len(lacks)} of their weights; the first is "
            f"{lacks[0]}. Choose a checkpoint that has them, or draft in another way."
        )
    for key, (shape, right) in found.misshapen.items():
        raise _misshapen(name, key_of(key), shape, right)
    return found.requires_grad_(False).eval()


def _our_name(key: str) -> str:
    """Our name of a weight. SafeAILab and AngelSlim say "midlayer", others "layers.0"; some begin with "model"."""
    key = key.removeprefix("model.")
    return f"layers.0.{key.removeprefix('midlayer.')}" if key.startswith("midlayer.") else key


def _dflash_name(key: str) -> str:
    """Our name of a weight of a DFlash head, which is z-lab's. Muse-Glimmer has two of them in its "encoder"."""
    key = key.removeprefix("model.")
    return key.replace("encoder.output_norm_enc.", "hidden_norm.").replace("encoder.fc.", "fc.")


HEADS = (
    HeadKind(DSpark, is_dspark, dspark_config, require_dflash_fit, read_dflash),  # before DFlash, of which it is a kind
    HeadKind(DFlash, is_dflash, dflash_config, require_dflash_fit, read_dflash),
    HeadKind(Gemma4Assistant, is_assistant, assistant_config, require_assistant_fit, read_gemma4_assistant),
    HeadKind(Eagle3, is_head, head_config, require_fit, read_eagle3),  # last, because it takes all of ``speculators``
)
