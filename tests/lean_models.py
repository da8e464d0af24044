"""Tiny models of the families that have a lean forward, and how far its logits are from those of ``forward``."""

from __future__ import annotations

import copy

import torch
from fakes import prompt_of, shared_tiny
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, SmolLM3Config

from specdec.forward import lean_check
from specdec.forward.lean import LeanForward, LeanModel
from specdec.forward.runner import Runner

CONTEXT = 2100
LAST_BIT, CLOSE = 0.0, 1e-5  # of the range of the logits


def smollm3(**settings) -> PreTrainedModel:
    """One layer in four without rotary angles, as the family has it."""
    torch.manual_seed(0)
    config = SmolLM3Config(
        vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, initializer_range=0.3, pad_token_id=None,
        bos_token_id=None, eos_token_id=None, **settings,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


def with_config(family: str, **settings) -> PreTrainedModel:
    """A tiny model of ``family`` with other settings in its config."""
    config = copy.deepcopy(shared_tiny(family, context=CONTEXT).config)
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}
MODELS = {
    "llama": lambda: with_config("llama"),
    "llama with biases and one matrix for both ends": lambda: with_config(
        "llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama 3": lambda: with_config("llama", rope_parameters=LLAMA3),
    "llama with yarn": lambda: with_config("llama", rope_parameters=YARN),
    "qwen2": lambda: with_config("qwen2"),
    "qwen3": lambda: with_config("qwen3"),
    "mistral": lambda: with_config("mistral", sliding_window=None),
    "smollm3": smollm3,
    "phi3": lambda: with_config("phi3"),
    "phi3 with half of a head rotated": lambda: with_config(
        "phi3", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    ),
    "gpt2": lambda: with_config("gpt2"),
    "gpt2 with scales by layer": lambda: with_config("gpt2", scale_attn_by_inverse_layer_idx=True),
    "gpt_neox": lambda: with_config("gpt_neox"),
    "gpt_neox in sequence": lambda: with_config("gpt_neox", use_parallel_residual=False),
}
WINDOWS = {
    "mistral with windows": lambda: with_config("mistral", sliding_window=8),
    "phi3 with windows": lambda: with_config("phi3", sliding_window=8),
    "qwen2 with windows in some layers": lambda: with_config(
        "qwen2", use_sliding_window=True, sliding_window=8, layer_types=["full_attention", "sliding_attention"]
    ),
    "smollm3 with windows": lambda: smollm3(use_sliding_window=True, sliding_window=8),
}

# A head of 12 has no whole vector, one of 24 has a rest after it, and the other widths have one too.
UNEVEN = {
    "llama of uneven widths": lambda: with_config(
        "llama", hidden_size=60, intermediate_size=83, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
        vocab_size=301,
    ),
    "gpt_neox of uneven widths": lambda: with_config("gpt_neox", hidden_size=72, num_attention_heads=3),
}  # fmt: skip
# For tests of passes that read copies of the weights.
COPIED = {
    **UNEVEN,
    "llama with biases": lambda: with_config("llama", attention_bias=True, mlp_bias=True),
    "qwen3": MODELS["qwen3"],
    "phi3 with windows": WINDOWS["phi3 with windows"],
}


@torch.inference_mode()
def logits(lean: LeanModel, ids: torch.Tensor, rows: int, context: int = 0) -> torch.Tensor:
    """The logits of all ids after the first ``context``, read so many at a time."""
    buffer, parts = lean.new_buffer(), [context] if context else []
    parts += [rows] * ((len(ids) - context) // rows)
    found, start = [], 0
    for part in ids.split([*parts, len(ids) - sum(parts)]):
        if len(part):
            found.append(lean.forward(part, buffer, start, None))
        start += len(part)
    return torch.cat(found)[context:]


def differences_at(model: PreTrainedModel, contexts: tuple[int, ...], counts: tuple[int, ...]) -> list[float]:
    """The difference of logits as a share of their range, in a pass of each of ``counts`` rows after each context.

    The lean model rolls back between two passes; ``forward`` goes on from a copy of its cache.
    """
    ids, cache, runner = prompt_of(contexts[-1] + max(counts)), DynamicCache(config=model.config), Runner(model)
    assert isinstance(runner._passes, LeanForward), lean_check.lean_model(model)
    found, read = [], 0
    with torch.inference_mode():
        for context in contexts:
            if context > read:
                model(input_ids=ids[None, read:context], past_key_values=cache, logits_to_keep=1)
                runner.forward(ids[read:context], 1)
                read = context
            for count in counts:
                fed = ids[context : context + count]
                own = model(input_ids=fed[None], past_key_values=copy.deepcopy(cache)).logits[0].float()
                found.append(float((own - runner.forward(fed)).abs().max() / (own.max() - own.min())))
                runner.crop_to(context)
    return found
