"""What the ``config.json`` of a DFlash head says, in the formats of z-lab and of transformers.

It reads the options of z-lab's ``DFlashDraftModel`` and of transformers' ``MuseGlimmerAssistantModel``. Such a head has no
embedding and no output matrix, because it uses those of its target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers import MuseGlimmerAssistantConfig, Qwen3Config

from specdec.errors import IncompatiblePair, quoted

_MUSE = MuseGlimmerAssistantConfig.model_type
_ZLAB = "DFlashDraftModel"
_NESTED = "dflash_config"
_LAYERS, _BLOCK, _MASK = "target_layer_ids", "block_size", "mask_token_id"
_SCALE, _MULTIPLIER, _SOFTCAP = "input_embedding_scale", "output_multiplier", "final_logit_softcapping"
# What ``dflash_config`` may say. Anything else may change the forward pass, so it is refused.
_KNOWN = (_LAYERS, _BLOCK, _MASK, _SCALE, _MULTIPLIER, _SOFTCAP, "causal", "num_target_layers")
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # other types change their angles with the length of a text


# Entries of a config.json that say nothing about the layers.
_NO_SIZES = (
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "auto_map",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip


class Sight(NamedTuple):
    """What a row of a block sees in one layer.

    ``causal``: no later row. ``reach``: how many places back it sees, and as many ahead unless it is causal; None for
    all.
    """

    causal: bool
    reach: int | None

    def of(self, rows: int, total: int, device: torch.device) -> tuple[int, torch.Tensor | None]:
        """What the last ``rows`` of ``total`` places see: the first place that one of them sees, and a mask from there
        on, (rows, total - first); None where each sees all.
        """
        first = 0 if self.reach is None else max(0, total - rows - self.reach)
        if not self.causal and self.reach is None:
            return first, None
        places = torch.arange(first, total, device=device)
        ahead = places[None] - places[-rows:, None]
        most, least = 0 if self.causal else self.reach, None if self.reach is None else -self.reach
        seen = torch.ones_like(ahead, dtype=torch.bool) if most is None else ahead <= most
        return first, seen if least is None else seen & (ahead >= least)


@dataclass(frozen=True)
class DFlashConfig:
    """The settings in a head's ``config.json``.

    layer            sizes and rotary angles of its layers; H is ``layer.hidden_size``
    vocabulary       rows of the target's vocabulary; None where it does not say
    target_depth     how many layers the target has; None where it does not say
    layer_ids        the target's layers whose output is read, counted from 0
    block            rows of a block: the last committed token, and a mask for each guess
    mask_id          the token id of a mask
    sights           what a row sees, for each layer
    embedding_scale  the target's embeddings are multiplied by this
    multiplier, softcap   the target's logits x become softcap tanh(multiplier x / softcap); None for the target's own
    """

    layer: Qwen3Config
    vocabulary: int | None
    target_depth: int | None
    layer_ids: tuple[int, ...]
    block: int
    mask_id: int
    sights: tuple[Sight, ...]
    embedding_scale: float
    multiplier: float | None
    softcap: float | None

    def states_of(self, depth: int) -> tuple[int, ...]:
        """The hidden states to read in a target of ``depth`` layers: number i is the input of layer i.

        Raises ``IncompatiblePair`` for a layer that the target lacks, and for its last one.
        """
        for number in self.layer_ids:
            if not 0 <= number < depth:
                raise IncompatiblePair(
                    f"The DFlash head reads layer {number}, and the target has layers 0 to {depth - 1}. Choose a head "
                    "that was made for this target."
                )
            if number == depth - 1:
                raise IncompatiblePair(
                    f"The DFlash head reads layer {number}, the target's last one, and does not say whether before or "
                    "after the final norm. Choose a head that reads other layers."
                )
        return tuple(number + 1 for number in self.layer_ids)


def is_dflash(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a DFlash head, or of one that ``dflash_config`` refuses by its name."""
    kind = config.get("speculators_model_type") or config.get("model_type")
    return _NESTED in config or kind in ("dflash", _MUSE) or any("dflash" in n.lower() for n in _architectures(config))


def dflash_config(config: Mapping[str, Any]) -> DFlashConfig:
    """The head that a ``config.json`` describes. Raises ``IncompatiblePair`` for one that cannot be built.

    An option may stand at the top level, or in ``dflash_config``.
    """
    _refuse_relatives(config)
    muse = config.get("model_type") == _MUSE
    sizes = _sizes(config, muse)
    ids = _required(config, _LAYERS)
    if not isinstance(ids, list) or not ids or not all(map(_is_whole, ids)):
        raise IncompatiblePair(
            f"The DFlash head sets {_LAYERS} to {quoted(ids)}; it must be a list of layers. Choose another head."
        )
    return DFlashConfig(
        layer=sizes,
        vocabulary=config.get("vocab_size"),
        target_depth=_option(config, "num_target_layers"),
        layer_ids=tuple(ids),
        block=_whole(config, _BLOCK, 2),
        mask_id=_whole(config, _MASK, 0),
        sights=_sights(config, sizes, muse),
        embedding_scale=_positive(config, _SCALE) or 1.0,
        multiplier=_positive(config, _MULTIPLIER),
        softcap=_positive(config, _SOFTCAP),
    )


