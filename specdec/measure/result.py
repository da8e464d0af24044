"""Collects the events of a lane into ids, text and figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import zip_longest
from typing import Any

from specdec.errors import InvalidInput, identified, quoted
from specdec.events import Event, Finished, FinishReason, Round, Started
from specdec.lanes.table import key_of
from specdec.measure.metrics import Metrics, compute_metrics
from specdec.text import TextStream, text_of

_GIVE = "give the events that speculative(), race() or driven() yields"
SOURCE = "_source"  # where a result keeps the tokenizer and the end of the prompt's ids, for ``pieces``
BEFORE = 32  # tokens of the prompt that decide how the first new one is written

# The kinds of token in a notebook, as on the page; dark letters on a light ground also in a dark theme.
_STYLES = {
    "target": "",
    "unknown": "",
    "accepted": "background: #d3e5fb; color: #1f2937",
    "correction": "background: #fde3b8; color: #1f2937; text-decoration: underline",
    "bonus": "background: #e5e7eb; color: #1f2937; font-weight: bold",
}


@dataclass(frozen=True)
class Result:
    """What a lane wrote, and its figures.

    - ``token_ids``: the new tokens, without the prompt.
    - ``text``: what they add to the prompt's text, as ``tokenizer.decode`` writes both with ``skip_special_tokens`` and
      ``clean_up_tokenization_spaces`` False; None where ``collect`` got no tokenizer.
    - ``finish_reason``: that of ``Finished``; None if the lane ended early. Then ``cancelled`` is True.
    - ``rounds``: all ``Round`` events; the first one is the prefill.
    - ``metrics``: the figures, a ``Metrics``; None if no token was written.
    """

    token_ids: list[int]
    text: str | None
    finish_reason: FinishReason | None
    cancelled: bool
    rounds: list[Round]
    metrics: Metrics | None

    @cached_property
    def pieces(self) -> list[tuple[str, str]] | None:
        """``text`` in pieces, each with the kind of its token, such as "accepted"; a notebook shows them in colour.

        The other kinds are "correction", "bonus", "target" and, in a lane that does not report its drafts, "unknown".
        None without a tokenizer, and where the prompt ends inside a character. Computed when it is first asked for.
        """
        if self.text is None or SOURCE not in vars(self):
            return None
        tokenizer, before = vars(self)[SOURCE]
        return _pieces(self.rounds, tokenizer, before, self.text)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle holds: not the tokenizer, and so the pieces only if they were made before."""
        return {name: value for name, value in vars(self).items() if name != SOURCE}

    def __repr__(self) -> str:
        """One line for a terminal or a notebook: the rounds alone would fill pages."""
        text = "" if self.text is None else f", text={quoted(self.text)}"
        return f"<Result: {self._facts}{text}>"

    def _repr_html_(self) -> str | None:
        """The text in the colours of the page, for a notebook; None where ``pieces`` is None."""
        if self.pieces is None:
            return None
        spans = "".join(f'<span style="{_STYLES[kind]}">{escape(text)}</span>' for text, kind in self.pieces)
        legend = " ".join(f'<span style="{style}">{kind}</span>' for kind, style in _STYLES.items() if style)
        return f'<div style="white-space: pre-wrap">{spans}</div><small>{legend} {escape(self._facts)}</small>'

    @property
    def _facts(self) -> str:
        speed = self.metrics and self.metrics.tokens_per_second
        rate = "" if speed is None else f", {speed:.1f} tokens/s"
        ended = "ended early" if self.cancelled else f"finish_reason={self.finish_reason!r}"
        return f"{len(self.token_ids)} tokens in {len(self.rounds)} rounds, {ended}{rate}"


def collect(lane: Iterable[Event | list[Event]], tokenizer: Any = None) -> Result:
    """Run a lane to its end and return what it wrote.

    ``lane`` yields events, or batches of them as ``driven`` does. ``token_ids`` are the new ones only. ``text`` needs
    the tokenizer. Raises ``InvalidInput`` for the events of several lanes, and for what is no events or no tokenizer.
    """
    require_tokenizer(tokenizer)
    events = flat(lane)
    if (lanes := sum(isinstance(event, Started) for event in events)) > 1:
        raise InvalidInput(
            f"These are the events of {lanes} lanes; collect each lane separately (recording.lanes splits them)."
        )
    rounds = [event for event in events if isinstance(event, Round)]
    finished = next((event for event in events if isinstance(event, Finished)), None)
    prompt_ids = next((event.prompt_ids for event in events if isinstance(event, Started)), ())
    token_ids = [token_id for r in rounds for token_id in r.committed_ids]
    text = text_of(tokenizer, token_ids, prompt_ids) if tokenizer is not None else None
    result = Result(
        token_ids=token_ids,
        text=text,
        finish_reason=finished.finish_reason if finished else None,
        cancelled=finished is None,
        rounds=rounds,
        metrics=compute_metrics(events),
    )
    if tokenizer is not None:
        vars(result)[SOURCE] = tokenizer, prompt_ids[-BEFORE:]  # no field: the result holds plain values only
    return result


