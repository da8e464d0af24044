"""Says which models can be decoded speculatively, and refuses the others."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from specdec.errors import IncompatiblePair, InvalidInput, identified
from specdec.forward.hf_private import is_stateful
from specdec.forward.model_info import attends

# Types whose recurrent state transformers keeps in its own cache and can continue over several tokens. Their states are
# copied and restored (``forward.recurrent_state``). ``test_hybrids`` compares each type with ``generate``.
ROLLED_BACK = {
    "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "falcon_h1", "nemotron_h",
    "olmo_hybrid", "bamba", "granitemoehybrid", "inkling_text", "inkling2_text",
}  # fmt: skip

# Layers that keep one state of the whole past, which a crop would leave wrong unnoticed. Convolutions can be rolled
# back.
_RECURRENT_LAYERS = {"linear_attention", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent"}


_CAUSAL_ANYWAY = ("gpt_neox", "gpt_neox_japanese")  # their configs say is_decoder=False, but their code ignores it

_STATELESS_ANYWAY = ("granitemoehybrid",)  # the class has recurrent layers, but a config may have none

# Types whose cache or passes cannot be used here, although their configs do not show it.
_UNSUITABLE = {
    "moshi": "keeps no cache that could be rolled back",  # it drops tokens outside its window, whatever the cache keeps
    "prophetnet": "reads one token per pass once it has a cache, so a draft cannot be checked in one pass",
    "blt": "reads bytes in patches and keeps several caches, which cannot be rolled back together",
    "minimax": "keeps a cache of its own for all its layers, which cannot be rolled back",
}


def require_model(role: str, model: Any, or_else: str = "") -> None:
    """Refuse a value that is no language model of transformers: a name, None, a wrapped model, one without a head."""
    name = type(model).__name__
    if name.startswith("Peft") or hasattr(model, "merge_and_unload"):
        raise IncompatiblePair(f"The {role} is wrapped by PEFT ({name}); give what its merge_and_unload() returns.")
    if not isinstance(model, PreTrainedModel):
        more = f", {or_else}" if or_else else ""
        raise InvalidInput(f"The {role} is {identified(model)}; give a loaded model{more}. load_pair takes names.")
    if not model.can_generate() or model.get_output_embeddings() is None:
        raise IncompatiblePair(f"The {role} is a {name}, which cannot write text; give a causal language model.")
    if not getattr(model.config, "return_dict", True):
        raise IncompatiblePair(f"The config of {name} says return_dict=False; set it to True.")
    if model.get_output_embeddings().weight.shape[0] < 2:
        raise IncompatiblePair(f"{name} has a vocabulary of one token, so it has nothing to choose; use another model.")
    layers = [part for _, part in model.named_modules(remove_duplicate=False) if hasattr(part, "layer_idx")]
    if len(layers) > len(set(layers)):
        raise IncompatiblePair(
            f"One layer object stands at two places of {name}, and both would write into one layer of its cache; give "
            "each place its own layer, with its own layer_idx."
        )


def refuse_untimed(device: torch.device) -> None:
    """Refuse a device on which time cannot be measured yet: its passes still run when the clock is read."""
    if device.type not in ("cpu", "cuda", "meta"):  # offloaded weights are on "meta"
        raise IncompatiblePair(
            f"Times on a device of type {device.type!r} cannot be measured yet; use device 'cpu', or a CUDA GPU."
        )


def refuse_unsuitable(config: Any, model_class: type[PreTrainedModel] | None = None) -> None:
    """Refuse a model that cannot be decoded speculatively, by its config alone. The error names the model."""
    name = model_class.__name__ if model_class else (getattr(config, "architectures", None) or [config.model_type])[0]
    if reason := _UNSUITABLE.get(config.model_type):
        raise IncompatiblePair(f"{name} {reason}; choose another model.")
    if config.is_encoder_decoder:
        raise IncompatiblePair(f"{name} is an encoder-decoder model; choose a decoder-only (causal) language model.")
    if getattr(config, "is_decoder", True) is False and config.model_type not in _CAUSAL_ANYWAY:
        raise IncompatiblePair(f"{name} reads in both directions; choose a decoder-only (causal) language model.")
    if model_class is None:
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise IncompatiblePair(f"{name} is not a causal language model; choose one that writes text.")
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    text = config.get_text_config(decoder=True)
    if getattr(text, "use_bidirectional_attention", None) in (True, "all"):  # "vision" means images only
        raise IncompatiblePair(f"{name} reads in both directions; choose a decoder-only (causal) language model.")
    recurrent = sorted(set(getattr(text, "layer_types", None) or ()) & _RECURRENT_LAYERS)
    stateful = is_stateful(model_class) and config.model_type not in _STATELESS_ANYWAY
    if (recurrent or stateful) and not _rolled_back(config):
        what = f" ({', '.join(recurrent)} layers)" if recurrent else ""
        raise IncompatiblePair(
            f"{name} keeps recurrent state{what}, which cannot be rolled back here after a rejected draft. Choose a "
            "model with attention or convolution layers, or a hybrid such as Qwen3.5."
        )
    if "past_key_values" not in inspect.signature(model_class.forward).parameters:
        raise IncompatiblePair(f"{name} keeps no cache that could be rolled back; choose another model.")


def _rolled_back(config: Any) -> bool:
    """Whether the recurrent state can be restored. An attention layer is needed too, to count the text's length."""
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    return config.model_type in ROLLED_BACK and any(map(attends, kinds))


def recurrent_layers(config: Any) -> bool:
    """Whether a model whose type can be rolled back keeps recurrent state."""
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or ()
    return config.model_type in ROLLED_BACK and not _RECURRENT_LAYERS.isdisjoint(kinds)


def refuse_rope_change(config: Any, prompt: int, new: int) -> None:
    """Refuse a text that grows beyond the length up to which LongRoPE uses its short factors.

    transformers chooses the factors for a whole pass by its largest position. So a pass over a draft would use the long
    factors earlier than a pass over one token. Some models even read their whole text again there.
    """
    text = config.get_text_config(decoder=True)
    ropes = getattr(text, "rope_parameters", None) or {}
    for rope in (ropes, *(value for value in ropes.values() if isinstance(value, dict))):
        if rope.get("rope_type") != "longrope":
            continue
        bound = rope.get("original_max_position_embeddings") or getattr(text, "original_max_position_embeddings", None)
        if bound and prompt <= bound < prompt + new - 1:  # the last new token is never read
            raise InvalidInput(
                f"The model changes how it counts positions after {bound:,} tokens (LongRoPE), and this text would "
                f"go from {prompt:,} to {prompt + new:,}. Ask for at most {bound + 1 - prompt:,} new tokens, or give a "
                f"prompt of more than {bound:,}."
            )
