"""Computes one place again in float32, to see whether a difference between two greedy texts is rounding."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch

from specdec.engine.request import masks_of
from specdec.forward.accelerate_private import is_spread
from specdec.measure.result import LaneEvents, first_difference, started_of, written_ids
from specdec.models.pair import Pair
from specdec.runtime.memory import free_bytes
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True, slots=True)
class Float32Check:
    """The target's choice in float32 at the first difference of two texts, or why it was not computed.

    ``token_id`` is its choice, ``agrees`` the lane that chose the same token, and ``margin`` the gap between its two
    largest logits. ``needed_bytes`` is the memory that would have been needed.
    """

    kind: Literal["chosen", "quantised", "spread", "memory"]
    dtype: str
    token_id: int | None = None
    agrees: Literal["plain", "speculative"] | None = None
    margin: float | None = None
    needed_bytes: int | None = None


def float32_check(pair: Pair, run: LaneEvents) -> Float32Check | None:
    """The target's choice in float32 where plain and speculative text differ; None if nothing is to be checked.

    The target is copied to float32 for one pass over the prompt and the common text, if there is memory for it.
    """
    plain, speculative = run["generate"], run["speculative"]
    started = started_of(speculative)
    place = first_difference(plain, speculative)
    dtype = pair.target.dtype
    if place is None or dtype == torch.float32 or not started.params.greedy or not started.claims_lossless:
        return None
    name = str(dtype).removeprefix("torch.")
    if getattr(pair.target, "is_quantized", False):
        return Float32Check("quantised", name)
    if is_spread(pair.target):
        # A copy would share accelerate's hooks and its ``to`` with the target, and change the target.
        return Float32Check("spread", name)
    needed = 4 * pair.target.num_parameters()
    if needed > free_bytes(pair.device):
        return Float32Check("memory", name, needed_bytes=needed)
    theirs, ours = written_ids(plain), written_ids(speculative)
    context = TokenBuffer(torch.tensor([*started.prompt_ids, *theirs[:place]], device=pair.device), room=0)
    with torch.inference_mode():
        model = copy.deepcopy(pair.target).to(torch.float32)
        logits = model(input_ids=context.ids(0, context.length)[None], use_cache=False).logits[0, -1:].float()
        masks = masks_of(pair, started.params, len(started.prompt_ids))
        processed = Sampler(started.params, torch.Generator(), masks).process(logits, context, context.length)
        values, best = processed[0].topk(2)
    chosen = int(best[0])
    texts: dict[Literal["plain", "speculative"], list[int]] = {"plain": theirs, "speculative": ours}
    agrees = next((lane for lane, text in texts.items() if text[place : place + 1] == [chosen]), None)
    return Float32Check("chosen", name, chosen, agrees, float(values[0] - values[1]))
