"""A pair: a target, what drafts for it, and their tokenizer. Loading and checking; no decoding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from specdec.errors import IncompatiblePair, InvalidInput, LoadFailed

Prompt = str | list[dict[str, str]] | torch.Tensor

EMBEDDED = Path(__file__).parent / "embedded"

# Layers that fold the past into one state: a crop would leave it wrong without a word. Convolutions can be rolled back.
_RECURRENT_LAYERS = {"linear_attention", "hybrid", "hybrid_sliding", "mamba", "mamba2", "recurrent"}


@dataclass(frozen=True, eq=False)
class Pair:
    """A target model and its draft, both in eval mode, shared by all calls and never written to.

    ``draft`` may be None: then only gamma 0 runs. ``tokenizer`` may be None: then prompts are ids.
    """

    target: PreTrainedModel
    draft: PreTrainedModel | None = None
    tokenizer: Any = None
    draft_tokenizer: Any = None
    name: str | None = None

    def __post_init__(self) -> None:
        for model in (self.target, self.draft):
            if model is not None:
                refuse_unsuitable(model.config, type(model))
                model.eval()
        if self.tokenizer is not None and self.draft_tokenizer is not None:
            check_tokenizers(self.tokenizer, self.draft_tokenizer)

    @property
    def vocabulary(self) -> int:
        """Rows of the target's output: its vocabulary, padding included."""
        return self.target.get_output_embeddings().weight.shape[0]

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text in every lane, from the target's generation config."""
        eos = self.target.generation_config.eos_token_id
        return frozenset(eos if isinstance(eos, (list, tuple)) else [] if eos is None else [eos])

    def context_length(self, drafting: bool = True) -> int | None:
        """Tokens that fit both models (the target alone without drafting); None where neither has a bound."""
        models = (self.target, self.draft) if drafting else (self.target,)
        bounds = [getattr(m.config, "max_position_embeddings", None) for m in models if m is not None]
        return min((bound for bound in bounds if bound), default=None)

    def encode(self, prompt: Prompt) -> torch.Tensor:
        """Prompt ids, (1, n), n of at least 1. Chat messages go through the tokenizer's own template."""
        if isinstance(prompt, torch.Tensor):
            return self._check_ids(prompt)
        if self.tokenizer is None:
            raise InvalidInput("The pair has no tokenizer; give the prompt as a LongTensor of ids.")
        if isinstance(prompt, str):
            if not prompt:
                raise InvalidInput("The prompt is empty; write at least one character.")
            try:
                ids = self.tokenizer(prompt, verbose=False).input_ids
            except (TypeError, ValueError) as error:  # half of a surrogate pair, for one
                raise InvalidInput(
                    "The prompt is not valid text: it holds a character that cannot be encoded."
                ) from error
        elif isinstance(prompt, list) and prompt and all(isinstance(m, dict) and "role" in m for m in prompt):
            if not getattr(self.tokenizer, "chat_template", None):
                raise InvalidInput(
                    f"The prompt is {len(prompt)} chat message(s), but the target's tokenizer has no chat template; "
                    "write the prompt as text."
                )
            # The template writes its own BOS; tokenising its text once more would add a second.
            try:
                encoded = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)
            except (TemplateError, TypeError, ValueError) as error:
                raise InvalidInput(f"The tokenizer's chat template refuses these messages: {error}.") from error
            ids = encoded["input_ids"]
        else:
            raise InvalidInput(
                f"The prompt is a {type(prompt).__name__}; give a str, a list of chat messages or a LongTensor of ids."
            )
        return self._check_ids(torch.tensor([ids], dtype=torch.long))

    def describe(self) -> dict[str, Any]:
        """Names, sizes, devices and number types, as plain values."""
        facts: dict[str, Any] = {"name": self.name, "context": self.context_length()}
        for role, model in (("target", self.target), ("draft", self.draft)):
            facts[role] = None if model is None else _short_name(model)
            if model is not None:
                config = model.config.get_text_config(decoder=True)
                facts[f"{role}_layers"] = getattr(config, "num_hidden_layers", None)
                facts[f"{role}_parameters"] = model.num_parameters()
                facts[f"{role}_dtype"] = str(model.dtype).removeprefix("torch.")
        return facts | {"device": str(self.target.device)}

    def _check_ids(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.ndim not in (1, 2):
            raise InvalidInput(
                f"The prompt is a {ids.dtype} tensor of shape {tuple(ids.shape)}; give ids, (n,) or (1, n)."
            )
        ids = ids.long().view(1, -1) if ids.ndim == 1 else ids.long()
        if len(ids) != 1:
            raise InvalidInput(f"The prompt is a batch of {len(ids)}; one prompt at a time can be decoded.")
        if ids.shape[1] == 0:
            raise InvalidInput("The prompt is empty; give at least one token.")
        rows = self.target.get_input_embeddings().weight.shape[0]
        if int(ids.min()) < 0 or int(ids.max()) >= rows:
            wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise InvalidInput(f"The prompt holds id {wrong}; the target knows ids 0-{rows - 1}.")
        return ids


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    draft_dtype: str = "auto",
    revision: str | None = None,
    draft_revision: str | None = None,
) -> Pair:
    """Load a target and a draft by hub id or folder; without arguments the embedded pair, which needs no network.

    ``device`` "auto" is the GPU if there is one. ``dtype`` "auto" is bfloat16 on a GPU and float32 on a CPU; else a
    name such as "float16". Weights are read from safetensors only and no code from a repository is run.
    Raises ``LoadFailed`` or ``IncompatiblePair``.
    """
    if target is None:
        if draft is not None:
            raise InvalidInput(f"A draft ({draft}) was given without a target; give both, or neither.")
        target, draft, name = str(EMBEDDED / "target"), str(EMBEDDED / "draft"), "embedded"
    else:
        name = None
    where = _device(device)
    tokenizer = _load(target, revision, AutoTokenizer)
    # What can be refused without weights is refused before they are read.
    configs = [_load(target, revision, AutoConfig)]
    draft_tokenizer = None
    if draft is not None:
        configs.append(_load(draft, draft_revision, AutoConfig))
        draft_tokenizer = _load(draft, draft_revision, AutoTokenizer)
        check_tokenizers(tokenizer, draft_tokenizer)
    for config in configs:
        refuse_unsuitable(config)
    return Pair(
        target=_load_model(target, revision, where, dtype),
        draft=None if draft is None else _load_model(draft, draft_revision, where, draft_dtype),
        tokenizer=tokenizer,
        draft_tokenizer=draft_tokenizer,
        name=name,
    )


