"""Drafts that others have published for a target, by the target's hub id.

The ids come from the documents that ``source`` names. None of these checkpoints was tried here: the pair check reads
their configs before anything is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedDraft:
    """A draft for one target.

    target  the target's hub id
    kind    the way to draft: a ``kind`` of ``drafters.registry.METHODS``
    name    the draft's hub id
    source  the document in which the pair was read
    parallel  whether an EAGLE-3 head makes all guesses in one pass (P-EAGLE)
    """

    target: str
    kind: str
    name: str
    source: str
    parallel: bool = False

    @property
    def text(self) -> str:
        """What ``--draft`` takes."""
        return self.name if self.kind == "model" else f"{self.kind}:{self.name}"


def published_for(target: str) -> list[PublishedDraft]:
    """The drafts for a target of this hub id, whatever its capitals; an empty list for a folder or a file."""
    return [draft for draft in PUBLISHED if draft.target.lower() == target.lower()]


def _of(source: str, kind: str, pairs: dict[str, str], parallel: bool = False) -> tuple[PublishedDraft, ...]:
    return tuple(PublishedDraft(target, kind, name, source, parallel) for target, name in pairs.items())


_DFLASH = {
    "Qwen/Qwen3-4B": "z-lab/Qwen3-4B-DFlash-b16",
    "Qwen/Qwen3-8B": "z-lab/Qwen3-8B-DFlash-b16",
    "Qwen/Qwen3.5-4B": "z-lab/Qwen3.5-4B-DFlash",
    "Qwen/Qwen3.5-9B": "z-lab/Qwen3.5-9B-DFlash",
    "Qwen/Qwen3.5-27B": "z-lab/Qwen3.5-27B-DFlash",
    "Qwen/Qwen3.5-35B-A3B": "z-lab/Qwen3.5-35B-A3B-DFlash",
    "Qwen/Qwen3.5-122B-A10B": "z-lab/Qwen3.5-122B-A10B-DFlash",
    "Qwen/Qwen3.6-27B": "z-lab/Qwen3.6-27B-DFlash",
    "Qwen/Qwen3.6-35B-A3B": "z-lab/Qwen3.6-35B-A3B-DFlash",
    "Qwen/Qwen3-Coder-Next": "z-lab/Qwen3-Coder-Next-DFlash",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "z-lab/Qwen3-Coder-30B-A3B-DFlash",
    "openai/gpt-oss-20b": "z-lab/gpt-oss-20b-DFlash",
    "openai/gpt-oss-120b": "z-lab/gpt-oss-120b-DFlash",
    "google/gemma-4-26B-A4B-it": "z-lab/gemma-4-26B-A4B-it-DFlash",
    "google/gemma-4-31B-it": "z-lab/gemma-4-31B-it-DFlash",
    "meta-llama/Llama-3.1-8B-Instruct": "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
}
_DSPARK = {
    "Qwen/Qwen3-4B": "deepseek-ai/dspark_qwen3_4b_block7",
    "Qwen/Qwen3-8B": "deepseek-ai/dspark_qwen3_8b_block7",
    "Qwen/Qwen3-14B": "deepseek-ai/dspark_qwen3_14b_block7",
}
_DEEPSPEC_DFLASH = {"Qwen/Qwen3-14B": "deepseek-ai/dflash_qwen3_14b_block7"}
_SPECULATORS_DFLASH = {"google/gemma-4-31B-it": "RedHatAI/gemma-4-31B-it-speculator.dflash"}
_ASSISTANTS = {
    f"google/gemma-4-{size}-it": f"google/gemma-4-{size}-it-assistant" for size in ("E2B", "E4B", "26B-A4B", "31B")
}
_RED_HAT = {
    "Qwen/Qwen3-8B": "RedHatAI/Qwen3-8B-speculator.eagle3",
    "Qwen/Qwen3-32B": "RedHatAI/Qwen3-32B-speculator.eagle3",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3",
    "openai/gpt-oss-20b": "RedHatAI/gpt-oss-20b-speculator.eagle3",
}
_PARALLEL = {
    "openai/gpt-oss-20b": "amazon/gpt-oss-20b-p-eagle",
    "Qwen/Qwen3-8B": "RedHatAI/Qwen3-8B-speculator.peagle",
}
_OTHERS = {
    "meta-llama/Llama-3.3-70B-Instruct": "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge",
    "meta-llama/Llama-3.1-8B-Instruct": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
    "Qwen/Qwen3-1.7B": "AngelSlim/Qwen3-1.7B_eagle3",
}
_SMALLER = {
    "Qwen/Qwen3-4B": "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-8B": "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-14B": "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-32B": "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3.5-4B": "Qwen/Qwen3.5-0.8B",
    "Qwen/Qwen3.5-9B": "Qwen/Qwen3.5-0.8B",
    "Qwen/Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-14B-Instruct": "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-32B-Instruct": "Qwen/Qwen2.5-0.5B-Instruct",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "google/gemma-3-4b-it": "google/gemma-3-270m-it",
    "google/gemma-3-12b-it": "google/gemma-3-270m-it",
    "google/gemma-3-27b-it": "google/gemma-3-270m-it",
}

PUBLISHED = (
    *_of("the DFlash repository's list", "dflash", _DFLASH),
    *_of("DeepSpec's README", "dflash", _DEEPSPEC_DFLASH),
    *_of("DeepSpec's README", "dspark", _DSPARK),
    *_of("speculators' documentation", "dflash", _SPECULATORS_DFLASH),
    *_of("transformers' documentation", "gemma4-assistant", _ASSISTANTS),
    *_of("Red Hat's model cards", "eagle3", _RED_HAT),
    *_of("their model cards", "eagle3", _PARALLEL, parallel=True),
    *_of("their model cards", "eagle3", _OTHERS),
    *_of("a smaller model of the same family", "model", _SMALLER),
)
