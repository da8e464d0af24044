"""Whether a server that speculates writes what a plain server of the same model writes.

Greedy texts must be equal but for rounding. Where two differ, the plain server says how close its choice was there, and
whether its own text changes beside other calls. Sampled texts must have one distribution: ``draws`` collects samples
that ``specdec.measure.losslessness.compare_samples`` compares.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from specdec.errors import InvalidInput
from specdec.measure.result import common_prefix
from specdec.servers.answer import Answer, Asked, require_one_prompt
from specdec.servers.lane import Server
from specdec.servers.race import require_comparable

# Two texts may part where the plain server's two best tokens are closer than this, in natural logarithms of
# probability: bfloat16 rounds a logit between 16 and 32 to a multiple of 0.125, and two passes may round it apart.
NEAR = 0.25
BESIDE = 7  # other calls beside a prompt, to see whether a batch changes its text
DRAWN_TOKENS = 4  # of each continuation, where samples are compared
LOOKED_AT = 5  # most likely tokens that the plain server is asked for

Verdict = Literal["same", "near tie", "batch", "fault", "unknown"]
VERDICTS: tuple[Verdict, ...] = ("fault", "unknown", "batch", "near tie", "same")  # from the gravest on
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextFinding:
    """What was found on one prompt.

    - ``verdict``: "same"; "near tie" where the plain server's two best tokens are close and the other server chose the
      second; "batch" where the plain server itself writes another text beside other calls; "fault" where its choice
      was clear; "unknown" where it does not tell how clear its choice was, or left its own clear choice.
    - ``at``: how many tokens, or letters without token ids, both wrote before they differ; None if they do not.
    - ``plain``, ``other``: the texts of the first token that differs, or of the rest; "" at the end of a text.
    - ``margin``: the difference of the plain server's two best log-probabilities there; None if not known.
    - ``rank``: the place of the other server's token among the plain server's most likely ones, from 1 on, one
      more than these if it is not among them; None at the end of a text, or if not known.
    - ``ids``: whether token ids were compared; else letters.
    """

    prompt: str
    verdict: Verdict
    at: int | None = None
    plain: str = ""
    other: str = ""
    margin: float | None = None
    rank: int | None = None
    ids: bool = True


def greedy_court(plain: Server, other: Server, prompts: Sequence[tuple[str, Asked]]) -> Iterator[TextFinding]:
    """Compare two servers on named prompts, greedily, and yield what was found on each.

    Raises ``InvalidInput`` for settings that sample.
    """
    if any(not asked.params.greedy for _, asked in prompts):
        raise InvalidInput("Texts can be compared token by token only if they are greedy; set the temperature to 0.")

    def run() -> Iterator[TextFinding]:
        for name, asked in prompts:
            yield _compare(name, plain, other, asked, [each for _, each in prompts])

    return run()


def _compare(name: str, plain: Server, other: Server, asked: Asked, every: Sequence[Asked]) -> TextFinding:
    mine, theirs = plain.ask(asked), other.ask(asked)
    require_one_prompt({plain.name: mine, other.name: theirs})
    ids = mine.ids is not None and theirs.ids is not None
    if None in (mine.prompt_ids, theirs.prompt_ids):
        # Two models may use the same ids for other texts; a space in front may be left out.
        ids = ids and not (mine.ids == theirs.ids and mine.text.strip() != theirs.text.strip())
    at = _differ(mine, theirs, ids)
    if at is None:
        return TextFinding(name, "same", ids=ids)
    found = TextFinding(name, "unknown", at, _token(mine, at, ids), _token(theirs, at, ids), ids=ids)
    # In the middle of a text that obeys a grammar, the plain server cannot be asked what else the grammar allows.
    if ids and mine.prompt_ids is not None and asked.params.grammar is None:
        found = _weighed(found, plain, mine, theirs, at)
    left = found.rank == 1 and (found.margin or 0) > NEAR  # the plain server left its own clear choice
    if found.margin is not None and not left and (found.margin > NEAR or found.rank not in (None, 1, 2)):
        return replace(found, verdict="fault")
    if _batch_changes(plain, asked, mine, at, ids, every):
        return replace(found, verdict="batch")
    return found if left or found.margin is None else replace(found, verdict="near tie")


def _differ(mine: Answer, theirs: Answer, ids: bool) -> int | None:
    """Where two answers part; None if they are the same."""
    first, second = (mine.ids, theirs.ids) if ids else (mine.text, theirs.text)
    assert first is not None and second is not None
    return None if first == second else common_prefix(first, second)


def _token(answer: Answer, at: int, ids: bool) -> str:
    """The text of the token at ``at``: the piece of the stream that it came in, or the next letters."""
    if not ids:
        return answer.text[at : at + 20]
    seen = 0
    for piece in answer.pieces:
        seen += len(piece.ids or ())
        if seen > at:
            return piece.text
    return ""


def _weighed(found: TextFinding, plain: Server, mine: Answer, theirs: Answer, at: int) -> TextFinding:
    """The finding with the plain server's margin, and with the place of the other server's token there."""
    ids, others = mine.ids or (), theirs.ids or ()
    likely = plain.engine.likely(plain.client, plain.model, (*(mine.prompt_ids or ()), *ids[:at]), LOOKED_AT)
    if len(likely) < 2:
        return found
    margin = likely[0][1] - likely[1][1]
    if at == len(others):
        return replace(found, margin=margin)
    chosen = [token_id for token_id, _ in likely]
    rank = 1 + (chosen.index(others[at]) if others[at] in chosen else len(chosen))
    return replace(found, margin=margin, rank=rank)


def _batch_changes(plain: Server, asked: Asked, mine: Answer, at: int, ids: bool, every: Sequence[Asked]) -> bool:
    """Whether the plain server writes another text up to this place, alone once more or beside other calls."""
    calls = [asked, *(every[place % len(every)] for place in range(BESIDE))]
    with ThreadPoolExecutor(len(calls)) as pool:
        beside = list(pool.map(plain.ask, calls))[0]
    again = plain.ask(asked)
    places = [_differ(mine, answer, ids) for answer in (again, beside)]
    return any(place is not None and place <= at for place in places)


class Drawn(NamedTuple):
    """A sampled continuation: its token ids, None where the server told none, and its text."""

    ids: Ids | None
    text: str


def samples_of(drawn: Mapping[str, Sequence[Drawn]]) -> dict[str, list[Ids]]:
    """The continuations of each server as token ids, or all as letters if one of them has none."""
    letters = any(each.ids is None for those in drawn.values() for each in those)
    return {
        name: [tuple(map(ord, each.text)) if letters else each.ids or () for each in those]
        for name, those in drawn.items()
    }


def draws(servers: Sequence[Server], asked: Asked, count: int, seed: int) -> Iterator[tuple[str, Drawn]]:
    """``count`` continuations of a prompt from each server, in turns, each with a seed of its own.

    Yields a server's name and a continuation. ``samples_of`` makes them comparable.
    """
    if asked.params.greedy:
        raise InvalidInput("The temperature is 0 (greedy), and samples need sampling; set a temperature above 0.")
    seeds = random.Random(seed)

    def run() -> Iterator[tuple[str, Drawn]]:
        require_comparable(servers, {server.name: server.ask(asked) for server in servers})  # warms them up too
        for _ in range(count):
            for server in servers:
                # With equal seeds two samples would not be independent.
                answer = server.ask(replace(asked, params=replace(asked.params, seed=seeds.getrandbits(31))))
                yield server.name, Drawn(answer.ids, answer.text)

    return run()
