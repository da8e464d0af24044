"""Prepares a pair of shapes for measuring: records the target's greedy text after each prompt, for its draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accelerate import PartialState
from rich.progress import track

from specdec.drafters.synthetic import SyntheticDraft
from specdec.engine.decode import decode
from specdec.engine.request import make_request
from specdec.events import SamplingParams
from specdec.lanes.decoding_thread import driven
from specdec.measure.prompts import PromptItem
from specdec.measure.result import collect
from specdec.models.pair import Pair


def recorded(pair: Pair, items: Sequence[PromptItem], params: SamplingParams) -> Pair:
    """``pair``, whose draft is a ``SyntheticDraft``, with the text that our loop at gamma 0 writes after ``items``.

    The tokens are chosen greedily. Raises what the lane raises.
    """
    draft = pair.draft
    assert isinstance(draft, SyntheticDraft)
    found = {}
    for item in track(items, "Recording", transient=True, disable=not PartialState().is_main_process):
        request = make_request(pair, item.message(pair.tokenizer), params)
        written = collect(driven(decode(request, 0))).token_ids
        found[tuple(request.prompt_ids.tolist())] = tuple(written)
    return replace(pair, draft=replace(draft, continuations=found), draft_tokenizer=None)
