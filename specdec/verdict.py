"""The verdict on a race: one sentence, its origin, four figures, the labels of the chart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from specdec import metrics, words
from specdec.events import Event, Finished, Round, Started

# One run cannot tell a gain of a few percent from the noise of the machine.
NO_DIFFERENCE = (0.95, 1.05)
REPETITIVE = 0.5


def lane_end(lane: str, events: Sequence[Event]) -> dict[str, Any] | None:
    """The label at the end of a lane's line, once it has a token."""
    figures = metrics.measure(events)
    if figures is None:
        return None
    name = words.LANE_NAMES[lane]
    duration = words.seconds(figures.decode_seconds)
    return {
        "event": "lane_end",
        "lane": lane,
        "name": name,
        "duration": duration,
        "spoken": f"{name} lane ended: {figures.new_tokens} tokens, the last {duration} after the first.",
    }


def verdict(plain: Sequence[Event], speculative: Sequence[Event], stopped: str | None = None) -> dict[str, Any]:
    """Everything the page says about a race, as one record. ``stopped`` begins the sentence of a race cut short."""
    started = next(event for event in chain(plain, speculative) if isinstance(event, Started))
    written, asked = len(_ids(speculative)), started.params.max_new_tokens
    notes = []
    if stopped:
        if written < 2:
            lane = "speculative" if speculative else "plain"
            tokens = written if speculative else len(_ids(plain))
            sentence = f"{stopped} at {tokens} of {asked} in the {lane} lane."
            return {"event": "verdict", "sentence": sentence, "notes": ["Nothing to compare yet."], "stopped": True}
        notes.append(f"{stopped} at {written} of {asked}; compared over the tokens both wrote.")
        plain = _up_to(plain, written)
    base, lane = metrics.measure(plain), metrics.measure(speculative)
    if base is None or lane is None:
        return {"event": "verdict", "sentence": "No token was written.", "notes": notes, "stopped": bool(stopped)}
    gain = metrics.speedup(base, lane)
    notes += _text_notes(plain, speculative, started, bool(stopped)) + _repetition(speculative, lane)
    notes += _lengths(speculative)
    record = {"event": "verdict", "stopped": bool(stopped), "notes": notes, **_headline(gain, lane)}
    record["same"] = _ids(plain) == _ids(speculative)
    record["figures"] = _figures(base, lane, plain, speculative, started)
    if stopped:  # it has no end of its own
        record["end"] = lane_end("speculative", speculative)
    elif base.new_tokens == lane.new_tokens and gain:
        saved = base.decode_seconds - lane.decode_seconds
        record["saved"] = f"{words.seconds(abs(saved))} {'saved' if saved >= 0 else 'lost'}"
    record["chart"] = (
        f"Tokens written over seconds. Plain: {base.new_tokens} tokens in {words.seconds(base.decode_seconds)}. "
        f"Speculative: {lane.new_tokens} tokens in {words.seconds(lane.decode_seconds)}. {record['sentence']}"
    )
    return record


def _headline(gain: float | None, lane: metrics.Metrics) -> dict[str, Any]:
    if gain is None:
        return {"factor": None, "sentence": "Too few tokens to compare."}
    if not lane.accepted and not lane.rejected:
        return {"factor": f"{gain:.2f}x", "sentence": f"Nothing was guessed: {gain:.2f}x is the loop alone."}
    low, high = NO_DIFFERENCE
    if low <= gain <= high:
        return {"factor": f"{gain:.2f}x", "sentence": f"No clear difference: {gain:.2f}x in one run."}
    shown = words.factor(gain)
    if gain > high:
        return {
            "factor": f"{shown}x",
            "faster": True,
            "sentence": f"Speculative decoding is {shown} times as fast here.",
        }
    reason = "Guessing and checking cost more time than the guesses saved."
    if lane.alpha is not None:
        reason = f"Only {words.percent(lane.alpha)} of guesses kept." if lane.alpha < 0.495 else reason
    return {"factor": f"{gain:.2f}x", "sentence": f"Slower here: {gain:.2f}x. {reason}"}


def _figures(
    base: metrics.Metrics, lane: metrics.Metrics, plain: Sequence[Event], speculative: Sequence[Event], started: Started
) -> list[dict[str, str]]:
    """Four figures, each a value and what it is."""
    figures = [
        {
            "value": f"{words.rate(base.tokens_per_second)} \u2192 {words.rate(lane.tokens_per_second)}",
            "label": "tokens/s, plain \u2192 speculative",
        },
        {"value": words.percent(lane.alpha), "label": "acceptance: guesses kept, of those tested"},
        {"value": words.number(lane.mean_acceptance_length), "label": "tokens a target pass"},
    ]
    ours, theirs = _ids(speculative), _ids(plain)
    if started.params.greedy:
        same = _common_prefix(ours, theirs)
        longest = max(len(ours), len(theirs))
        figures.append({"value": f"{same} of {longest}", "label": "tokens the same, counted from the start"})
    else:
        figures.append({"value": f"{len(theirs)} / {len(ours)}", "label": "tokens written, plain / speculative"})
    return figures


def _text_notes(plain: Sequence[Event], speculative: Sequence[Event], started: Started, stopped: bool) -> list[str]:
    if not started.params.greedy:
        return ["Sampling: texts may differ, the distribution does not."]
    ours, theirs = _ids(speculative), _ids(plain)
    same = _common_prefix(ours, theirs)
    if ours == theirs:
        return [f"Identical text{' so far' if stopped else ''}: {same} of {len(theirs)} tokens."]
    margin = _margin_at(speculative, same)
    note = f"First difference at token {same + 1}" + ("." if margin is None else f"; logit margin {margin:.3g}.")
    if started.pair.get("target_dtype", "float32") != "float32":
        note += " In half precision near-ties can flip; float32 gives equal texts."
    return [note]


def _repetition(speculative: Sequence[Event], lane: metrics.Metrics) -> list[str]:
    share = metrics.repeated_ngrams(_ids(speculative))
    if share < REPETITIVE or not lane.accepted:
        return []
    return [f"{words.percent(share)} of the text repeats itself, which is easy to guess: other prompts gain less."]


def _lengths(speculative: Sequence[Event]) -> list[str]:
    """What a policy chose, as nobody else did."""
    started = next((event for event in speculative if isinstance(event, Started)), None)
    drafted = [len(event.draft) for event in speculative if isinstance(event, Round) and event.index]
    if started is None or isinstance(started.gamma, int) or not drafted:
        return []
    idle = f", none in {drafted.count(0)} of them" if 0 in drafted else ""
    return [f"Draft length \u03b3 {started.gamma}: {sum(drafted) / len(drafted):.1f} tokens a round on average{idle}."]


def _ids(events: Sequence[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Round) for token in event.committed_ids]


def _common_prefix(ours: list[int], theirs: list[int]) -> int:
    pairs = enumerate(zip_longest(ours, theirs))
    return next((place for place, (one, other) in pairs if one != other), len(ours))


def _up_to(events: Sequence[Event], tokens: int) -> list[Event]:
    """The plain lane's events up to ``tokens`` tokens; it writes one a round."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Finished) or (isinstance(event, Round) and len(_ids(kept)) >= tokens):
            break
        kept.append(event)
    return kept


def _margin_at(events: Sequence[Event], place: int) -> float | None:
    """The raw-logit gap where the token at ``place`` was decided, if the target itself added it."""
    seen = 0
    for event in events:
        if isinstance(event, Round):
            seen += len(event.committed_ids)
            if seen > place:
                return event.target_margin if seen == place + 1 and event.token_id is not None else None
    return None
