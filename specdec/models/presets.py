"""Pairs that are known to work together, with their needs and uses, and the shapes of their models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """Hub ids (None: the embedded pair, which needs no network) and numbers of parameters, from their model cards.

    ``unchecked``: the ids and sizes come from documents; no config could be read. The pair check reads the real ones
    before anything is fetched. ``layers``: of the target and of the draft, where both ship with the package.
    """

    name: str
    target: str | None
    draft: str | None
    target_parameters: float
    draft_parameters: float
    good_for: str
    licensed: bool = False  # its terms must be accepted on the hub first
    unchecked: bool = False
    layers: tuple[int, int] | None = None

    def needs_bytes(self, bytes_per_parameter: int) -> float:
        """Bytes for the weights of both models."""
        return (self.target_parameters + self.draft_parameters) * bytes_per_parameter


PRESETS = (
    Preset(
        "embedded", None, None, 9.6e6, 1.7e6, "a first look on any machine, without a network", layers=(20, 2),
    ),
    Preset(
        "embedded <- EAGLE-3 head", None, "eagle3:embedded", 9.6e6, 1.5e6,
        "seeing how a head drafts, without a network", layers=(20, 1),
    ),
    Preset(
        "gpt2-medium <- gpt2", "openai-community/gpt2-medium", "openai-community/gpt2", 355e6, 124e6,
        "a CPU; English prose",
    ),
    Preset(
        "gpt2-large <- gpt2", "openai-community/gpt2-large", "openai-community/gpt2", 774e6, 124e6,
        "a CPU with patience; English prose",
    ),
    Preset(
        "gpt2-large <- distilgpt2", "openai-community/gpt2-large", "distilbert/distilgpt2", 774e6, 82e6,
        "a CPU with patience; a draft with half the layers of gpt2",
    ),
    Preset(
        "gpt2-xl <- distilgpt2", "openai-community/gpt2-xl", "distilbert/distilgpt2", 1558e6, 82e6,
        "a CPU with patience; a deep target whose draft is cheap",
    ),
    Preset(
        "pythia-1.4b <- 160m", "EleutherAI/pythia-1.4b-deduped", "EleutherAI/pythia-160m-deduped", 1415e6, 162e6,
        "a strong CPU or a small GPU; two models trained on the same text in the same order",
    ),
    Preset(
        "pythia-12b <- 70m", "EleutherAI/pythia-12b", "EleutherAI/pythia-70m", 11846e6, 70e6,
        "a large GPU; a draft 170 times smaller",
    ),
    Preset(
        "Qwen2.5-7B <- 0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-0.5B", 7616e6, 494e6,
        "a GPU of 24 GB; text and code, many languages",
    ),
    Preset(
        "Llama-2-13b <- TinyLlama", "meta-llama/Llama-2-13b-hf", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", 13016e6, 1100e6,
        "a GPU of 40 GB; two makers, one tokenizer", licensed=True,
    ),
    Preset(
        "Qwen3-4B <- 0.6B", "Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B", 4022e6, 596e6, "a GPU of 16 GB; chat and code",
    ),
    Preset(
        "SmolLM2-1.7B <- 135M", "HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", 1711e6,
        135e6, "a small GPU or a strong CPU; chat",
    ),
    Preset(
        "Qwen3.5-4B <- 0.8B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-0.8B", 4206e6, 752e6,
        "a GPU of 16 GB; hybrid models: three in four layers keep a recurrent state", unchecked=True,
    ),
    Preset(
        "Qwen3.5-4B <- MTP", "Qwen/Qwen3.5-4B", "mtp", 4206e6, 120e6,
        "a GPU of 16 GB; a layer of the checkpoint itself guesses", unchecked=True,
    ),
    Preset(
        "Qwen3-8B <- DFlash", "Qwen/Qwen3-8B", "dflash:z-lab/Qwen3-8B-DFlash-b16", 8191e6, 1050e6,
        "a GPU of 24 GB; a block of guesses in one pass", unchecked=True,
    ),
    Preset(
        "gemma-4-E4B <- assistant", "google/gemma-4-E4B-it", "gemma4-assistant:google/gemma-4-E4B-it-assistant", 8e9,
        79e6, "a GPU of 24 GB; an assistant that reads the target's keys and values", unchecked=True,
    ),
    Preset(
        "Qwen3-1.7B <- EAGLE-3", "Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3", 1.7e9, 0.1e9,
        "a GPU of 8 GB; a head in place of a draft model", unchecked=True,
    ),
    Preset(
        "Qwen3-32B <- EAGLE-3", "Qwen/Qwen3-32B", "RedHatAI/Qwen3-32B-speculator.eagle3", 32e9, 1e9,
        "a GPU of 80 GB; a head in the speculators format", unchecked=True,
    ),
    Preset(
        "gemma-3-4b <- 270m", "google/gemma-3-4b-it", "google/gemma-3-270m-it", 3880e6, 268e6,
        "a GPU of 16 GB; sliding windows, many languages", licensed=True, unchecked=True,
    ),
)  # fmt: skip


def _qwen(**sizes: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e6}
    return {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "rope_parameters": rope, **sizes}


def _qwen35(**sizes: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    shared = {"model_type": "qwen3_5_text", "max_position_embeddings": 262144, "tie_word_embeddings": True}
    return shared | {"rope_parameters": rope, **sizes}


# The configs of the presets' models, and of a pair that was made for tests on a CPU: the fields that differ from the
# defaults of their class. ``specdec bench --shape`` builds them with random weights.
SHAPES: dict[str, dict[str, Any]] = {
    "distilgpt2": {"model_type": "gpt2", "n_layer": 6},
    "gpt2": {"model_type": "gpt2"},
    "gpt2-medium": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "pythia-70m": {
        "model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
        "num_attention_heads": 8, "vocab_size": 50304,
    },
    "pythia-160m": {
        "model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 50304,
    },
    "pythia-1.4b": {
        "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 50304,
    },
    "pythia-12b": {
        "model_type": "gpt_neox", "hidden_size": 5120, "intermediate_size": 20480, "num_hidden_layers": 36,
        "num_attention_heads": 40, "vocab_size": 50688,
    },
    "qwen2.5-7b": _qwen(
        model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064, max_position_embeddings=131072,
    ),
    "qwen2.5-0.5b": _qwen(
        model_type="qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
    ),
    "qwen3-4b": _qwen(
        model_type="qwen3", hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960,
        tie_word_embeddings=True,
    ),
    "qwen3-0.6b": _qwen(
        model_type="qwen3", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, max_position_embeddings=40960,
        tie_word_embeddings=True,
    ),
    "llama-2-13b": {
        "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
        "num_attention_heads": 40, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    },
    "tinyllama-1.1b": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    },
    "smollm2-1.7b": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 130000.0}, "tie_word_embeddings": True,
    },
    "smollm2-135m": {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "tie_word_embeddings": True,
    },
    # Sizes as published; the language models have 4,206, 752, 3,880 and 268 million parameters.
    "qwen3.5-4b": _qwen35(
        hidden_size=2560, intermediate_size=9216, num_hidden_layers=32, num_attention_heads=16, num_key_value_heads=4,
        linear_num_value_heads=32,
    ),
    "qwen3.5-0.8b": _qwen35(
        hidden_size=1024, intermediate_size=3584, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
        linear_num_value_heads=16,
    ),
    "gemma-3-4b": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "sliding_window": 1024,
    },
    "gemma-3-270m": {
        "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 262144, "sliding_window": 512,
        "max_position_embeddings": 32768,
    },
    "llama-500m": {
        "model_type": "llama", "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16,
        "num_attention_heads": 24, "num_key_value_heads": 8,
    },
    "llama-50m": {
        "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
}  # fmt: skip
