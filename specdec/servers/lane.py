"""A lane on a server: one call of it, as the events of a lane (``specdec.events``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from specdec.errors import InvalidInput, ServerFailed
from specdec.events import MAX_GAMMA, DraftToken, Event, Finished, Round, Started
from specdec.facts import MachineFacts, PairFacts, ServerFacts
from specdec.lanes.table import ENGINE
from specdec.servers.answer import Answer, Asked, Counts, require_stream
from specdec.servers.client import Client, never
from specdec.servers.engines import engine_of
from specdec.servers.openai import OpenAI
from specdec.servers.probe import difference, metrics_of, probe, shown_name
from specdec.servers.rounds import Span, spans_of
from specdec.servers.tokens import ServerTokens

COUNTING = 5.0  # seconds for a look at a server's counters
AGAIN = 3.0  # seconds for which a call is made again, and it is made once more in any case

# Nothing is known of the machine behind an address.
MACHINE: MachineFacts = {"cpu": "machine of a server", "cores": None, "threads": 0, "device": "server"}


@dataclass(frozen=True)
class Server:
    """A server that somebody runs: what requests need, and what it told of itself."""

    client: Client
    engine: OpenAI
    model: str
    version: str | None
    speculation: bool | None
    in_order: bool = True  # whether a step's guesses stand one after another
    counting: bool = True  # whether each call reads the counters itself

    @property
    def name(self) -> str:
        return self.client.name

    def ask(self, asked: Asked) -> Answer:
        """One call, read to its end. What it counted is its own, unless others use the server at the same time.

        The deadline in ``asked`` is that of all its requests together.
        """
        end = time.perf_counter() + asked.seconds
        asked, prompt_ids = self.engine.spelled(self.client, asked, self.model)
        path, body = self.engine.request(asked, self.model)
        # This also opens the connection, so that no server's first token waits for one.
        before = self.counted(end) if self.counting else None
        began = time.perf_counter()
        with closing(self.client.stream(path, body, end - began)) as events:
            answer = replace(self.engine.read(events, self.name, asked.params.max_new_tokens), began=began)
        if answer.prompt_ids is None:
            answer = replace(answer, prompt_ids=prompt_ids)
        if self.speculation is False and answer.steps is None:
            return replace(answer, steps=())  # without speculation every round is one token
        if answer.steps is not None and (not self.in_order or _spans(answer) is None):
            answer = replace(answer, steps=None)
        if answer.counts is None and before is not None and self.speculation is True:
            answer = replace(answer, counts=difference(before, self.counted(end)))
        if answer.steps is None and answer.counts is not None and not answer.counts.steps:
            # No step had guesses. Where several tokens came at once, the counters may be those of another process.
            alone = all(size == 1 for size in answer.sizes[1:])
            answer = replace(answer, steps=()) if alone else replace(answer, counts=None)
        return answer

    def ask_in_time(self, asked: Asked) -> Answer:
        """One call whose seconds count. Raises ``ServerFailed`` where something on the way holds the answer back."""
        began, answer, late = time.perf_counter(), self.ask(asked), False
        # A busy machine may read the whole stream of a fast server at one moment, and often does so several times.
        while answer.held_back and not late:
            late = time.perf_counter() - began > AGAIN
            answer = self.ask(asked)
        require_stream(answer, self.name)
        return answer

    def counted(self, end: float | None = None) -> Counts | None:
        """What it has counted since its start, read before ``end`` on the clock; None where that cannot be read.

        An answer counts without it, so no failure is raised.
        """
        left = COUNTING if end is None else min(COUNTING, end - time.perf_counter())
        try:
            return self.engine.counted(metrics_of(self.client, left))
        except ServerFailed:
            return None

    def facts(self, answer: Answer) -> PairFacts:
        """The facts about the lane of an answer. A server's address is in none of them."""
        told: ServerFacts = {
            "engine": self.engine.name, "version": self.version, "model": shown_name(self.model),
            "speculation": True if answer.steps else self.speculation, "guesses": answer.most_guesses,
            "exact": answer.exact, "ids": answer.ids is not None,
        }  # fmt: skip
        unknown = {"layers": None, "dtype": "", "bits": None}
        drafting = told["speculation"] is not False
        return {
            "name": None,
            "device": "server",
            "compiled": False,
            "target": {"name": told["model"], **unknown},  # type: ignore[typeddict-item]
            "draft": {"kind": ENGINE, "text": "its own draft"} if drafting else None,
            "server": told,
        }


def connect(
    name: str, url: str, key: str | None = None, model: str | None = None, stopped: Callable[[], bool] = never
) -> Server:
    """Ask a server who it is. Raises ``InvalidInput`` or ``ServerFailed`` with a sentence.

    ``stopped``: where it is true, this and every later call of the server ends.
    """
    client = Client(name, url, key, stopped)
    try:
        found = probe(client, model)
        engine, version = engine_of(found)
    except Exception:
        client.close()
        raise
    return Server(client, engine, found.model, version, engine.speculation(found), engine.in_order(found))


