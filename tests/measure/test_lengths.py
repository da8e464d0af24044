"""The rounds that a page computes for other draft lengths from one finished lane equal those of real runs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from comparison import FULL
from fakes import random_table, rounds_of, table_pair
from pairwise import few

import specdec
from specdec.events import MAX_GAMMA, Finished
from specdec.measure.costs import Costs
from specdec.measure.lengths import GammaPredictions, at_all_lengths
from specdec.measure.whatif import what_if

EVEN = Costs(((0, 0.0), (16, 1.6)), ((0, 1.0), (16, 1.8)), 0.1)  # seconds at all lengths
ALL = range(MAX_GAMMA + 1)


def run(pair: specdec.Pair, gamma: int | str, tokens: int, prompt=None, **settings) -> list:
    params = specdec.SamplingParams(max_new_tokens=tokens, **settings)
    return list(
        specdec.speculative(pair, torch.tensor([1, 2]) if prompt is None else prompt, gamma=gamma, params=params)
    )


def small_tables(seed: int, eos: int | None = None) -> specdec.Pair:
    """Tables that run fast: the last two tokens of 64 decide the next one."""
    table = random_table(64, 2, seed=seed)
    return table_pair(table, table + random_table(64, 2, seed=100 + seed, scale=0.25), eos=eos)


def counts(events: list) -> list[int]:
    """Tokens of each round after the prefill."""
    return [len(event.committed_ids) for event in rounds_of(events) if event.index]


def walked(found: GammaPredictions, gamma: int, tokens: int) -> list[int]:
    """Tokens of each round, as a page computes them from the record."""
    start, end, made = 1, len(found.hits), []
    while start < end:
        n = min(gamma, tokens - start - 1)
        following = min(start + min(n, found.hits[start]) + 1, end)
        made.append(following - start)
        start = following
    return made


@pytest.mark.parametrize("recorded", few([3, 16, 1, 5], 2))
def test_the_walk_makes_the_rounds_of_a_run_at_every_length(recorded: int) -> None:
    """One recording gives the exact tokens of each round at each of 17 lengths, where it says so.

    Elsewhere the last guess is unknown, and the number of passes is wrong by one at most.
    """
    exact, tokens, seeds = 0, 60, 6 if FULL else 2
    for seed in range(seeds):
        pair = small_tables(seed)
        found = at_all_lengths(run(pair, recorded, tokens), EVEN, 2.0)
        assert [length.gamma for length in found.lengths] == list(ALL)
        assert found.exact == all(length.exact for length in found.lengths)
        assert found.lengths[recorded].exact
        for gamma, length in enumerate(found.lengths):
            real = run(pair, gamma, tokens)
            if not length.exact:
                assert abs(length.passes - len(counts(real))) <= 1
                continue
            exact += 1
            assert walked(found, gamma, tokens) == counts(real)
            figures = specdec.collect(real).metrics
            assert length.passes == figures.target_passes
            assert length.tokens_per_pass == pytest.approx(figures.mean_acceptance_length, abs=1e-4)
    assert exact > (0.5 if recorded == 1 else 0.8) * seeds * len(ALL)


def test_unknown_guesses_have_the_acceptance_of_the_known_ones() -> None:
    """If a round has no known guess, its acceptance is taken from the rounds before it."""
    events = run(small_tables(1), 5, 60)
    guessing, silent = events[:13], events[13:-1]
    silent = [dataclasses.replace(event, draft=(), missed=()) for event in silent]
    found = at_all_lengths([*guessing, *silent, events[-1]], EVEN, 2.0)
    tested = [token.status for event in rounds_of(guessing) for token in event.draft if token.status != "discarded"]
    stood = [hits > 0 for hits in found.hits[-sum(counts(silent)) :]]
    assert len(stood) > 15
    assert sum(stood) / len(stood) == pytest.approx(tested.count("accepted") / len(tested), abs=0.1)
    assert not found.exact and found.lengths[0].exact


def test_a_text_that_ends_by_itself_ends_at_every_length() -> None:
    """No round continues after an EOS, whether it was a guess or the target's token."""
    ended = 0
    for seed in range(4):
        text = [token for event in rounds_of(run(small_tables(seed), 0, 60)) for token in event.committed_ids]
        last = next((place for place in range(20, 50) if text[place] not in text[:place]), None)
        if last is None:
            continue
        pair, ended = small_tables(seed, eos=text[last]), ended + 1
        found = at_all_lengths(run(pair, 5, 60), EVEN, 2.0)
        assert found.exact and len(found.hits) == last + 1
        assert all(walked(found, gamma, 60) == counts(run(pair, gamma, 60)) for gamma in ALL)
    assert ended >= 2


