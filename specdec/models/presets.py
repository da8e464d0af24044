"""Pairs that are known to go together, with what they need and what they are good for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Hub ids (None: the embedded pair, which needs no network) and parameters as their model cards give them."""

    name: str
    target: str | None
    draft: str | None
    target_parameters: float
    draft_parameters: float
    good_for: str
    licensed: bool = False  # its terms must be accepted on the hub first

    def needs_bytes(self, bytes_per_parameter: int) -> float:
        """Memory for both models' weights."""
        return (self.target_parameters + self.draft_parameters) * bytes_per_parameter


PRESETS = (
    Preset("embedded", None, None, 9.6e6, 1.7e6, "a first look on any machine, without a network"),
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
        "the same with a shallower draft",
    ),
    Preset(
        "gpt2-xl <- distilgpt2", "openai-community/gpt2-xl", "distilbert/distilgpt2", 1558e6, 82e6,
        "a deep target with a shallow draft: cheap drafting",
    ),
    Preset(
        "pythia-1.4b <- 160m", "EleutherAI/pythia-1.4b-deduped", "EleutherAI/pythia-160m-deduped", 1415e6, 162e6,
        "one family, trained on the same text in the same order",
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
)  # fmt: skip
