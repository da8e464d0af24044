"""How vLLM, SGLang and llama.cpp are told to draft in each way: settings and flags, by their own documents."""

from __future__ import annotations

import json
import shlex
from typing import Any

VLLM, SGLANG, LLAMACPP = "vLLM 0.33", "SGLang 0.5.23", "llama.cpp b11434"


def vllm_config(
    kind: str,
    name: str,
    length: int,
    *,
    apart: bool = False,
    sampled: bool = False,
    ngram: tuple[int, int] = (1, 3),
    parallel: bool = False,
) -> dict[str, Any] | None:
    """vLLM's ``speculative_config``; empty without a draft, None where it has no such way.

    ``kind`` and ``name``: the way to draft and its checkpoint. ``length``: draft tokens a round. ``apart``: the draft
    has a tokenizer of its own. ``ngram``: the shortest and the longest match of prompt lookup.
    ``parallel``: an EAGLE-3 head makes all guesses in one pass (P-EAGLE).
    """
    count = {"num_speculative_tokens": length}
    model: dict[str, Any] = {"method": "draft_model", "model": name, **count}
    if apart:
        model["use_heterogeneous_vocab"] = True
    elif sampled:
        model["draft_sample_method"] = "probabilistic"
    shortest, longest = ngram
    lookup = {"method": "ngram", **count, "prompt_lookup_max": longest, "prompt_lookup_min": shortest}
    head = {"method": "eagle3", "model": name, **count} | ({"parallel_drafting": True} if parallel else {})
    configs: dict[str, dict[str, Any]] = {
        "none": {}, "model": model, "prompt-lookup": lookup, "eagle3": head,
        "suffix": {"method": "suffix", **count}, "mtp": {"method": "mtp", **count},
        "dflash": {"method": "dflash", "model": name, **count}, "dspark": {"method": "dspark", "model": name, **count},
        "gemma4-assistant": {"method": "mtp", "model": name, **count},
    }  # fmt: skip
    return configs.get(kind)


def sglang_options(kind: str, name: str, length: int) -> list[str] | None:
    """SGLang's flags; empty without a draft, None where it has no such way."""
    verified = f"--speculative-num-draft-tokens {length + 1}"  # counts the token before the draft
    chain = f"--speculative-num-steps {length} --speculative-eagle-topk 1 {verified}"
    path = f"--speculative-draft-model-path {shlex.quote(name)}"
    options = {
        "none": [],
        "prompt-lookup": ["--speculative-algorithm NGRAM", verified, "--speculative-ngram-max-bfs-breadth 1"],
        "model": ["--speculative-algorithm STANDALONE", path, chain],
        "eagle3": ["--speculative-algorithm EAGLE3", path, chain],
        "mtp": ["--speculative-algorithm EAGLE", chain],
        "dflash": ["--speculative-algorithm DFLASH", path, verified],
        "dspark": ["--speculative-algorithm DSPARK", path, f"--speculative-dspark-block-size {length}"],
        "gemma4-assistant": ["--speculative-algorithm NEXTN", path, chain],  # known by its config
    }
    return options.get(kind)


def llamacpp_options(kind: str, length: int, sampled: bool = False) -> list[str] | None:
    """llama.cpp's flags, with the draft in ``draft.gguf``; empty without a draft, None where it has no such way."""
    sizes = f"--spec-ngram-simple-size-n {lookup_match(length)} --spec-ngram-simple-size-m {length}"
    options = {
        "none": [],
        "prompt-lookup": [f"--spec-type ngram-simple {sizes}"],
        "model": [
            f"-md draft.gguf --spec-type draft-simple --spec-draft-n-max {length}",
            *(["--spec-draft-sampling probabilistic"] if sampled else []),
        ],
        "mtp": [f"--spec-type draft-mtp --spec-draft-n-max {length}"],
    }
    return options.get(kind)


def lookup_match(length: int) -> int:
    """The match that llama.cpp looks for; with one longer than the draft, nothing is drafted."""
    return min(3, length)


def serving(kind: str, name: str, length: int, parallel: bool = False) -> dict[str, str]:
    """The flags of each engine that can draft in this way, greedily, by the engine's name and version."""
    config = vllm_config(kind, name, length, parallel=parallel)
    found = {
        VLLM: f"--speculative-config {shlex.quote(json.dumps(config))}" if config else "",
        SGLANG: "" if parallel else " ".join(sglang_options(kind, name, length) or ()),
        LLAMACPP: " ".join(llamacpp_options(kind, length) or ()),
    }
    return {engine: flags for engine, flags in found.items() if flags}
