"""Facts about a loaded model, as plain values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from specdec.facts import ModelFacts
from specdec.forward.lean_check import lean_model

# The names under which configs keep how many tokens a text may have.
CONTEXT_NAMES = ("max_position_embeddings", "max_seq_len", "max_target_positions")


def model_facts(model: PreTrainedModel) -> ModelFacts:
    """Name, size, number type and revision of ``model``; ``bits`` is None where no weights are packed."""
    config = model.config.get_text_config(decoder=True)
    return {
        "name": _short_name(model),
        "layers": getattr(config, "num_hidden_layers", None),
        "parameters": model.num_parameters(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "rows": config.vocab_size,
        "local": Path(model.config.name_or_path or ".").exists(),
        "revision": getattr(model, "specdec_revision", None),
        "bits": _bits(model),
    }


def set_revision(model: PreTrainedModel, commit: str | None) -> None:
    """Note the commit that the weights of ``model`` come from, for ``model_facts``. transformers does not keep it."""
    model.specdec_revision = commit


def attends(kind: str) -> bool:
    """Whether a layer of this kind (a name from a config) keeps keys and values."""
    return re.search("(?<!linear_)attention|hybrid", kind) is not None


def why_not_lean(model: PreTrainedModel) -> str | None:
    """Why passes use the model's own ``forward``; None if they use the lean one. Compares both the first time."""
    lean = lean_model(model)
    return lean if isinstance(lean, str) else None


def why_torch_passes(model: PreTrainedModel) -> str | None:
    """Why torch's operators run the passes over few rows of the lean forward; None if those are native."""
    lean = lean_model(model)
    if isinstance(lean, str):
        return "Native passes are part of the lean forward pass."
    if lean.why_torch is None and torch.is_autocast_enabled("cpu"):
        return "Autocast changes the numbers of a pass."
    return lean.why_torch


def copy_weights(model: PreTrainedModel, rounded: bool = False) -> bool:
    """Make what ``LeanModel.halved`` or ``rounded`` reads, so that the first pass that needs it does not have to.

    Returns whether native passes read any of the weights in 16 bits.
    """
    lean = lean_model(model)
    if isinstance(lean, str):
        return False
    read = lean.rounded() if rounded else lean.halved()
    return read is not lean and not rounded


def context_length(config: Any) -> int | None:
    """How many tokens a model can read; None if its config sets no bound."""
    text = config.get_text_config(decoder=True)
    bounds = (getattr(text, name, None) for name in CONTEXT_NAMES)
    return next((bound for bound in bounds if isinstance(bound, int) and bound > 0), None)


def _bits(model: PreTrainedModel) -> int | None:
    packing = getattr(model.config, "quantization_config", None)
    known = {"load_in_8bit": 8, "load_in_4bit": 4}
    return next((bits for name, bits in known.items() if getattr(packing, name, False)), None)


def _short_name(model: PreTrainedModel) -> str:
    """The hub id, or the last part of a folder's path, because paths of a machine are private."""
    name = model.config.name_or_path or type(model).__name__
    return Path(name).name if Path(name).exists() else name
