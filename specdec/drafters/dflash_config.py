"""What the ``config.json`` of a DFlash head says, in each format that such heads are published in.

- z-lab's ``DFlashDraftModel`` and transformers' ``MuseGlimmerAssistantModel``: they use the target's embedding and
  output matrix.
- vLLM's ``speculators``: the sizes of the layers stand apart, the head brings an embedding and an output matrix, and it
  may know a part of the vocabulary only. ``models/dflash`` there writes it (``config.py``, ``core.py``,
  ``attention.py``); vLLM's ``configs/speculators/algos.py`` and ``qwen3_dflash.py`` read it. How its numbers of hidden
  states follow from z-lab's numbers of layers is in ``convert/dflash/converter.py``; so vLLM reads them (its change
  40727).
- DeepSpec's ``Qwen3DSparkModel`` (``deepspec/modeling/dspark``). Its DFlash heads are DSpark heads without what DSpark
  adds, which ``dspark.py`` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers import MuseGlimmerAssistantConfig, Qwen3Config

from specdec.drafters.trained_head import require_layers
from specdec.errors import IncompatiblePair, quoted

_MUSE = MuseGlimmerAssistantConfig.model_type
_ZLAB, _DEEPSPEC = "DFlashDraftModel", "Qwen3DSparkModel"
_SPECULATORS = (_ZLAB, "DFlashSpeculator", "DSparkDraftModel", "DSparkSpeculator")  # classes, with their kind beside it
_KIND, _SIZES = "speculators_model_type", "transformer_layer_config"
_NESTED = "dflash_config"
_LAYERS, _STATES, _BLOCK, _MASK = "target_layer_ids", "aux_hidden_state_layer_ids", "block_size", "mask_token_id"
_ANCHOR, _KNOWN_TOKENS = "sample_from_anchor", "draft_vocab_size"
_SCALE, _MULTIPLIER, _SOFTCAP = "input_embedding_scale", "output_multiplier", "final_logit_softcapping"
# What ``dflash_config`` may say. Anything else may change the forward pass, so it is refused.
_KNOWN = (_LAYERS, _BLOCK, _MASK, _ANCHOR, _SCALE, _MULTIPLIER, _SOFTCAP, "causal", "num_target_layers")
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # other types change their angles with the length of a text


# Entries of a config.json that say nothing about the layers.
_NO_SIZES = (
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "auto_map",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip


class Sight(NamedTuple):
    """What a row of a block sees in one layer.

    ``causal``: no later row. ``reach``: how many places back it sees, and as many ahead unless it is causal; None for
    all. ``from_block``: they are counted back from the block's first row, for all its rows.
    """

    causal: bool
    reach: int | None
    from_block: bool = False

    def of(self, rows: int, total: int, device: torch.device) -> tuple[int, torch.Tensor | None]:
        """What the last ``rows`` of ``total`` places see: the first place that one of them sees, and a mask from there
        on, (rows, total - first); None where each sees all.
        """
        first = 0 if self.reach is None else max(0, total - rows - self.reach)
        if not self.causal and (self.reach is None or self.from_block):
            return first, None
        places = torch.arange(first, total, device=device)
        ahead = places[None] - places[-rows:, None]
        most = 0 if self.causal else self.reach
        least = None if self.reach is None or self.from_block else -self.reach
        seen = torch.ones_like(ahead, dtype=torch.bool) if most is None else ahead <= most
        return first, seen if least is None else seen & (ahead >= least)


@dataclass(frozen=True)
class DFlashConfig:
    """The settings in a head's ``config.json``.

    named            what a person calls it: DFlash head or DSpark head
    layer            sizes and rotary angles of its layers; H is ``layer.hidden_size``
    vocabulary       rows of the target's vocabulary; None where it does not say
    draft_vocabulary   rows of its own output matrix, where it knows a part of the target's vocabulary only; else None
    target_depth     how many layers the target has; None where it does not say
    layer_ids        the target's layers whose output is read, counted from 0; -1 for the embedding
    block            rows of a block: the last committed token, and masks
    from_anchor      the row of the last committed token guesses too, and each row the token after its own place; else
                     the masks alone guess, each its own place
    mask_id          the token id of a mask
    sights           what a row sees, for each layer
    own_weights      it may bring an embedding and an output matrix, and its logits are used as they are
    embedding_scale  the target's embeddings are multiplied by this
    multiplier, softcap   the target's logits x become softcap tanh(multiplier x / softcap); None for the target's own
    """

    named: str
    layer: Qwen3Config
    vocabulary: int | None
    draft_vocabulary: int | None
    target_depth: int | None
    layer_ids: tuple[int, ...]
    block: int
    from_anchor: bool
    mask_id: int
    sights: tuple[Sight, ...]
    own_weights: bool
    embedding_scale: float
    multiplier: float | None
    softcap: float | None

    @property
    def guesses(self) -> int:
        """How many guesses a block makes."""
        return self.block - 1 + self.from_anchor

    def states_of(self, depth: int) -> tuple[int, ...]:
        """The hidden states to read in a target of ``depth`` layers: number i is the input of layer i.

        Raises ``IncompatiblePair`` for a layer that the target lacks, and for its last one.
        """
        for number in self.layer_ids:
            if not -1 <= number < depth:
                raise IncompatiblePair(
                    f"The {self.named} reads layer {number}, and the target has layers 0 to {depth - 1}. Choose a "
                    "head that was made for this target."
                )
            if number == depth - 1:
                raise IncompatiblePair(
                    f"The {self.named} reads layer {number}, the target's last one, and does not say whether "
                    "before or after the final norm. Choose a head that reads other layers."
                )
        return tuple(number + 1 for number in self.layer_ids)


def is_dflash(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a DFlash head, or of one that ``dflash_config`` refuses by its name."""
    if is_dspark(config):
        return False
    kind = config.get(_KIND) or config.get("model_type")
    named = any(name in written.lower() for written in _architectures(config) for name in ("dflash", "dspark"))
    return _NESTED in config or kind in ("dflash", "dspark", _MUSE) or named


