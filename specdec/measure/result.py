"""The fold that most callers want: all events of a lane to ids, text and figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specdec.errors import InvalidInput
from specdec.events import Event, Finished, FinishReason, Round, Started
from specdec.measure.metrics import Metrics, measure


@dataclass(frozen=True)
class Result:
    """What a lane wrote. ``finish_reason`` is None and ``cancelled`` True where the stream ended early."""

    token_ids: list[int]
    text: str | None
    finish_reason: FinishReason | None
    cancelled: bool
    rounds: list[Round]
    metrics: Metrics | None


def collect(events: Iterable[Event], tokenizer: Any = None) -> Result:
    """Run a lane to its end. ``token_ids`` are the new ones only; ``text`` needs the tokenizer."""
    events = list(events)
    if any(isinstance(event, list) for event in events):
        raise InvalidInput(
            "These are batches of events, as driven yields them; give itertools.chain.from_iterable(...)."
        )
    if (lanes := sum(isinstance(event, Started) for event in events)) > 1:
        raise InvalidInput(
            f"These are the events of {lanes} lanes; collect each by itself (recording.lanes parts them)."
        )
    rounds = [event for event in events if isinstance(event, Round)]
    finished = next((event for event in events if isinstance(event, Finished)), None)
    token_ids = [token_id for r in rounds for token_id in r.committed_ids]
    return Result(
        token_ids=token_ids,
        text=tokenizer.decode(token_ids, skip_special_tokens=True) if tokenizer is not None else None,
        finish_reason=finished.finish_reason if finished else None,
        cancelled=finished is None,
        rounds=rounds,
        metrics=measure(events),
    )
