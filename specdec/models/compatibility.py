"""Which models can be decoded speculatively."""

from __future__ import annotations

import inspect
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from specdec.errors import IncompatiblePair

# Layers that fold the past into one state: a crop would leave it wrong without a word. Convolutions can be rolled back.
_RECURRENT_LAYERS = {"linear_attention", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent"}


_CAUSAL_ANYWAY = ("gpt_neox", "gpt_neox_japanese")  # their configs carry is_decoder False, and nobody reads it


_FORGETFUL = ("moshi",)  # drops what leaves its window, whatever the cache was told


def refuse_unsuitable(config: Any, model_class: type | None = None) -> None:
    """Refuse, by name, what cannot be decoded speculatively. Needs the config alone."""
    name = model_class.__name__ if model_class else (getattr(config, "architectures", None) or [config.model_type])[0]
    if config.is_encoder_decoder:
        raise IncompatiblePair(f"{name} is an encoder-decoder model; choose a decoder-only (causal) language model.")
    if getattr(config, "is_decoder", True) is False and config.model_type not in _CAUSAL_ANYWAY:
        raise IncompatiblePair(f"{name} reads in both directions; choose a decoder-only (causal) language model.")
    if model_class is None:
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise IncompatiblePair(f"{name} is no causal language model; choose one that writes text.")
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    layers = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())
    recurrent = sorted(layers & _RECURRENT_LAYERS)
    if recurrent or getattr(model_class, "_is_stateful", False):
        what = f" ({', '.join(recurrent)} layers)" if recurrent else ""
        raise IncompatiblePair(
            f"{name} keeps recurrent state{what}, which cannot be rolled back after a rejected draft. Choose a model "
            "with attention or convolution layers only."
        )
    if config.model_type in _FORGETFUL or "past_key_values" not in inspect.signature(model_class.forward).parameters:
        raise IncompatiblePair(f"{name} keeps no cache that could be rolled back; choose another model.")