def is_dspark(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a DSpark head.

    One that says that it has nothing of what DSpark adds is a DFlash head: DeepSpec writes those under DSpark's name.
    """
    named = config.get(_KIND) == "dspark" or any("dspark" in name.lower() for name in _architectures(config))
    return named and (config.get("markov_rank") != 0 or bool(config.get("enable_confidence_head")))


def dflash_config(config: Mapping[str, Any]) -> DFlashConfig:
    """The head that a ``config.json`` describes. Raises ``IncompatiblePair`` for one that cannot be built.

    An option may stand at the top level, or in ``dflash_config``.
    """
    return DFlashConfig(**block_fields(config))


def block_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``DFlashConfig``, for a DSpark head too."""
    _refuse_relatives(config)
    muse, speculators = config.get("model_type") == _MUSE, config.get(_KIND) is not None
    deepspec = _DEEPSPEC in _architectures(config)
    sizes = _sizes(config, muse)
    own = speculators or deepspec
    return {
        "named": _named(config),
        "layer": sizes,
        "vocabulary": sizes.vocab_size if speculators else config.get("vocab_size"),
        "draft_vocabulary": _draft_vocabulary(config, sizes.vocab_size) if own else None,
        "target_depth": _option(config, "num_target_layers"),
        "layer_ids": _layer_ids(config),
        "block": whole_of(config, _BLOCK, 2),
        "from_anchor": flag_of(config, _ANCHOR, deepspec),
        "mask_id": whole_of(config, _MASK, 0),
        "sights": _sights_of_speculators(config, sizes) if speculators else _sights(config, sizes, muse),
        "own_weights": own,
        "embedding_scale": _positive(config, _SCALE) or 1.0,
        "multiplier": _positive(config, _MULTIPLIER),
        "softcap": _positive(config, _SOFTCAP),
    }


def _named(config: Mapping[str, Any]) -> str:
    """What a person calls it."""
    return "DSpark head" if is_dspark(config) else "DFlash head"


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
            f"The config.json of the {_named(config)} sets {names[0]} to {quoted(found[0])}, and to "
            f"{quoted(found[-1])} at another place of it ({_NESTED}). Correct the one that is wrong, or choose another "
            "head."
        )
    return found[0] if found else None


