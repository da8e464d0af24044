"""Will these two go together, and is it likely to pay?

Judged from configurations, tokenizers and the headers of the weights alone: nothing large is fetched or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from transformers import DynamicCache

from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.drafters.translation import Translation
from specdec.errors import LoadFailed
from specdec.models.compatibility import tokenizer_difference
from specdec.models.loading import PairPlan, Part, must_spread
from specdec.models.memory import free_bytes, gigabytes
from specdec.passes.context import context_of

Level = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One plain verdict about a pair."""

    level: Level
    topic: str
    sentence: str


def check(plan: PairPlan) -> list[Finding]:
    """Everything worth knowing about a pair before its weights are here."""
    difference = None
    if isinstance(plan.draft, Part):
        difference = tokenizer_difference(plan.target.tokenizer, plan.draft.tokenizer)
    # A draft with a tokenizer of its own counts in other tokens: its rows and its context bind nobody.
    parts = [plan.target] if difference else plan.parts
    return [
        *_tokenizers(plan, difference),
        *_rows(parts),
        *_context(parts),
        *_cost(plan),
        *_memory(plan),
        *_cache(plan),
        *_chat(plan),
        *_extra_layers(plan),
    ]


def _text(part: Part) -> Any:
    return part.config.get_text_config(decoder=True)


def _tokenizers(plan: PairPlan, difference: str | None) -> Iterator[Finding]:
    if not isinstance(plan.draft, Part):
        return
    if difference is None:
        yield Finding("good", "Tokenizer", "One tokenizer: each guess is a token of the target's.")
        return
    shared = len(Translation(plan.target.tokenizer, plan.draft.tokenizer).shared)
    yield Finding(
        "note" if shared else "bad",
        "Tokenizer",
        f"Two tokenizers ({difference}) with {shared:,} tokens in common. The draft works in its own vocabulary and "
        "its text is translated; fewer guesses are kept than with one tokenizer.",
    )


def _rows(parts: list[Part]) -> Iterator[Finding]:
    """Vocabulary rows, padding included."""
    rows = [_text(part).vocab_size for part in parts]
    if len(rows) == 2 and rows[0] != rows[1]:
        yield Finding(
            "good", "Vocabulary", f"{rows[0]:,} rows and {rows[1]:,}: the smaller is padded, nothing is lost."
        )
    else:
        known = len(parts[0].tokenizer)
        padding = f", {rows[0] - known:,} of them padding" if rows[0] > known else ""
        yield Finding("good", "Vocabulary", f"{rows[0]:,} rows{padding}.")


def _context(parts: list[Part]) -> Iterator[Finding]:
    bounds = [context_of(part.config) for part in parts]
    smallest = min((bound for bound in bounds if bound), default=None)
    if smallest is None:
        yield Finding("good", "Context", "No bound.")
    elif bounds[0] == smallest:
        yield Finding("good", "Context", f"{smallest:,} tokens.")
    else:
        target = f"{bounds[0]:,}" if bounds[0] else "unbounded"
        yield Finding("note", "Context", f"{smallest:,} tokens, the draft's; the target alone: {target}.")


def _cost(plan: PairPlan) -> Iterator[Finding]:
    """What layers and parameters predict for the cost coefficient c."""
    layers = _text(plan.target).num_hidden_layers
    if isinstance(plan.draft, PromptLookup):
        yield Finding("good", "Cost", "Prompt lookup costs next to nothing; it pays where the text copies its prompt.")
        return
    if isinstance(plan.draft, EarlyExit):
        share = plan.draft.layers / layers
        yield Finding(
            "note" if share > 0.3 else "good",
            "Cost",
            f"The first {plan.draft.layers} of {layers} layers: a draft pass costs about {share:.2f} of a target pass. "
            "Few targets write well from their early layers unless trained to.",
        )
        return
    if plan.draft is None:
        yield Finding("note", "Cost", "No draft: plain decoding only (γ 0).")
        return
    by_layers = _text(plan.draft).num_hidden_layers / layers
    by_size = plan.draft.bytes / plan.target.bytes
    low, high = sorted((by_layers, by_size))
    # At alpha 0.7 and c 0.5 the best length is 1, and 1.7 / 1.5 = 1.13 the most it gains (Leviathan et al. 2211.17192,
    # Theorem 3.8): before what checking two tokens costs over one, and the loop.
    level = "good" if high < 0.25 else "note" if low < 0.5 else "bad"
    advice = {
        "good": "Cheap drafting.",
        "note": "Measure it: small models are bound by their layers, large ones by their bytes.",
        "bad": "Such a draft can hardly pay: choose a shallower and smaller one.",
    }[level]
    yield Finding(
        level,
        "Cost",
        f"A draft pass should cost {by_layers:.2f} of a target pass by layers "
        f"({_text(plan.draft).num_hidden_layers} of {layers}) and {by_size:.2f} by bytes "
        f"({_millions(plan.draft)} of {_millions(plan.target)} million parameters). {advice}",
    )


def _millions(part: Part) -> str:
    millions = part.parameters / 1e6
    return f"{millions:,.0f}" if millions >= 100 else f"{millions:.1f}"


def _memory(plan: PairPlan) -> Iterator[Finding]:
    sentence = f"{gigabytes(plan.bytes)} for the weights; {gigabytes(free_bytes(plan.device))} free on {plan.device}."
    try:
        spread = must_spread(plan)
    except LoadFailed as error:
        yield Finding("bad", "Memory", str(error))
        return
    more = " The target is spread over all devices, which is slower." if spread else ""
    yield Finding("note" if spread else "good", "Memory", sentence + more)


def _cache(plan: PairPlan) -> Iterator[Finding]:
    kinds = sorted({_kind(layer) for part in plan.parts for layer in DynamicCache(config=_text(part)).layers})
    yield Finding("good", "Cache", f"{' and '.join(kinds)}: can be rolled back after a rejected guess.".capitalize())


def _kind(layer: Any) -> str:
    name = type(layer).__name__
    if "Sliding" in name:
        return "sliding windows"
    return "full attention" if name == "DynamicLayer" else "convolutions"


def _chat(plan: PairPlan) -> Iterator[Finding]:
    if getattr(plan.target.tokenizer, "chat_template", None):
        yield Finding("good", "Chat", "The target has a chat template.")
    else:
        yield Finding("note", "Chat", "A base model: it continues text; it has no chat template.")


def _extra_layers(plan: PairPlan) -> Iterator[Finding]:
    """Layers for multi-token prediction, which transformers leaves out."""
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    count = next((value for name in names if (value := getattr(_text(plan.target), name, None))), None)
    if count:
        yield Finding("note", "MTP", f"The target has {count} layer(s) for multi-token prediction; they are not used.")
