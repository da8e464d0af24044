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
    then taken first, so the order of such single tokens is not known; the sums are.
    """
    total = sum(sizes)
    # A step with guesses that the end of the text cuts adds fewer tokens; the ids beyond the end never came.
    left = [step.accepted + 1 for step in steps]
    over = sum(left) - total
    if over > 0 and (not left or over >= left[-1]):
        return None
    if over > 0:
        left[-1] -= over
    found: list[Span] = []
    at = 0
    for piece, size in enumerate(sizes):
        while size:
            if at < len(steps) and left[at] <= size:
                found.append(Span(left[at], piece, steps[at]))
                size -= left[at]
                at += 1
            else:
                found.append(Span(1, piece, None))
                size -= 1
    return found if at == len(steps) else None
