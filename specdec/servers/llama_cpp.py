"""llama.cpp's server: every round, by the counts that it sends with each token.

Read in ``tools/server`` of llama.cpp, autumn 2026: ``server-context.cpp`` (``process_token``,
``send_partial_response``, ``update_slots``), ``server-schema.cpp`` and ``server-task.cpp``. Its own route
``/completion`` tells more than those of OpenAI's protocol. Not tried on a running server.

With ``timings_per_token`` an event holds one token and what was counted until then: ``predicted_n`` tokens, ``draft_n``
guesses, ``draft_n_accepted`` of them kept. A round's guesses and kept guesses are counted before its first token is
sent, so a jump of ``draft_n`` begins a round, and the jump of ``draft_n_accepted`` tells its length. A token that ends
inside a character is not sent. Then ``predicted_n`` jumps, the id stays unknown, and so may the place where a round
began.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from specdec.errors import BadSetting, ServerFailed, quoted
from specdec.events import FinishReason
from specdec.servers.answer import Answer, Asked, Counts, Piece, Step, contradiction, sums_of, whole, wholes
from specdec.servers.client import PATIENCE, Client, Streamed
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe
from specdec.servers.structured import llamacpp_grammar
from specdec.text import whole_text

# Some versions write these with "_total" at the end.
COUNTERS = tuple(f"llamacpp:spec_decode_num_{name}" for name in ("drafts", "draft_tokens", "accepted_tokens"))
ENDS: dict[str, FinishReason] = {"eos": "eos", "limit": "length", "word": "stop"}
SEEDS = 2**32 - 1  # one more, 2**32 - 1 itself, asks for a random seed


class _Event(NamedTuple):
    """What one event added, and what was counted until then."""

    seconds: float
    text: str
    ids: tuple[int, ...]
    written: int
    drafted: int
    accepted: int


class LlamaCpp(OpenAI):
    name = "llama.cpp"

    def version(self, probe: Probe) -> str | None:
        build = probe.version("/props", "build_info")
        return build if build or probe.owner == "llamacpp" else None

    def speculation(self, probe: Probe) -> bool | None:
        told = [slot.get("speculative") for slot in probe.pages.get("/slots", [])]
        return any(told) if told and all(isinstance(each, bool) for each in told) else None

    def counted(self, metrics: dict[str, float]) -> Counts | None:
        found = [metrics.get(f"{name}_total", metrics.get(name)) for name in COUNTERS]
        told = [int(value) for value in found if value is not None]
        return Counts(*told) if len(told) == len(COUNTERS) else None

    def spelled(self, client: Client, asked: Asked, model: str) -> tuple[Asked, tuple[int, ...] | None]:
        end = time.perf_counter() + min(PATIENCE, asked.seconds)
        if not isinstance(asked.prompt, str):
            page = client.json(
                "/apply-template", {"model": model, "messages": list(asked.prompt)}, end - time.perf_counter()
            )
            if not isinstance(page, dict) or not isinstance(page.get("prompt"), str):
                raise ServerFailed(f"The server {client.name} could not apply its template for chats.")
            asked = replace(asked, prompt=page["prompt"])
        body = {"model": model, "content": asked.prompt, "add_special": True, "parse_special": True}
        page = client.json("/tokenize", body, end - time.perf_counter())
        told = page.get("tokens") if isinstance(page, dict) else None
        return asked, None if told is None else wholes(told, "token ids of the prompt", client.name)

    def token_bytes(self, client: Client, model: str, text: str) -> list[tuple[Any, str | bytes]]:
        body = {"model": model, "content": text, "add_special": False, "parse_special": False, "with_pieces": True}
        page = client.json("/tokenize", body)
        told = page.get("tokens") if isinstance(page, dict) else None
        return [pair for each in told if (pair := _spelling(each))] if isinstance(told, list) else []

    def request(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        # Every setting is named: what a request leaves out, the server takes from its command line.
        params = asked.params
        if params.repetition_penalty != 1:
            raise BadSetting("repetition_penalty is set, but llama.cpp looks back over a window only; leave it out.")
        grammar = {} if params.grammar is None else llamacpp_grammar(params.grammar)
        return "/completion", grammar | {
            "model": model,
            "prompt": asked.prompt,
            "n_predict": params.max_new_tokens,
            # These and no other samplers, temperature first, as in the other lanes.
            "samplers": ["temperature", "top_k", "top_p", "min_p"],
            "temperature": params.temperature,
            "dynatemp_range": 0.0,
            "mirostat": 0,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "seed": -1 if params.seed is None else params.seed % SEEDS,
            "stop": list(params.stop),
            "ignore_eos": params.ignore_eos,
            "cache_prompt": False,  # each run reads its prompt
            "n_probs": 0,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
        }

    def read(self, streamed: Iterable[Streamed], name: str, most: int) -> Answer:
        events: list[_Event] = []
        reason: FinishReason | None = None
        for seconds, record in streamed:
            before = events[-1] if events else _Event(0.0, "", (), 0, 0, 0)
            events.append(_event(seconds, record, before, name))
            if len(events) > most + 1 or events[-1].written > most + 1:
                raise ServerFailed(f"The server {name} wrote more than the {most:,} tokens that were asked for.")
            if record.get("stop") is True:
                reason = ENDS.get(str(record.get("stop_type")))
                if reason is None:
                    told = quoted(record.get("stop_type"))
                    raise ServerFailed(f"The server {name} ended its text for a reason that is not known here: {told}.")
                break
        if reason is None:
            raise ServerFailed(f"The server {name} ended its stream without a reason; the text may be incomplete.")
        pieces, steps = _rounds(events, reason)
        counts = None if steps is None else sums_of(steps)
        return Answer(None, tuple(pieces), reason, events[-1].seconds, steps=steps, counts=counts)


def _spelling(told: Any) -> tuple[Any, str | bytes] | None:
    """A token's id and its text; its bytes where they are no text."""
    piece = told.get("piece") if isinstance(told, dict) else None
    if isinstance(piece, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in piece):
        return told.get("id"), bytes(piece)
    return (told.get("id"), piece.encode(errors="replace")) if isinstance(piece, str) else None


