"""The private names of transformers that specdec uses. No other module uses one, but ``models/gguf_private``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    CompileConfig,
    DynamicCache,
    GenerationConfig,
    PreTrainedModel,
    StopStringCriteria,
    modeling_layers,
)
from transformers.cache_utils import MtpCache
from transformers.generation.candidate_generator import MTPCandidateGenerator

from specdec.private import Package

_HF = Package("transformers")
_REFUSED = "_adjust_missing_and_unexpected_keys"
_HF.require(StopStringCriteria, "clean_tokenizer_vocab")


class MtpModel(modeling_layers.MtpModel):
    """transformers' class, which does not hand over the names of the weights that it leaves out, lacks, or cannot use.

    They are in ``unread``, ``missing`` and ``misshapen``, and transformers itself neither raises nor logs anything.
    transformers looks up by the class's name how weights are renamed, and does not where the class is not its own.
    """

    unread: frozenset[str]
    missing: frozenset[str]
    misshapen: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]  # the shape in the checkpoint, and the right one

    def is_custom_code(self) -> bool:
        return False

    @staticmethod
    def get_mtp_weights_regex(main_model: PreTrainedModel) -> re.Pattern[str]:
        """The names of the MTP weights. transformers counts a vision tower among them if it leaves out both."""
        theirs = modeling_layers.MtpModel.get_mtp_weights_regex(main_model).pattern
        return re.compile(rf"(?!.*visual\.)(?:{theirs})")

    def _adjust_missing_and_unexpected_keys(self, loading_info: Any) -> None:
        super()._adjust_missing_and_unexpected_keys(loading_info)
        self.unread, self.missing = frozenset(loading_info.unexpected_keys), frozenset(loading_info.missing_keys)
        self.misshapen = {key: (tuple(found), tuple(right)) for key, found, right in loading_info.mismatched_keys}
        for keys in (loading_info.unexpected_keys, loading_info.missing_keys, loading_info.mismatched_keys):
            keys.clear()


def read_mtp_layers(target: PreTrainedModel, device: torch.device) -> MtpModel:
    """The MTP layers in the checkpoint that the config of ``target`` names. Some weights may be missing."""
    _HF.require(modeling_layers.MtpModel, "is_custom_code", _REFUSED)
    return MtpModel.from_pretrained(target, device_map={"": device})


def mtp_logits(model: modeling_layers.MtpModel, states: torch.Tensor) -> torch.Tensor:
    """The logits (n, V) for states (n, H) of MTP layers, computed as the target's own head computes them."""
    return _HF.get(model, "_project_to_logits")(states)


class LoadedMtp(MTPCandidateGenerator):
    """transformers' generator of MTP drafts, with layers that were loaded before. Its own reads them in each call."""

    def __init__(
        self, model: modeling_layers.MtpModel, *, generation_config: GenerationConfig, logits_processor: Any, **_: Any
    ):
        self.model_kwargs_overrides = {"output_hidden_states": -1}
        self.num_mtp_layers, self.mtp_model = len(model.layers), model
        self.device = model.layers[0].eh_proj.weight.device
        self.mtp_cache = MtpCache(config=model.config)
        self.mtp_cache.activate_past_recording()
        self.do_sample, self.logits_processor = generation_config.do_sample, logits_processor
        self.is_main_model_prefill = True
        theirs = MTPCandidateGenerator.__init__.__code__.co_names  # the names that theirs would set
        for name in vars(self):
            if name not in theirs:
                raise _HF.changed(f"MTPCandidateGenerator.{name}")


class FewerStopTokens(StopStringCriteria):
    """transformers' stop strings, prepared from fewer tokens.

    transformers tries every token at every place of every stop string, for up to a minute with a large vocabulary. Here
    only those are tried that can be a part of a stop string or hold one, which gives the same answers.
    """

    def clean_tokenizer_vocab(
        self, tokenizer: Any, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        tokens, ids = super().clean_tokenizer_vocab(tokenizer, *args, **kwargs)
        stops = _HF.get(self, "_stop_strings_for_matching")
        begins = tuple({stop[:size] for stop in stops for size in range(1, len(stop) + 1)})
        ends = tuple({stop[-size:] for stop in stops for size in range(1, len(stop) + 1)})
        kept = [
            (token, token_id)
            for token, token_id in zip(tokens, ids, strict=True)
            if token.endswith(begins) or token.startswith(ends) or any(token in stop or stop in token for stop in stops)
        ]
        return tuple(token for token, _ in kept), tuple(token_id for _, token_id in kept)


def draft_with(target: PreTrainedModel, generator: Callable[..., Any]) -> None:
    """Let ``generate`` of ``target`` take its drafts from ``generator``, whatever draft it is asked for."""
    _HF.set(target, "_get_candidate_generator", generator)


def logits_processors(
    model: PreTrainedModel, config: GenerationConfig, prompt: int, device: torch.device
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The processors that ``generate`` of ``model`` applies with this config after ``prompt`` tokens, as a function.

    It takes ids (1, n) and logits (1, V) on ``device``, and returns logits (1, V).
    """
    return _HF.get(model, "_get_logits_processor")(config, input_ids_seq_length=prompt, device=device)


def keeps_logits(model: PreTrainedModel) -> bool:
    """Whether ``forward`` takes ``logits_to_keep``, and then computes no logits of other rows."""
    return _HF.get(model, "_supports_logits_to_keep")()


def attention_of(model: PreTrainedModel) -> str | None:
    """The name of the attention function of ``model``, such as "sdpa"."""
    return _HF.get(model.config, "_attn_implementation")


def is_stateful(model: PreTrainedModel | type[PreTrainedModel]) -> bool:
    """Whether transformers counts the model's class among those with recurrent state."""
    return _HF.get(model, "_is_stateful")


def replace_layers(cache: DynamicCache, layers: Sequence[Any]) -> None:
    """Give ``cache`` these layers. A pass then adds no others."""
    _HF.set(cache, "layers", layers)
    _HF.set(cache, "layer_class_to_replicate", None)


def compiled_everywhere() -> CompileConfig:
    """A config with which ``generate`` compiles passes over a static cache on every device, not on a GPU only."""
    config = CompileConfig()
    _HF.set(config, "_compile_all_devices", True)
    return config