def quiet() -> None:
    """For programs, not for the library: no progress bars and no advice from transformers on the terminal."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def check_tokenizers(target: Any, draft: Any) -> None:
    """Refuse two tokenizers that give an id different tokens. Sizes may differ: padding is not vocabulary."""
    ours = {token_id: token for token, token_id in target.get_vocab().items()}
    theirs = {token_id: token for token, token_id in draft.get_vocab().items()}
    for token_id in sorted(ours.keys() & theirs.keys()):
        if ours[token_id] != theirs[token_id]:
            raise IncompatiblePair(
                f"The tokenizers differ: id {token_id} is {ours[token_id]!r} in the target's and "
                f"{theirs[token_id]!r} in the draft's. Choose a draft that was trained with the target's tokenizer."
            )
    if extra := sorted(ours.keys() ^ theirs.keys()):
        # A few added tokens at the end are common among models of one family; the draft simply never proposes them.
        if len(extra) > 0.01 * len(ours):
            first = extra[0]
            raise IncompatiblePair(
                f"The tokenizers differ: id {first} is {ours.get(first, theirs.get(first))!r} in the "
                f"{'target' if first in ours else 'draft'}'s and missing in the other's. Choose a draft that was "
                "trained with the target's tokenizer."
            )


def refuse_unsuitable(config: Any, model_class: type | None = None) -> None:
    """Refuse, by name, what cannot be decoded speculatively. Needs the config alone."""
    name = model_class.__name__ if model_class else (getattr(config, "architectures", None) or [config.model_type])[0]
    if config.is_encoder_decoder:
        raise IncompatiblePair(f"{name} is an encoder-decoder model; choose a decoder-only (causal) language model.")
    if model_class is None:
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    layers = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())
    recurrent = sorted(layers & _RECURRENT_LAYERS)
    if recurrent or getattr(model_class, "_is_stateful", False):
        what = f" ({', '.join(recurrent)} layers)" if recurrent else ""
        raise IncompatiblePair(
            f"{name} keeps recurrent state{what}, which cannot be rolled back after a rejected draft. Choose a model "
            "with attention or convolution layers only."
        )


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
        if chosen.type == "meta":
            raise RuntimeError("the meta device holds no values")
    except (RuntimeError, AssertionError) as error:
        raise LoadFailed(f"Device {device!r} cannot be used here; use 'cpu' or 'auto'.") from error
    return chosen


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":  # half precision on a CPU is slower and less exact
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in dtypes:
        raise InvalidInput(f"dtype is {name!r}; use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return dtypes[name]


def _load_model(source: str, revision: str | None, device: torch.device, dtype: str) -> PreTrainedModel:
    options = {"dtype": _dtype(dtype, device), "use_safetensors": True}
    model = _load(source, revision, AutoModelForCausalLM, **options)
    try:
        return model.to(device).eval()
    except RuntimeError as error:  # out of memory
        size = model.num_parameters() * model.dtype.itemsize / 1e9
        raise LoadFailed(f"{source!r} needs {size:.1f} GB on {device}, which could not be had: {error}") from error


def _load(source: str, revision: str | None, kind: Any, **options: Any) -> Any:
    """``kind.from_pretrained``, its many errors told in one sentence."""
    try:
        return kind.from_pretrained(source, revision=revision, trust_remote_code=False, **options)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        part = {AutoTokenizer: "tokenizer", AutoConfig: "configuration"}.get(kind, "weights")
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = (
            "Check the folder."
            if Path(source).exists()
            else "Check the name and the network (licensed models need HF_TOKEN). The embedded pair needs no network."
        )
        raise LoadFailed(f"The {part} of {source!r} could not be loaded: {first_line.rstrip('.')}. {hint}") from error


def _short_name(model: PreTrainedModel) -> str:
    """The hub id, or the last part of a folder: paths of this machine are nobody's business."""
    name = model.config._name_or_path or type(model).__name__
    return Path(name).name if Path(name).exists() else name
