"""A pair: a target, what drafts for it, and their tokenizer. No loading, no decoding."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from specdec.drafters.early_exit import EarlyExit, first_layers, refuse_exit
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.translation import Translation
from specdec.errors import InvalidInput
from specdec.models.compatibility import refuse_unsuitable, require_model, tokenizer_difference
from specdec.passes.context import context_of
from specdec.passes.runner import device_of

Prompt = str | list[dict[str, str]] | torch.Tensor


@dataclass(frozen=True, eq=False)
class Pair:
    """A target model and its draft, both in eval mode, shared by all calls and never written to.

    ``draft`` may be a model, ``PromptLookup()``, ``EarlyExit(layers)`` or None: then only gamma 0 runs. ``tokenizer``
    may be None: then prompts are ids. A ``draft_tokenizer`` that differs makes the draft work in its own vocabulary;
    ``translation`` is then what lies between the two. ``early`` are the layers of the target that ``EarlyExit`` uses.
    """

    target: PreTrainedModel
    draft: PreTrainedModel | PromptLookup | EarlyExit | None = None
    tokenizer: Any = None
    draft_tokenizer: Any = None
    name: str | None = None
    translation: Translation | None = field(init=False, default=None)
    early: PreTrainedModel | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        require_model("target", self.target)
        if not (self.draft is None or isinstance(self.draft, (PromptLookup, EarlyExit))):
            require_model("draft", self.draft, "PromptLookup(), EarlyExit(layers) or None")
        for model in self.models(drafting=True):
            refuse_unsuitable(model.config, type(model))
            model.eval()
        if isinstance(self.draft, EarlyExit):
            refuse_exit(self.target.config, self.draft.layers)
            object.__setattr__(self, "early", first_layers(self.target, self.draft.layers))
        if self.draft_tokenizer is not None:
            if self.tokenizer is None:
                raise InvalidInput("The draft has a tokenizer and the target has none; give both, or neither.")
            if tokenizer_difference(self.tokenizer, self.draft_tokenizer) is not None:
                object.__setattr__(self, "translation", Translation(self.tokenizer, self.draft_tokenizer))

    @property
    def device(self) -> torch.device:
        """Where the target's passes begin, and where prompts and probabilities lie."""
        return device_of(self.target)

    @property
    def vocabulary(self) -> int:
        """Rows of the target's output: its vocabulary, padding included."""
        return self.target.get_output_embeddings().weight.shape[0]

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text in every lane, from the target's generation config."""
        eos = self.target.generation_config.eos_token_id
        eos = eos.flatten().tolist() if isinstance(eos, torch.Tensor) else eos
        return frozenset(eos if isinstance(eos, (list, tuple)) else [] if eos is None else [eos])

    def context_length(self, drafting: bool = True) -> int | None:
        """Tokens that fit both models; the target alone without drafting, or where the draft counts in tokens of its
        own and stops drafting when its context is full. None where there is no bound."""
        models = self.models(drafting and self.translation is None)
        bounds = [context_of(model.config) for model in models]
        return min((bound for bound in bounds if bound), default=None)

    def models(self, drafting: bool) -> list[PreTrainedModel]:
        """The target, and the draft where it is a model of its own."""
        return [self.target, self.draft] if drafting and isinstance(self.draft, PreTrainedModel) else [self.target]

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
        """Names, sizes, revisions, number types and devices, as plain values."""
        facts: dict[str, Any] = {"name": self.name, "context": self.context_length()}
        facts["draft"] = self._method()
        for role, model in zip(("target", "draft"), self.models(drafting=True), strict=False):
            config = model.config.get_text_config(decoder=True)
            facts[role] = _short_name(model)
            facts[f"{role}_layers"] = getattr(config, "num_hidden_layers", None)
            facts[f"{role}_parameters"] = model.num_parameters()
            facts[f"{role}_dtype"] = str(model.dtype).removeprefix("torch.")
            facts[f"{role}_rows"] = config.vocab_size
            facts[f"{role}_local"] = Path(model.config._name_or_path or ".").exists()
            facts[f"{role}_revision"] = getattr(model.config, "_commit_hash", None)
            facts[f"{role}_bits"] = _bits(model)
        facts["compiled"] = self.target._compiled_call_impl is not None
        return facts | {"translated": self.translation is not None, "device": str(self.device)}

    def _method(self) -> str | None:
        """How tokens are drafted without a second model, in words."""
        if isinstance(self.draft, PromptLookup):
            return f"prompt lookup, {self.draft.min_ngram} to {self.draft.max_ngram} tokens"
        return f"its first {self.draft.layers} layers" if isinstance(self.draft, EarlyExit) else None

    def _check_ids(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.ndim not in (1, 2):
            raise InvalidInput(
                f"The prompt is a {ids.dtype} tensor of shape {tuple(ids.shape)}; give ids, (n,) or (1, n)."
            )
        if ids.device.type == "meta":
            raise InvalidInput("The prompt is on the meta device, which holds no values; give ids on a real one.")
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


def quiet() -> None:
    """For programs, not for the library: no progress bars and no advice from transformers on the terminal."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message="MatMul8bitLt")  # bitsandbytes, at every layer of every pass


def _bits(model: PreTrainedModel) -> int | None:
    """Into how many bits a weight is packed; None where it is not."""
    packing = getattr(model.config, "quantization_config", None)
    known = {"load_in_8bit": 8, "load_in_4bit": 4}
    return next((bits for name, bits in known.items() if getattr(packing, name, False)), None)


def _short_name(model: PreTrainedModel) -> str:
    """The hub id, or the last part of a folder: paths of this machine are nobody's business."""
    name = model.config._name_or_path or type(model).__name__
    return Path(name).name if Path(name).exists() else name