@pytest.mark.parametrize("gamma", [2, 9])
def test_the_walk_makes_the_rounds_of_the_embedded_pair(gamma: int) -> None:
    pair, prompt = specdec.load_pair(), "Once upon a time, there was a little dog"
    found = at_all_lengths(run(pair, 5, 64, prompt), EVEN, 2.0)
    assert found.lengths[gamma].exact
    assert walked(found, gamma, 64) == counts(run(pair, gamma, 64, prompt))


def test_times_are_the_rounds_at_their_costs() -> None:
    """Times equal those of the what-if, which counts in another way, and a calculation by hand at gamma 0."""
    events = run(small_tables(1), 5, 60)
    found = at_all_lengths(events, EVEN, 2.2)
    for length, outcome in zip(found.lengths, what_if(events, EVEN, ALL), strict=True):
        assert length.exact == outcome.exact
        if length.exact:
            assert (length.passes, length.tokens_per_pass) == (
                outcome.target_passes,
                pytest.approx(outcome.tokens_per_pass, abs=1e-4),
            )
            assert length.ms_per_token == pytest.approx(1000 * outcome.seconds_per_token, abs=1e-4)
            assert length.share == pytest.approx(outcome.gain, abs=1e-4)
            assert length.gain == pytest.approx(2.2 / outcome.seconds_per_token, abs=1e-4)
    alone = found.lengths[0]
    assert (alone.passes, alone.ms_per_token, alone.gain, alone.share) == (59, 1100.0, 2.0, 1.0)
    assert found.best == min(found.lengths, key=lambda length: length.ms_per_token).gamma > 0
    beside = at_all_lengths(events, EVEN, 2.2, loop=1.4)  # our loop ran too, slower than these costs say
    for length, other in zip(found.lengths, beside.lengths, strict=True):
        assert other.gain == length.gain
        assert other.gain / other.share == pytest.approx(2.2 / 1.4, abs=1e-3), "our loop gains what it measured"
    assert [sum(parts) for parts in found.costs] == pytest.approx([EVEN.seconds(n) for n in ALL])
    assert found.costs[4] == pytest.approx((0.4, 1.2, 0.1))


def test_wrong_guesses_are_those_that_the_draft_makes() -> None:
    """The same guesses are known to be wrong at gamma 16 and at gamma 1, and each is where the hits end."""
    pair = small_tables(2)
    many, few = (at_all_lengths(run(pair, gamma, 60), EVEN, 2.0) for gamma in (16, 1))
    both = [(one, other) for one, other in zip(many.wrong, few.wrong, strict=True) if None not in (one, other)]
    assert len(both) >= 5 and all(one == other for one, other in both)
    text = [token for event in rounds_of(run(pair, 0, 60)) for token in event.committed_ids]
    for found in (many, few):
        missed = [place for place, guess in enumerate(found.wrong) if guess is not None]
        assert all(found.hits[place] == 0 and found.wrong[place] != text[place] for place in missed)
        assert {place for place, hits in enumerate(found.hits[1:-1], start=1) if not hits} == set(missed) - {0, 59}


def test_lanes_without_recorded_drafts_are_refused() -> None:
    events = run(small_tables(1), 5, 60)
    for broken, said in (
        (run(small_tables(1), 5, 60, temperature=1.0, seed=1), "was sampled"),
        ([event for event in events if not isinstance(event, Finished)], "was stopped"),
        ([dataclasses.replace(events[0], acceptance="top-k"), *events[1:]], "write another text"),
        (run(small_tables(1), 0, 60), "known at 0 tokens"),
    ):
        with pytest.raises(specdec.InvalidInput, match=said):
            at_all_lengths(broken, EVEN, 2.0)
