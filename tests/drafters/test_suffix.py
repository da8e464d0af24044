"""Suffix decoding: what it copies and how far, and that texts stay the target's."""

from __future__ import annotations

import itertools

import pytest
import torch
from enumeration import Target
from fakes import generated, ids_of, prompt_of, random_table, rounds_of, table_model, tiny

import specdec
from specdec.drafters.suffix import LONGEST, MOST_PLACES, SuffixIndex
from specdec.measure.enumeration import CLOSE, distance, distribution


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ([1, 2, 3], []),  # nothing stood before
        ([1, 2, 3, 4, 1], [2]),  # a match of one token is worth one
        ([1, 2, 3, 4, 5, 1, 2, 3], [4, 5, 1]),  # of three, three
        ([9, 2, 3, 1, 2, 4, 1, 2], [4, 1]),  # the longest match, though another is nearer to the beginning
        ([5, 1, 2, 6, 1, 2, 7, 1, 3, 8, 1], [2]),  # the most frequent token
        ([1, 2, 1, 3, 1], [3]),  # where two are as frequent, the later
        ([7, 7, 7], [7]),  # a copy ends with the text
    ],
)
def test_the_copied_tokens_are_those_after_the_longest_match(text: list[int], copied: list[int]) -> None:
    assert SuffixIndex().continuation(text, 16) == copied


def test_a_copy_is_no_longer_than_asked_and_than_the_longest_match() -> None:
    text = list(range(100)) + list(range(40))
    assert SuffixIndex().continuation(text, 5) == [40, 41, 42, 43, 44]
    assert SuffixIndex().continuation(text, 100) == list(range(40, 40 + LONGEST))


def test_the_index_grows_with_the_text() -> None:
    text, index = prompt_of(60, seed=2).tolist() * 3, SuffixIndex()
    for end in range(1, len(text)):
        assert index.continuation(text[:end], 8) == SuffixIndex().continuation(text[:end], 8)


def test_a_text_of_one_token_is_not_compared_with_all_of_itself() -> None:
    places, length = SuffixIndex()._longest_match([5] * 4)
    assert not places and length == 1  # nothing was read yet
    index = SuffixIndex()
    index.read([5] * 5000)
    places, length = index._longest_match([5] * 5000)
    assert len(places) <= MOST_PLACES and length == LONGEST


@pytest.mark.parametrize("gamma", [1, 5, 16, "auto"])
def test_greedy_text_is_that_of_generate(gamma) -> None:
    target = tiny("llama", context=512)
    pair = specdec.Pair(target, specdec.Suffix())
    prompt_ids = torch.cat([prompt_of(12), prompt_of(12)])
    lane = specdec.speculative(pair, prompt_ids, gamma=gamma, params=specdec.SamplingParams(60))
    assert tuple(ids_of(lane)) == generated(target, prompt_ids, 60)


def test_sampled_text_has_the_targets_distribution() -> None:
    table = random_table(3, 1, seed=0)
    pair = specdec.Pair(table_model(table), specdec.Suffix())
    prompt, params = (1, 2, 0, 1, 2, 0, 1), specdec.SamplingParams(temperature=1.0, max_new_tokens=4, seed=0)

    def write() -> tuple[int, ...]:
        rounds = rounds_of(list(specdec.speculative(pair, torch.tensor(prompt), gamma=2, params=params)))
        assert any(event.draft for event in rounds[1:])
        return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds))

    texts, paths = distribution(write)
    assert paths > 20
    assert distance(texts, Target(table, prompt, params).completed({(): 1.0})) < CLOSE
