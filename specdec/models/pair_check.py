"""Checks whether two models work together, and whether speculation is likely to pay with them.

It reads configs, tokenizers and the headers of the weights only. Nothing large is fetched or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from transformers import DynamicCache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from specdec.drafters.base import DraftMethod, Finding
from specdec.drafters.combined import guessing
from specdec.drafters.early_exit import EarlyExit
from specdec.drafters.mtp import Mtp
from specdec.drafters.prompt_lookup import PromptLookup
from specdec.errors import IncompatiblePair, LoadFailed
from specdec.forward.lean_check import undescribed
from specdec.forward.model_info import context_length
from specdec.forward.pass_size import experts_of, touched
from specdec.models.checkpoint import as_load_failed
from specdec.models.compatibility import recurrent_layers
from specdec.models.heads import require_mtp
from specdec.models.loading import PairPlan, Part, must_spread
from specdec.models.memory import gigabytes
from specdec.models.published import published_for
from specdec.models.unread import mtp_layers
from specdec.runtime.memory import free_bytes

CHECKED = 6  # tokens of a check at the default draft length


def check_pair(plan: PairPlan) -> list[Finding]:
    """What is known about a pair before its weights are loaded.

    Raises ``LoadFailed`` for a config that makes no sense.
    """
    with as_load_failed(" and ".join(part.checkpoint.name for part in plan.parts), "configuration"):
        return [
            *_drafting(plan),
            *_experts(plan.target),
            *_checking(plan),
            *_rows(plan.target),
            *_context(plan.target),
            *_memory(plan),
            *_cache(plan),
            *_passes(plan),
            *_chat(plan),
            *_extra_layers(plan),
            *_unpacked(plan),
        ]


def _drafting(plan: PairPlan) -> Iterator[Finding]:
    if plan.draft is None:
        yield Finding("note", "Cost", "No draft: plain decoding only (\u03b3 0). What could draft for this target:")
        yield from _suggested(plan.target)
    else:
        yield from plan.draft.findings(plan.target, plan.draft_parts)


def _suggested(target: Part) -> Iterator[Finding]:
    """What could draft: the text, the target's own layers, and drafts that others published for it."""
    for method in own_drafts(target):
        for found in method.findings(target, ()):
            yield Finding(found.level, "Draft", f"{method.describe()['text']}. {found.sentence}")
    for draft in published_for(target.checkpoint.name):
        yield Finding("note", "Draft", f"{draft.text}. It is from {draft.source} and was not tried here.")