def _architectures(config: Mapping[str, Any]) -> list[str]:
    names = config.get("architectures")
    return list(map(str, names)) if isinstance(names, list) else []


def _nested(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get(_NESTED)
    return inner if isinstance(inner, Mapping) else {}


def _option(config: Mapping[str, Any], *names: str) -> Any:
    """An option by any of its names from either place; None if it is at neither.

    Raises ``IncompatiblePair`` where two differ.
    """
    found = [value for place in (config, _nested(config)) for n in names if (value := place.get(n)) not in (None, [])]
    if any(value != found[0] for value in found):
        raise IncompatiblePair(
            f"The config.json of the DFlash head sets {names[0]} to {quoted(found[0])}, and to {quoted(found[-1])} at "
            f"another place of it ({_NESTED}). Correct the one that is wrong, or choose another head."
        )
    return found[0] if found else None


def _required(config: Mapping[str, Any], name: str) -> Any:
    found = _option(config, name)
    if found is None:
        raise IncompatiblePair(
            f"The config.json of the DFlash head does not say its {name}, which cannot be guessed. Add it as the "
            "head's authors give it, or choose another head."
        )
    return found


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _whole(config: Mapping[str, Any], name: str, least: int) -> int:
    found = _required(config, name)
    if not _is_whole(found) or found < least:
        raise IncompatiblePair(
            f"The DFlash head sets {name} to {quoted(found)}; it must be a whole number, {least} or more. Choose "
            "another head."
        )
    return int(found)


def _positive(config: Mapping[str, Any], name: str) -> float | None:
    found = _option(config, name)
    if found is not None and not (type(found) in (int, float) and 0 < found < math.inf):
        raise IncompatiblePair(
            f"The DFlash head sets {name} to {quoted(found)}; it must be a number above 0. Choose another head."
        )
    return found


def _refuse_relatives(config: Mapping[str, Any]) -> None:
    """Refuse, by its name, a head that is written or that drafts in another way."""
    if config.get("speculators_model_type"):
        raise IncompatiblePair(
            "The DFlash head is written in the format of speculators, whose numbers of the target's layers "
            f"(aux_hidden_state_layer_ids) engines read in two ways. Choose a head of the class {_ZLAB}."
        )
    muse = config.get("model_type") == _MUSE
    other = next((name for name in _architectures(config) if name != _ZLAB and not muse), None)
    if other is not None:
        raise IncompatiblePair(
            f"The head is of the class {other[:80]}, and only {_ZLAB} and MuseGlimmerAssistantModel are read. Choose a "
            "head of these."
        )
    unknown = [name for name, value in _nested(config).items() if name not in _KNOWN and value not in (None, False)]
    if unknown:
        raise IncompatiblePair(
            f"The DFlash head sets {unknown[0][:80]} in {_NESTED}, whose meaning is not known here. Choose "
            "another head."
        )


def _sizes(config: Mapping[str, Any], muse: bool) -> Qwen3Config:
    """The sizes of its layers. Those of both formats are layers of Qwen3."""
    kind = config.get("model_type", "qwen3")
    if not muse and kind != "qwen3":
        raise IncompatiblePair(f"The DFlash head has layers of type {str(kind)[:40]!r}; only qwen3 is read.")
    given = MuseGlimmerAssistantConfig(**config).to_dict() if muse else dict(config)
    for name in _NO_SIZES:
        given.pop(name, None)
    kinds = given.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        given["use_sliding_window"] = True  # without it, transformers forgets the size of the window
    sizes = Qwen3Config(**given)
    rope = (sizes.rope_parameters or {}).get("rope_type", "default")
    if rope not in _ROPE_TYPES:
        raise IncompatiblePair(
            f"The rotary angles of the DFlash head ({str(rope)[:40]}) change with the length of a text, which is not "
            "read here. Choose another head."
        )
    return sizes


def _sights(config: Mapping[str, Any], sizes: Qwen3Config, muse: bool) -> tuple[Sight, ...]:
    """What a row sees in each layer.

    In z-lab's code a layer with a window is causal unless the config says otherwise, and a window of W tokens counts
    the token itself. In transformers' Muse-Glimmer no layer is causal, and it does not count.
    """
    kinds, window = list(sizes.layer_types or ()), sizes.sliding_window
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown or len(kinds) != sizes.num_hidden_layers:
        raise IncompatiblePair(
            f"The DFlash head names {len(kinds)} layer_types for {sizes.num_hidden_layers} layers"
            f"{f', {quoted(min(unknown))} among them' if unknown else ''}; each must be full_attention or "
            "sliding_attention. Choose another head."
        )
    if "sliding_attention" in kinds and (not _is_whole(window) or window < 1):
        raise IncompatiblePair(
            f"The DFlash head has layers with a sliding window, and sets sliding_window to {quoted(window)}; it must "
            "be a whole number. Choose another head."
        )
    causal = _option(config, "is_causal", "causal")
    if causal not in (None, True, False):
        raise IncompatiblePair(f"The DFlash head sets causal to {quoted(causal)}; it must be true or false.")
    return tuple(
        Sight(
            causal=not muse and (sliding if causal is None else causal),
            reach=(window if muse else window - 1) if sliding else None,
        )
        for sliding in (kind == "sliding_attention" for kind in kinds)
    )
