"""Whether a difference between two greedy texts is rounding: the same place once more in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from specdec.measure.result import Run, first_difference, started_of, written_ids
from specdec.models.memory import free_bytes, gigabytes
from specdec.models.pair import Pair
from specdec.passes.context import Context
from specdec.passes.sampling import Sampler


def float32_note(pair: Pair, run: Run, text_of: Callable[[int], str] = str) -> str | None:
    """What the target chooses in float32 where plain and speculative text part; None where that is no question.

    The target is copied to float32 for one pass over the prompt and the common text, if there is memory for it.
    """
    plain, speculative = run["generate"], run["speculative"]
    started = started_of(speculative)
    place = first_difference(plain, speculative)
    dtype = pair.target.dtype
    if place is None or dtype == torch.float32 or not started.params.greedy or started.acceptance != "lossless":
        return None
    if getattr(pair.target, "is_quantized", False):
        return "Whether float32 settles it was not tried: the target's weights are quantised."
    if any(hasattr(module, "_hf_hook") for module in pair.target.modules()):
        # A copy would keep accelerate's hooks and its ``to``, which are the target's own and would change it.
        return "Whether float32 settles it was not tried: the target's weights are spread or offloaded."
    needed = 4 * pair.target.num_parameters()
    if needed > free_bytes(pair.device):
        return f"Whether float32 settles it was not tried: the target would need {gigabytes(needed)} more."
    theirs, ours = written_ids(plain), written_ids(speculative)
    context = Context(torch.tensor([*started.prompt_ids, *theirs[:place]], device=pair.device), room=0)
    with torch.inference_mode():
        model = copy.deepcopy(pair.target).to(torch.float32)
        logits = model(input_ids=context.ids(0, context.length)[None], use_cache=False).logits[0, -1:].float()
        processed = Sampler(started.params, pair.device).process(logits, context, context.length)
        values, best = processed[0].topk(2)
    chosen = int(best[0])
    lanes = [name for name, text in (("plain", theirs), ("speculative", ours)) if text[place : place + 1] == [chosen]]
    agrees = f"as the {lanes[0]} lane did" if lanes else "as neither lane did"
    return (
        f"In float32 the target chooses \u201c{text_of(chosen)}\u201d there, {agrees}, by a logit margin of "
        f"{float(values[0] - values[1]):.3g}: the two {str(dtype).removeprefix('torch.')} routes rounded differently."
    )