def _required(config: Mapping[str, Any], name: str) -> Any:
    found = _option(config, name)
    if found is None:
        raise IncompatiblePair(
            f"The config.json of the {_named(config)} does not say its {name}, which cannot be guessed. Add it as "
            "the head's authors give it, or choose another head."
        )
    return found


def _layer_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The layers whose output is read.

    ``speculators`` numbers hidden states, of which number 0 is the embedding and number i + 1 the output of layer i.
    """
    name = _STATES if config.get(_KIND) else _LAYERS
    ids = _required(config, name)
    if not isinstance(ids, list) or not ids or not all(map(_is_whole, ids)):
        raise IncompatiblePair(
            f"The {_named(config)} sets {name} to {quoted(ids)}; it must be a list of layers. Choose another head."
        )
    return tuple(number - (name == _STATES) for number in ids)


def _draft_vocabulary(config: Mapping[str, Any], vocabulary: int) -> int | None:
    """Rows of its own output matrix; None where they are all tokens of the target, in its order."""
    found = _option(config, _KNOWN_TOKENS)
    if found is None or found == vocabulary:
        return None
    if not _is_whole(found) or not 0 < found < vocabulary:
        raise IncompatiblePair(
            f"The {_named(config)} sets {_KNOWN_TOKENS} to {quoted(found)}; it must be a number of the target's "
            f"{vocabulary:,} tokens. Choose another head."
        )
    return int(found)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def whole_of(config: Mapping[str, Any], name: str, least: int) -> int:
    """An option that is a whole number, ``least`` or more, and that must be given."""
    found = _required(config, name)
    if not _is_whole(found) or found < least:
        raise IncompatiblePair(
            f"The {_named(config)} sets {name} to {quoted(found)}; it must be a whole number, {least} or more. "
            "Choose another head."
        )
    return int(found)


def _positive(config: Mapping[str, Any], name: str) -> float | None:
    found = _option(config, name)
    if found is not None and not (type(found) in (int, float) and 0 < found < math.inf):
        raise IncompatiblePair(
            f"The {_named(config)} sets {name} to {quoted(found)}; it must be a number above 0. Choose another head."
        )
    return found


def flag_of(config: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    """An option that is true or false; ``otherwise`` where nothing says it."""
    found = _option(config, name)
    if found not in (None, True, False):
        raise IncompatiblePair(f"The {_named(config)} sets {name} to {quoted(found)}; it must be true or false.")
    return otherwise if found is None else bool(found)


def _refuse_relatives(config: Mapping[str, Any]) -> None:
    """Refuse, by its name, a head that is written or that drafts in another way."""
    kind, muse = config.get(_KIND), config.get("model_type") == _MUSE
    if kind not in (None, "dflash", "dspark"):
        raise IncompatiblePair(
            f"The head is of the kind {str(kind)[:40]}, and of such heads only dflash and dspark are read. Choose "
            "another head."
        )
    known = (_ZLAB, _DEEPSPEC) if kind is None else _SPECULATORS
    other = next((name for name in _architectures(config) if name not in known and not muse), None)
    if other is not None:
        raise IncompatiblePair(
            f"The head is of the class {other[:80]}, and only {_ZLAB}, MuseGlimmerAssistantModel, {_DEEPSPEC} and "
            "those of speculators are read. Choose a head of these."
        )
    unknown = [name for name, value in _nested(config).items() if name not in _KNOWN and value not in (None, False)]
    if unknown:
        raise IncompatiblePair(
            f"The {_named(config)} sets {unknown[0][:80]} in {_NESTED}, whose meaning is not known here. Choose "
            "another head."
        )


def _sizes(config: Mapping[str, Any], muse: bool) -> Qwen3Config:
    """The sizes of its layers. Those of all formats are layers of Qwen3."""
    written = config.get(_SIZES) if config.get(_KIND) else config
    if not isinstance(written, Mapping):
        raise IncompatiblePair(
            f"The config.json of the {_named(config)} does not say the sizes of its layers ({_SIZES}). Choose "
            "another head."
        )
    kind = written.get("model_type", "qwen3")
    if not muse and kind != "qwen3":
        raise IncompatiblePair(f"The {_named(config)} has layers of type {str(kind)[:40]!r}; only qwen3 is read.")
    given = MuseGlimmerAssistantConfig(**written).to_dict() if muse else dict(written)
    for name in _NO_SIZES:
        given.pop(name, None)
    kinds = given.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        given["use_sliding_window"] = True  # without it, transformers forgets the size of the window
        given.setdefault("sliding_window", None)  # transformers would take a number of its own
    angles = given.get("rope_parameters")
    if isinstance(angles, Mapping) and "sliding_attention" in angles:  # speculators uses these for all layers
        given["rope_parameters"] = angles["sliding_attention"]
    sizes = Qwen3Config(**given)
    require_layers(_named(config), sizes.num_hidden_layers)
    rope = (sizes.rope_parameters or {}).get("rope_type", "default")
    if rope not in _ROPE_TYPES:
        raise IncompatiblePair(
            f"The rotary angles of the {_named(config)} ({str(rope)[:40]}) change with the length of a text, which is "
            "not read here. Choose another head."
        )
    return sizes


def _sights(config: Mapping[str, Any], sizes: Qwen3Config, muse: bool) -> tuple[Sight, ...]:
    """What a row sees in each layer.

    In z-lab's code a layer with a window is causal unless the config says otherwise, and a window of W tokens counts
    the token itself. In transformers' Muse-Glimmer no layer is causal, and it does not count.
    """
    window = _window(config, sizes)
    causal = _option(config, "is_causal", "causal")
    if causal not in (None, True, False):
        raise IncompatiblePair(f"The {_named(config)} sets causal to {quoted(causal)}; it must be true or false.")
    return tuple(
        Sight(
            causal=not muse and (sliding if causal is None else causal),
            reach=(window if muse else window - 1) if sliding else None,
        )
        for sliding in _sliding(sizes)
    )


def _sights_of_speculators(config: Mapping[str, Any], sizes: Qwen3Config) -> tuple[Sight, ...]:
    """What a row sees in each layer: what it saw in training.

    A layer without a window is never causal, one with a window is unless the config says otherwise. All rows of a block
    see the W tokens before it. vLLM counts W back from each row by itself.
    """
    window, causal = _window(config, sizes), not flag_of(config, "sliding_window_non_causal", False)
    return tuple(Sight(causal, window, True) if sliding else Sight(False, None) for sliding in _sliding(sizes))


def _sliding(sizes: Qwen3Config) -> list[bool]:
    """Whether each layer has a window."""
    return [kind == "sliding_attention" for kind in sizes.layer_types or ()]


def _window(config: Mapping[str, Any], sizes: Qwen3Config) -> int:
    """The size of the window of the layers that have one. Refuses types of layers that are not known."""
    kinds, window = list(sizes.layer_types or ()), sizes.sliding_window
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown or len(kinds) != sizes.num_hidden_layers:
        raise IncompatiblePair(
            f"The {_named(config)} names {len(kinds)} layer_types for {sizes.num_hidden_layers} layers"
            f"{f', {quoted(min(unknown))} among them' if unknown else ''}; each must be full_attention or "
            "sliding_attention. Choose another head."
        )
    if "sliding_attention" in kinds and (not _is_whole(window) or window < 1):
        raise IncompatiblePair(
            f"The {_named(config)} has layers with a sliding window, and sets sliding_window to {quoted(window)}; it "
            "must be a whole number. Choose another head."
        )
    return window
