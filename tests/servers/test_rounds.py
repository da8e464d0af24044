"""Counts of guesses and pieces of a stream, put together as rounds."""

from __future__ import annotations

import itertools

import pytest

from specdec.servers.answer import Step
from specdec.servers.rounds import spans_of

K = 3
STEPS = [Step(K, kept) for kept in range(K + 1)]


def tokens_of(spans) -> list[int]:
    return [span.tokens for span in spans]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_piece_for_each_step(count) -> None:
    for steps in itertools.product(STEPS, repeat=count):
        spans = spans_of([step.accepted + 1 for step in steps], steps)
        assert [(span.piece, span.step) for span in spans] == list(enumerate(steps))
        assert tokens_of(spans) == [step.accepted + 1 for step in steps]


def test_merged_pieces_hold_the_same_steps() -> None:
    for steps in itertools.product(STEPS, repeat=3):
        sizes = [step.accepted + 1 for step in steps]
        for merged in ([sizes[0] + sizes[1], sizes[2]], [sizes[0], sizes[1] + sizes[2]], [sum(sizes)]):
            spans = spans_of(merged, steps)
            assert [span.step for span in spans] == list(steps)
            assert tokens_of(spans) == sizes


def test_the_end_of_the_text_cuts_the_last_step() -> None:
    for steps in itertools.product(STEPS, repeat=2):
        *first, last = [step.accepted + 1 for step in steps]
        for left in range(1, last + 1):
            assert tokens_of(spans_of([*first, left], steps)) == [*first, left]
        if last == 1:
            assert spans_of([*first, 0], steps) is None  # the whole step is missing


def test_steps_without_guesses_are_single_tokens() -> None:
    step = Step(K, 2)
    spans = spans_of([1, 1, 3, 1], [step])
    assert [(span.tokens, span.step) for span in spans] == [(1, None), (1, None), (3, step), (1, None)]


def test_a_cut_step_after_single_tokens() -> None:
    """The lengths of all steps then fit the number of tokens by chance, but no piece is long enough."""
    step = Step(5, 4)
    assert [(span.tokens, span.step) for span in spans_of([1, 1, 1, 2], [step])] == [(1, None)] * 3 + [(2, step)]


def test_a_cut_step_stands_at_the_end() -> None:
    """It is as long as a token without guesses, and those before it must not take its place."""
    whole, cut = Step(5, 0), Step(5, 1)
    spans = spans_of([1, 1, 1, 1], [whole, cut])
    assert [(span.tokens, span.step) for span in spans] == [(1, whole), (1, None), (1, None), (1, cut)]


def test_only_the_end_cuts() -> None:
    assert spans_of([3, 1, 3], [Step(5, 3), Step(5, 2)]) is None


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([1], [Step(K, 0), Step(K, 0)]),  # more steps than tokens
        ([], [Step(K, 0)]),
        ([2], [Step(K, 3), Step(K, 3)]),
    ],
)
def test_counts_that_do_not_fit_make_no_rounds(sizes, steps) -> None:
    assert spans_of(sizes, steps) is None


def test_nothing_is_lost() -> None:
    """Whatever fits: every token is in a span, every step is in one, and pieces go on in order."""
    for sizes in itertools.product(range(1, 4), repeat=3):
        for count in range(4):
            for steps in itertools.product([Step(2, kept) for kept in range(3)], repeat=count):
                if (spans := spans_of(sizes, steps)) is not None:
                    assert sum(tokens_of(spans)) == sum(sizes)
                    assert [span.step for span in spans if span.step] == list(steps)
                    assert [span.piece for span in spans] == sorted(span.piece for span in spans)