def _event(seconds: float, record: dict[str, Any], before: _Event, name: str) -> _Event:
    text, timings = record.get("content", ""), record.get("timings")
    if not isinstance(text, str):
        raise ServerFailed(f"The server {name} sent a text that is no text.")
    if not isinstance(timings, dict):
        raise ServerFailed(f"The server {name} sent an event without timings, which were asked for.")
    found = _Event(
        seconds,
        whole_text(text),
        wholes(record.get("tokens", []), "token ids", name),
        whole(timings.get("predicted_n"), "written tokens", name),
        # Both are left out as long as nothing was drafted.
        whole(timings.get("draft_n", 0), "drafted guesses", name),
        whole(timings.get("draft_n_accepted", 0), "accepted guesses", name),
    )
    drafted, accepted = found.drafted - before.drafted, found.accepted - before.accepted
    if found.written < before.written or not 0 <= accepted <= drafted or len(found.ids) > 1:
        raise contradiction(name)
    return found


def _rounds(events: Sequence[_Event], reason: FinishReason) -> tuple[list[Piece], tuple[Step, ...] | None]:
    """The tokens of each round as one piece, and the steps with guesses; None where their places are not known."""
    sizes, known = _sizes(events, reason)
    pieces: list[Piece] = []
    steps: list[Step] = []
    left = 0  # tokens of the round that are still to come
    drafted = accepted = 0
    for event, size in zip(events, sizes, strict=True):
        step = Step(event.drafted - drafted, event.accepted - accepted)
        drafted, accepted = event.drafted, event.accepted
        inside = min(left, size)
        if inside:
            pieces[-1] = _longer(pieces[-1], event, inside, alone=inside == size)
        left -= inside
        more = size - inside
        if step.drafted:
            # A round begins here, unless tokens that were not sent could belong to it, or to others before it.
            known = known and left == 0 and more == 1
            steps.append(step)
            left = step.accepted
        if more:
            ids = event.ids if len(event.ids) == size else None
            pieces.append(Piece(event.seconds, event.text, ids, more))
    return pieces, tuple(steps) if known else None


def _longer(piece: Piece, event: _Event, count: int, alone: bool) -> Piece:
    """A piece with more tokens of its round. ``alone``: whether the event has no other ones."""
    together = piece.ids is not None and alone and len(event.ids) == count
    return Piece(
        event.seconds,
        piece.text + (event.text if alone else ""),
        (piece.ids or ()) + event.ids if together else None,
        (piece.tokens or 0) + count,
    )


def _sizes(events: Sequence[_Event], reason: FinishReason) -> tuple[list[int], bool]:
    """How many tokens each event stands for, those that were not sent before it included, and whether that is known.

    Versions of 2025 count a whole round at its first token, so the counts of single events mean nothing there. Where
    the end of a text cuts the last round, they count the tokens beyond it too.
    """
    sent = [len(event.ids) for event in events]
    written = [event.written for event in events]
    beyond = 0 if reason == "length" else _after_last_round(events)
    if sum(sent) <= written[-1] <= sum(sent) + beyond:
        return sent, True
    sizes = [now - before for before, now in zip([0, *written], written, strict=False)]
    if all(size >= one for size, one in zip(sizes, sent, strict=True)):
        return sizes, True
    return sent, False


def _after_last_round(events: Sequence[_Event]) -> int:
    """How many tokens of the last round were not sent, if each event before it was."""
    starts = [i for i in range(1, len(events)) if events[i].drafted > events[i - 1].drafted]
    if not starts:
        return 0
    kept = events[starts[-1]].accepted - events[starts[-1] - 1].accepted
    return max(0, kept + 1 - sum(len(event.ids) for event in events[starts[-1] :]))
