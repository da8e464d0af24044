"""Prepares transformers' assisted generation for each way to draft that transformers knows.

A pair itself is never changed. What transformers changes for a call (generation configs, the number of layers) is
changed in copies, which share every weight.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

from transformers import GenerationConfig, PreTrainedModel
from transformers.modeling_layers import MtpModel

from specdec.drafters.draft_model import DraftModel
from specdec.drafters.early_exit import EarlyExit, first_layers
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.synthetic import SyntheticDraft
from specdec.engine.request import Request
from specdec.errors import BadSetting, InvalidInput
from specdec.forward.hf_private import LoadedMtp, draft_with, is_stateful
from specdec.forward.torch_private import copy_compiled
from specdec.models.pair import Pair


class Assistance(NamedTuple):
    """The target as this way to draft needs it, and the arguments of its ``generate``."""

    target: PreTrainedModel
    options: dict[str, Any]


def assistance(request: Request, gamma: int) -> Assistance:
    """What lets transformers draft ``gamma`` tokens in the way of the pair; see ``cannot_assist``.

    Raises ``InvalidInput`` for a request at which transformers fails, or which it samples from a wrong distribution.
    """
    pair = request.pair
    target, draft = with_config(pair.target, GenerationConfig()), pair.draft
    match draft:
        case DraftModel() if draft.own_tokenizer:
            if not request.params.greedy:
                raise InvalidInput(
                    "With two tokenizers transformers 5.23 samples from a wrong distribution: it puts the draft's "
                    "probabilities at other tokens. Use temperature 0, or leave the lane assisted out."
                )
            tokenizers = {"tokenizer": pair.tokenizer, "assistant_tokenizer": draft.tokenizer}
            return Assistance(target, {"assistant_model": draft.models[0], **tokenizers})
        case DraftModel():
            return Assistance(target, {"assistant_model": draft.models[0]})
        case PromptLookup():
            lookup = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": draft.max_ngram}
            return Assistance(target, lookup)
        case EarlyExit():
            twin = with_fixed_gamma(_whole_twin(pair.target), gamma)
            return Assistance(twin, {"assistant_early_exit": draft.layers})
        case Mtp(model=MtpModel() as model):
            layers = len(model.layers)
            if gamma != layers:
                raise BadSetting(
                    f"gamma is {gamma}, and transformers drafts one token for each MTP layer of the target; use "
                    f"{layers}, or leave the lane assisted out."
                )
            if len(request.prompt_ids) < layers:
                raise InvalidInput(
                    f"The prompt has fewer tokens than the target has MTP layers ({layers}), and transformers fails "
                    "then; write a longer one, or leave the lane assisted out."
                )
            draft_with(target, partial(LoadedMtp, model))
            return Assistance(target, {"use_mtp": True})
    raise AssertionError("cannot_assist refuses the others")


def cannot_assist(pair: Pair) -> str | None:
    """Why transformers' assisted generation cannot run this pair; None if it can."""
    draft = pair.draft
    if isinstance(draft, SyntheticDraft):
        return "transformers' assisted generation cannot use a synthetic draft."
    if not isinstance(draft, (DraftModel, PromptLookup, EarlyExit, Mtp)):
        return "transformers' assisted generation cannot draft in this way."
    if is_stateful(pair.target):
        return "transformers' assisted generation does not take targets with recurrent state."
    if isinstance(draft, EarlyExit) and slides(pair.target.config):
        return "transformers' early exit fails with targets whose layers do not all attend to the whole text."
    models = pair.models(drafting=True)
    if any(model.device.type == "meta" for model in models):
        return (
            "transformers' assisted generation does not find the device of a model whose first weights are offloaded."
        )
    if isinstance(draft, DraftModel):
        rows = [model.config.get_text_config(decoder=True).vocab_size for model in models]
        if draft.own_tokenizer and rows[0] == rows[1]:
            return (
                f"Target and draft have different tokenizers and {rows[0]} vocabulary rows each; transformers' "
                "assisted generation takes that for one tokenizer."
            )
        if not draft.own_tokenizer and rows[0] != rows[1]:
            return (
                f"The target has {rows[0]} vocabulary rows and the draft {rows[1]}; transformers' assisted generation "
                "treats them as two tokenizers. The lane speculative handles the padding."
            )
    return None


def slides(config: Any) -> bool:
    """Whether some layers of a model attend to only a part of the text, or are no attention layers."""
    text = config.get_text_config(decoder=True)
    kinds = getattr(text, "layer_types", None)
    return any(kind != "full_attention" for kind in kinds) if kinds else bool(getattr(text, "sliding_window", None))


def _whole_twin(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with its own configs and modules on the way to the layers, so that changes to them stay in the copy."""
    return first_layers(model, model.config.get_text_config(decoder=True).num_hidden_layers)


def with_fixed_gamma(draft: PreTrainedModel, gamma: int) -> PreTrainedModel:
    """The same weights in another object, whose generation config fixes the draft length and nothing else.

    Assisted generation reads the length from there: ``num_assistant_tokens`` has no effect as an argument of
    ``generate``. By default the length changes during the call, a confidence threshold ends drafts early, and the
    draft's own config changes what it drafts. The draft itself is not changed, because another lane may be reading it.
    """
    fixed = GenerationConfig(
        num_assistant_tokens=gamma,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
        pad_token_id=draft.generation_config.pad_token_id,
    )
    return with_config(draft, fixed)


def with_config(model: PreTrainedModel, config: GenerationConfig) -> PreTrainedModel:
    """The same weights in another object with another generation config.

    ``generate`` fills in the model's own config, and checks the result before it reads its arguments. It fails where
    the config and the arguments contradict each other (``num_return_sequences`` 3 and greedy decoding, for example).
    """
    twin = copy.copy(model)
    copy_compiled(model, twin)
    twin.generation_config = config
    return twin
