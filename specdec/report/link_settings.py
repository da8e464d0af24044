"""The settings of a race as a link and the first line of a recording name them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from specdec.events import LOSSLESS, Grammar, SamplingParams
from specdec.lanes.table import LANES

GAMMA = 5
NEW_TOKENS = 128
# The names of sampling settings in a link, each with its field of ``SamplingParams``.
PARAMS = {
    "tokens": "max_new_tokens", "temperature": "temperature", "seed": "seed", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "penalty": "repetition_penalty",
}  # fmt: skip
DEFAULTS = {
    "gamma": GAMMA, "tokens": NEW_TOKENS, "temperature": 0.0, "seed": None, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
    "penalty": 1.0, "ignore_eos": 0, "accept_top_k": None, "block": 0, "lanes": "", "chat": 0,
    "grammar": "",
}  # fmt: skip


def link_settings(
    prompt: str,
    chat: bool,
    gamma: int | str,
    params: SamplingParams,
    acceptance: str,
    accept_top_k: int | None,
    lanes: Collection[str],
) -> dict[str, Any]:
    """Prompt and chat, and the other settings where they differ from ``DEFAULTS``. ``lanes`` are keys of ``LANES``.

    The page has no stop strings and no acceptance rules of other packages. They are named too, so that it refuses to
    repeat the race instead of running another one.
    """
    values: dict[str, Any] = {name: getattr(params, field) for name, field in PARAMS.items()}
    values |= {"gamma": gamma, "accept_top_k": accept_top_k, "ignore_eos": int(params.ignore_eos)}
    values |= {"block": int(acceptance == "block"), "lanes": ",".join(key for key in lanes if key in further_keys())}
    changed = {name: value for name, value in values.items() if value != DEFAULTS[name]}
    if params.stop:
        changed["stop"] = json.dumps(params.stop, ensure_ascii=False)
    if params.grammar is not None:
        changed["grammar"] = f"{params.grammar.kind}:{params.grammar.text}"
    if not params.draft_mask:  # the page has the lane free-draft instead
        changed["draft_mask"] = 0
    if acceptance not in LOSSLESS and accept_top_k is None:
        changed["acceptance"] = acceptance
    return {"prompt": prompt, "chat": int(chat)} | changed


def grammar_in(text: str) -> Grammar | None:
    """The grammar of a link: its kind, a colon and its text; None for an empty text. Raises ``InvalidInput``."""
    kind, _, content = text.partition(":")
    return Grammar(kind, content) if text else None  # type: ignore[arg-type]


def further_keys() -> list[str]:
    """The lanes that run only if somebody chooses them."""
    return [lane.key for lane in LANES if not lane.race]
