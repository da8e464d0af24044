"""Puts an engine's own counts of guesses and the pieces of its stream together, as rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec.servers.answer import Step


class Span(NamedTuple):
    """The tokens of one round: how many, the piece that its last token came in, and its step; None without guesses."""

    tokens: int
    piece: int
    step: Step | None


def spans_of(sizes: Sequence[int], steps: Sequence[Step]) -> list[Span] | None:
    """The rounds after the first token. None where the counts do not fit the stream.

    ``sizes``: how many tokens each piece of the stream added, without the first token. ``steps``: the steps with
    guesses, in order; each adds its kept guesses and one token more, and the end of the text may cut the last one. A
    step without guesses adds one token and is not among them. A piece may hold several steps, where the client read
    late.

    Steps without guesses can stand at several places where single tokens follow one another. The steps with guesses are
    then taken first, so the order of such single tokens is not known; the sums are. It is not known either whether the
    end of the text cut the last step, or how much of it, where single tokens may fill the rest: it is then taken whole.
    """
    if (whole := _placed(sizes, steps)) is not None or not steps or not sizes:
        return whole
    *first, last = steps
    for length in range(min(last.accepted, sizes[-1]), 0, -1):
        before = _placed([*sizes[:-1], sizes[-1] - length], first)
        if before is not None:
            return [*before, Span(length, len(sizes) - 1, last)]
    return None


def _placed(sizes: Sequence[int], steps: Sequence[Step]) -> list[Span] | None:
    """The rounds if no step is cut; None where a step finds no place."""
    if len(steps) > sum(sizes):
        return None
    found: list[Span] = []
    at = 0
    for piece, size in enumerate(sizes):
        while size:
            if at < len(steps) and steps[at].accepted < size:
                found.append(Span(steps[at].accepted + 1, piece, steps[at]))
                size -= steps[at].accepted + 1
                at += 1
            else:
                found.append(Span(1, piece, None))
                size -= 1
    return found if at == len(steps) else None
