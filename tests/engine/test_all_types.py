"""Every causal language model of transformers writes the text of ``generate``, or is refused in a sentence.

Each writes a short text with a noisy draft, all of them with --full. --hours fills the context with every way to draft,
like ``python tests/all_types.py``, which prints a table.
"""

from __future__ import annotations

import pytest
from all_types import CONTEXT, PROMPT, TYPES, WAYS, outcome_of
from comparison import FULL, HOURS

# Types of which no small model can be built here.
NOT_BUILT = {"gemma3n": "timm"}
SLOW = ("dots3_note", "dots3_note_text")  # the layers with windows have separate sizes, which stay large
# Types that count positions from their padding id, unless they get positions.
FROM_PADDING = (
    "camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip


# Types with recurrent state that cannot be rolled back yet, with caches of their own, that read in both directions, or
# that are no models of their own. The small models of bamba and granitemoehybrid have no attention layer.
REFUSED = (
    "bailing_hybrid", "bamba", "blt", "cpmant", "deepseek_v4", "falcon_mamba", "gemma4_assistant",
    "gemma4_unified_assistant", "granitemoehybrid", "jamba", "kimi_linear", "mamba", "mamba2", "minimax", "moshi",
    "musicgen", "musicgen_melody", "openai-gpt", "prophetnet", "qwen4_exp", "qwen4_exp_text", "recurrent_gemma",
    "reformer", "rwkv", "xlm", "xlnet", "xlstm", "zamba", "zamba2", "zaya",
)  # fmt: skip


def chosen() -> list[str]:
    """All types; in the short suite those that are refused, and a third of the others."""
    known = sorted(name for name in TYPES if HOURS or name not in SLOW)
    decoded = [name for name in known if name not in REFUSED]
    return known if FULL else sorted([*REFUSED, *decoded[::3]])


@pytest.mark.parametrize("name", chosen())
def test_a_type_equals_generate_or_is_refused(name: str) -> None:
    outcome = outcome_of(name) if HOURS else outcome_of(name, new_tokens=10, ways=("a noisy draft",))
    if outcome.kind == "not built":
        assert NOT_BUILT.get(name, "nothing is allowed to be missing") in outcome.says, outcome
    else:
        assert outcome.kind in (("refused",) if name in REFUSED else ("equal", "near-tie")), outcome
    if outcome.kind == "refused":
        assert outcome.says.endswith(".") and "\n" not in outcome.says


@pytest.mark.parametrize("name", FROM_PADDING)
def test_positions_are_those_of_generate_up_to_the_end_of_the_context(name: str) -> None:
    outcome = outcome_of(name, new_tokens=CONTEXT - PROMPT, ways=tuple(WAYS)[:2])
    assert outcome.kind == "equal", outcome


def test_most_types_are_decoded() -> None:
    """Guards the tests above against refusing everything."""
    for name in ("llama", "gpt2", "mistral", "qwen3_moe", "gemma2", "phi3", "opt", "bloom", "lfm2", "deepseek_v3"):
        outcome = outcome_of(name, new_tokens=4, ways=("gamma 0",))
        assert outcome.kind == "equal", (name, outcome)