def own_drafts(target: Part) -> list[DraftMethod]:
    """The ways to draft for a target that need no other checkpoint."""
    found: list[DraftMethod] = []
    for method in (PromptLookup(), Mtp(), EarlyExit(max(1, _text(target).num_hidden_layers // 8))):
        with suppress(IncompatiblePair):
            method.refuse(target.config)
            if not isinstance(method, Mtp) or _has_mtp(target):
                found.append(method)
    return found


def _text(part: Part) -> Any:
    return part.config.get_text_config(decoder=True)


def _experts(target: Part) -> Iterator[Finding]:
    """What checking several tokens costs a mixture of experts.

    Each token reads k of its E experts. If tokens chose them independently of each other, w tokens would read
    E (1 - (1 - k / E)^w) of them in the mean. Neighbours choose alike, so fewer are read.
    """
    found = experts_of(target.config)
    if found is None:
        return
    experts, chosen = found
    read = touched(experts, chosen, CHECKED)
    yield Finding(
        "note",
        "Experts",
        f"A token reads {chosen} of {experts} experts, and a check of {CHECKED} tokens up to about {read:.0f}. So a "
        "longer draft takes longer to check (v grows), and the best \u03b3 is shorter than for a dense target.",
    )


def _checking(plan: PairPlan) -> Iterator[Finding]:
    """What checking several tokens costs on a CPU, where arithmetic takes time and not only the reading of weights."""
    if plan.device.type == "cpu":
        yield Finding(
            "note",
            "Checking",
            "On a CPU a check of several tokens takes longer than a pass over one token, and v grows with \u03b3. Best "
            "gamma and \u03b3 auto measure it, and Details shows it after a race. docs/performance.md has values of "
            "one machine.",
        )


def _rows(target: Part) -> Iterator[Finding]:
    """The rows of the vocabulary, padding included."""
    rows, known = _text(target).vocab_size, len(target.tokenizer)
    padding = f", {rows - known:,} of them padding" if rows > known else ""
    yield Finding("good", "Vocabulary", f"{rows:,} rows{padding}.")


def _context(target: Part) -> Iterator[Finding]:
    bound = context_length(target.config)
    yield Finding("good", "Context", f"{bound:,} tokens." if bound else "No limit.")


def _memory(plan: PairPlan) -> Iterator[Finding]:
    free = free_bytes(plan.device)
    sentence = f"The pair needs {plan.needs}; {gigabytes(free)} are free on {plan.device}."
    try:
        spread = must_spread(plan)
    except LoadFailed as error:
        yield Finding("bad", "Memory", str(error))
        return
    more = ""
    if spread:
        more = " The target is spread over all devices, which is slower."
    elif plan.bytes > free:
        more = " The weights fit, but a call of the planned length does not; a shorter call may fit."
    yield Finding("note" if more else "good", "Memory", sentence + more)


def _cache(plan: PairPlan) -> Iterator[Finding]:
    kinds = {
        kind for part in plan.parts for layer in DynamicCache(config=_text(part)).layers if (kind := _kind(layer, part))
    }
    said = f"{' and '.join(sorted(kinds))}: can be rolled back after a rejected guess.".capitalize()
    yield Finding("good", "Cache", said)
    if recurrent_layers(plan.target.config):
        yield Finding(
            "note",
            "Recurrent state",
            "After a rejected guess the target goes back to the state at the start of the pass and reads what was kept "
            "again, so a rejection costs more than with attention alone.",
        )


def _kind(layer: Any, part: Part) -> str | None:
    name = type(layer).__name__
    if name == "DummyLayer":
        return None
    if name.startswith("LinearAttention"):
        return "recurrent state" if recurrent_layers(part.config) else "convolutions"
    if "Sliding" in name:
        return "sliding windows"
    return "full attention"


def _passes(plan: PairPlan) -> Iterator[Finding]:
    """Whether passes can use the lean forward. When a pair is loaded, its logits are compared with the model's own."""
    models = [part for part in plan.parts if part.head is None]
    reasons = [
        undescribed(MODEL_FOR_CAUSAL_LM_MAPPING[type(part.config)].__name__, part.config)
        or ("Its weights are packed." if part.bits else None)
        for part in models
    ]
    if not any(reasons):
        yield Finding(
            "good",
            "Passes",
            "By specdec's lean forward pass, if its logits agree with those of transformers when the pair is loaded.",
        )
    for part, reason in zip(models, reasons, strict=True):
        if reason:
            yield Finding("note", "Passes", f"{part.checkpoint.name} uses transformers' forward pass. {reason}")


def _chat(plan: PairPlan) -> Iterator[Finding]:
    if getattr(plan.target.tokenizer, "chat_template", None):
        yield Finding("good", "Chat", "The target has a chat template.")
    else:
        yield Finding("note", "Chat", "The target is a base model without a chat template: it continues text.")


def _has_mtp(target: Part) -> bool:
    """Whether the checkpoint has weights of MTP layers; a fine-tune often names them and leaves them out."""
    try:
        require_mtp(target.checkpoint.name, target.config, target.headers)
    except LoadFailed:
        return False
    return True


def _extra_layers(plan: PairPlan) -> Iterator[Finding]:
    """Layers for multi-token prediction, which transformers leaves out."""
    count = mtp_layers(_text(plan.target)) if _has_mtp(plan.target) else 0
    if count and not isinstance(guessing(plan.draft), Mtp):
        yield Finding(
            "note", "MTP", f"The target has {count} MTP layer{'s' * (count != 1)}; this draft does not use them."
        )


def _unpacked(plan: PairPlan) -> Iterator[Finding]:
    """The quantised types of GGUF files, whose weights are unpacked."""
    for part in plan.parts:
        if (file := part.checkpoint.gguf) is not None:
            dtype = str(part.dtype).removeprefix("torch.")
            packed = (
                f"{' and '.join(file.packed)} weights, unpacked to {dtype}" if file.packed else f"weights in {dtype}"
            )
            yield Finding("note" if file.packed else "good", "GGUF", f"{part.checkpoint.name}: {packed}.")