def server_lane(server: Server, asked: Asked, tokens: ServerTokens, lane: str) -> Iterator[Event]:
    """The events of one call, under the name ``lane`` of the table of lanes.

    The answer is read to its end before the first event, because an engine tells only there how many guesses it made.
    Seconds are those at the client, from the request to each piece of the stream. ``draft`` has a token for each guess,
    with its status; the id of a guess that was not kept is None, because no engine tells it. Raises ``ServerFailed``
    where something on the way holds the answer back.
    """
    answer = server.ask_in_time(asked)
    prompt = asked.prompt if isinstance(asked.prompt, str) else "\n".join(each["content"] for each in asked.prompt)
    if answer.ids is not None and not tokens.learn(server.client, server.engine, server.model, answer, prompt):
        # Another server of the race has other tokens for these ids, so texts are compared by their letters.
        answer = replace(answer, pieces=tuple(replace(each, ids=None, count=each.tokens) for each in answer.pieces))
    facts = server.facts(answer)
    if answer.ids is not None:
        prompt_ids = answer.prompt_ids or ()
    else:
        answer = _with_own_ids(answer, tokens)
        prompt_ids = (tokens.id_of(prompt),)
    rounds = _rounds(answer)
    most = max([answer.most_guesses or 0, *(step.drafted for step in answer.steps or ())])
    if most > MAX_GAMMA:
        raise InvalidInput(
            f"The server {server.name} makes up to {most} guesses a step; {MAX_GAMMA} are shown at most. Start it with "
            "fewer."
        )
    gamma: int | str = 0 if facts["server"]["speculation"] is False else answer.most_guesses or ENGINE
    yield Started(
        lane=lane, prompt_ids=prompt_ids, params=asked.params, gamma=gamma, acceptance=ENGINE, accept_top_k=None,
        pair=facts, machine=MACHINE, versions={}, neutralised={}, claims_lossless=True,
    )  # fmt: skip
    yield from rounds
    yield Finished(answer.finish_reason, rounds[0].elapsed_seconds, answer.seconds)


def _with_own_ids(answer: Answer, tokens: ServerTokens) -> Answer:
    """The answer of a server that tells no ids, with the ids of its pieces of text.

    Where a piece counts for several tokens, its text belongs to the first of them, and the others are empty.
    """
    found = [
        replace(piece, ids=(tokens.id_of(piece.text), *[tokens.id_of("")] * (count - 1)))
        for piece, count in zip(answer.pieces, answer.sizes, strict=True)
    ]
    return replace(answer, pieces=tuple(found))


def _spans(answer: Answer) -> list[Span] | None:
    """The rounds after the first token; None where they are not told, or do not fit the stream."""
    if answer.steps is None or not answer.pieces:
        return None
    first, *later = answer.sizes
    # A first piece of several tokens holds rounds as well.
    return spans_of([first - 1, *later], answer.steps)


def _rounds(answer: Answer) -> list[Round]:
    """The rounds of an answer. Round 0 is its first piece: the seconds of steps inside it are not known."""
    ids = [i for piece in answer.pieces for i in piece.ids or ()]
    spans = _spans(answer)
    if spans is None:
        return _pieces_as_rounds(answer)
    at = answer.sizes[0]
    found = [_round(0, None, ids[:at], answer.pieces[0].seconds)] if at == 1 else _pieces_as_rounds(answer)[:1]
    for index, span in enumerate((span for span in spans if span.piece), start=1):
        taken = ids[at : at + span.tokens]
        found.append(_round(index, span, taken, answer.pieces[span.piece].seconds))
        at += span.tokens
    return found


def _round(index: int, span: Span | None, ids: Sequence[int], seconds: float) -> Round:
    step = span.step if span else None
    kept = min(step.accepted, len(ids)) if step else 0
    added = ids[kept] if kept < len(ids) else None
    kind = None if added is None else "target" if not step else "bonus" if kept == step.drafted else "correction"
    return Round(
        index=index,
        draft=() if step is None else _draft(step.drafted, ids[:kept], step.accepted),
        token_id=added,
        token_kind=kind,  # type: ignore[arg-type]
        committed_ids=tuple(ids),
        draft_seconds=None,
        verify_seconds=None,
        elapsed_seconds=seconds,
    )


def _draft(drafted: int, kept: Sequence[int], accepted: int) -> tuple[DraftToken, ...]:
    """The guesses of a step: the kept ones with their ids; of the others the first was rejected."""
    tokens: list[DraftToken] = [_guess(token_id, "accepted") for token_id in kept]
    for place in range(len(kept), drafted):
        # Where the text ended inside the kept guesses, nothing is known of the others.
        tokens.append(_guess(None, "rejected" if place == accepted == len(kept) else "discarded"))
    return tuple(tokens)


def _guess(token_id: int | None, status: str) -> DraftToken:
    return DraftToken(token_id, status, None, None, None, None, None, None)  # type: ignore[arg-type]


def _pieces_as_rounds(answer: Answer) -> list[Round]:
    """A round for each piece of the stream, where an engine does not tell its rounds."""
    return [
        Round(
            index=index,
            draft=() if index == 0 else None,
            token_id=None,
            token_kind=None,
            committed_ids=piece.ids or (),
            draft_seconds=None,
            verify_seconds=None,
            elapsed_seconds=piece.seconds,
        )
        for index, piece in enumerate(answer.pieces)
    ]
