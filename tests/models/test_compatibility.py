"""Which models can be decoded speculatively, judged by their configs, and how long their texts may be."""

from __future__ import annotations

import pytest
from all_types import CONTEXT, PROMPT, VOCABULARY, outcome_of, small_config, small_model
from fakes import prompt_of
from pairwise import few
from transformers import CONFIG_MAPPING, AutoConfig, Gemma4ForCausalLM, Gemma4TextConfig

import specdec
from specdec.forward.model_info import context_length
from specdec.models.compatibility import refuse_unsuitable

REFUSED = {
    "gemma3_text": ({"use_bidirectional_attention": True}, "both directions"),
    "gemma4_text": ({"use_bidirectional_attention": "all"}, "both directions"),
    "prophetnet": ({}, "one token per pass"),
    "blt": ({}, "patches"),
    "minimax": ({"layer_types": ["full_attention"] * 4}, "cache of its own"),
    "granitemoehybrid": ({"layer_types": ["mamba"] * 4}, "recurrent state"),
    "recurrent_gemma": ({}, "recurrent state"),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_type_that_cannot_be_decoded_speculatively_is_refused_by_its_config(model_type: str) -> None:
    changes, found = REFUSED[model_type]
    config = small_config(CONFIG_MAPPING[model_type], **changes)
    with pytest.raises(specdec.IncompatiblePair, match=found) as refusal:
        refuse_unsuitable(config)
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    few(
        [
            ("gemma3_text", {"use_bidirectional_attention": False}),
            ("granitemoehybrid", {"layer_types": ["attention"] * 4}),
            ("granitemoehybrid", {"layer_types": ["mamba", "attention"] * 2}),
            ("gemma4_text", {"use_bidirectional_attention": "vision"}),
        ],
        2,
    ),
)
def test_what_only_looks_unsuitable_equals_generate(model_type: str, changes: dict) -> None:
    outcome = outcome_of(model_type, **changes)
    assert outcome.kind == "equal", outcome


def test_leaving_git_early_is_refused() -> None:
    model = small_model(small_config(CONFIG_MAPPING["git"]))
    with pytest.raises(specdec.IncompatiblePair, match="Early exit does not work with GIT"):
        specdec.Pair(model, specdec.EarlyExit(2))
    assert outcome_of("git").kind == "equal"


@pytest.mark.parametrize("inputs", [0, 8])
def test_leaving_layers_that_share_keys_early_is_refused(inputs: int) -> None:
    """transformers refuses the config of such a view with an error of its own."""
    shared = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": ["full_attention"] * 4}
    sizes = {"vocab_size": 60, "hidden_size": 16, "hidden_size_per_layer_input": inputs}
    model = Gemma4ForCausalLM(Gemma4TextConfig(**shared | sizes, vocab_size_per_layer_input=60)).eval()
    for layers in (1, 2, 3):
        with pytest.raises(specdec.IncompatiblePair, match="whose last 2 layers read the keys and values of earlier"):
            specdec.Pair(model, specdec.EarlyExit(layers))


@pytest.mark.parametrize("model_type", ["gpt2", "dbrx", "mpt", "whisper", "roberta", "ctrl", "llama"])
def test_the_context_is_found_under_any_name(model_type: str) -> None:
    """A text may fill the context to the last token, and one token more is refused."""
    model = small_model(small_config(CONFIG_MAPPING[model_type]))
    assert context_length(model.config) == CONTEXT
    pair, prompt_ids = specdec.Pair(model), prompt_of(PROMPT, VOCABULARY)
    for new in (CONTEXT - PROMPT, CONTEXT - PROMPT + 1):
        params = specdec.SamplingParams(max_new_tokens=new)
        if new > CONTEXT - PROMPT:
            with pytest.raises(specdec.InvalidInput, match=f"context holds {CONTEXT}"):
                specdec.speculative(pair, prompt_ids, gamma=0, params=params)
        else:
            assert len(specdec.collect(specdec.speculative(pair, prompt_ids, gamma=0, params=params)).token_ids) == new


def test_a_type_without_a_bound_has_none() -> None:
    for model_type in ("bloom", "xlnet"):
        assert context_length(AutoConfig.for_model(model_type)) is None