def require_tokenizer(tokenizer: Any) -> None:
    """Raise ``InvalidInput`` for what is neither a tokenizer nor None."""
    if not (tokenizer is None or hasattr(tokenizer, "get_vocab")):
        raise InvalidInput(f"tokenizer is {identified(tokenizer)}; give a loaded tokenizer, or leave it out.")


def flat(lane: Iterable[Event | list[Event]]) -> list[Event]:
    """The events of one or more lanes, which may come in batches. Raises ``InvalidInput`` for anything else."""
    if not isinstance(lane, Iterable) or hasattr(lane, "ndim"):  # a tensor of one number only looks iterable
        raise InvalidInput(
            f"The lane is {identified(lane)}; give the events that speculative(), race() or driven() yields."
        )
    events = [event for part in lane for event in (part if isinstance(part, list) else [part])]
    for event in events:
        if not isinstance(event, Event):
            raise InvalidInput(
                f"Among the events is {identified(event)}; give what speculative(), race() or driven() yields."
            )
    return events


def _pieces(
    rounds: Iterable[Round], tokenizer: Any, prompt_ids: Iterable[int], text: str
) -> list[tuple[str, str]] | None:
    """``text`` by tokens, each with its kind; None where the prompt's last character ends in it."""
    stream, kind, found = TextStream(tokenizer), "target", []
    for token_id in prompt_ids:
        stream.push(token_id)
    for each in rounds:
        for token_id, kind in zip(each.committed_ids, each.committed_kinds, strict=True):
            found.append((stream.push(token_id), kind))
    found.append((stream.finish(), kind))
    return [piece for piece in found if piece[0]] if "".join(piece for piece, _ in found) == text else None


LaneEvents = Mapping[str, Sequence[Event]]  # one run of a race: the events of each lane


def in_runs(events: Iterable[Event], keys: Collection[str]) -> list[dict[str, list[Event]]]:
    """The events of each lane of a race by the ``keys`` of its lanes, for each run.

    A lane that occurs for the second time is of the second run, and so on, in whatever order they come. Raises
    ``InvalidInput`` if the first event is no ``Started``.
    """
    runs: list[dict[str, list[Event]]] = [{}]
    lane: list[Event] = []
    for event in events:
        if isinstance(event, Started):
            key = key_of(event.lane, event.gamma, keys)
            if key in runs[-1]:
                runs.append({})
            run = next(run for run in runs if key not in run)
            run[key] = lane = []
        elif not lane:
            raise InvalidInput("The events begin in the middle of a lane.")
        lane.append(event)
    return runs


def by_lane(events: Iterable[Event], keys: Collection[str]) -> dict[str, list[Event]]:
    """The events of each lane of a race that ran once, by the ``keys`` of its lanes."""
    return in_runs(events, keys)[0]


def started_of(events: Sequence[Event]) -> Started:
    return next(event for event in events if isinstance(event, Started))


def in_letters(*lanes: Sequence[Event]) -> bool:
    """Whether texts are compared by their letters, because a server told no token ids."""
    told = [started_of(lane).pair.get("server") for lane in lanes]
    return any(server is not None and not server["ids"] for server in told)


def first_difference(plain: Sequence[Event], speculative: Sequence[Event]) -> int | None:
    """The first place where two texts differ, counted in new tokens from 0; None if they are equal."""
    ours, theirs = written_ids(speculative), written_ids(plain)
    return None if ours == theirs else common_prefix(ours, theirs)


def written_ids(events: Sequence[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Round) for token in event.committed_ids]


def common_prefix(ours: Sequence[object], theirs: Sequence[object]) -> int:
    pairs = enumerate(zip_longest(ours, theirs))
    return next((place for place, (one, other) in pairs if one != other), len(ours))
