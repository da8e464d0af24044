"""What-if of block drafters, whose draft is one pass: expected values, compared with runs at those lengths."""

from __future__ import annotations

import statistics
from functools import cache

import pytest
import torch
from blocks import BLOCK, greedy_pair, sampled_pair
from comparison import FULL
from fakes import rounds_of

import specdec
from specdec.events import MAX_GAMMA
from specdec.measure.costs import Costs, row_costs
from specdec.measure.lengths import at_all_lengths
from specdec.measure.whatif import ORACLE, Calibration, what_if

RATES = (0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4)
EVEN = Costs(((0, 0.0), (1, 0.4), (16, 0.4)), ((0, 1.0), (16, 1.8)), 0.1)  # seconds at all lengths
PROMPT = torch.tensor([1, 2])


def run(pair: specdec.Pair, gamma, tokens: int = 60, **settings) -> list:
    params = specdec.SamplingParams(max_new_tokens=tokens, **{"ignore_eos": True} | settings)
    return list(specdec.speculative(pair, PROMPT, gamma=gamma, params=params))


@cache
def known_pair(seed: int) -> specdec.Pair:
    return greedy_pair(seed, RATES)


@cache
def real_passes(seed: int, gamma: int) -> int:
    return measured(run(known_pair(seed), gamma))[0]


def measured(events: list) -> tuple[int, int]:
    figures = specdec.collect(events).metrics
    return figures.target_passes, figures.drafted


def test_the_recorded_length_is_the_very_run() -> None:
    """All others are expected values, and say so; a length above the block is that of the block."""
    for gamma in (1, 3, BLOCK, 12):
        recorded = run(known_pair(1), gamma)
        outcomes = what_if(recorded, EVEN, range(MAX_GAMMA + 1))
        (passes, drafted), found = measured(recorded), outcomes[gamma]
        assert (found.target_passes, found.drafted, found.exact) == (passes, drafted, True)
        whole = specdec.collect(recorded).metrics.mean_acceptance_length
        assert gamma > BLOCK or found.tokens_per_pass == pytest.approx(whole)
        assert {outcome.gamma for outcome in outcomes if outcome.exact} <= {gamma, *range(BLOCK, 17)}
        assert len({(o.target_passes, o.drafted, o.seconds) for o in outcomes[BLOCK:]}) == 1
        assert outcomes[0].target_passes == 59


@pytest.mark.parametrize("recorded", [BLOCK, 4, "calibration"])
def test_passes_are_those_of_real_runs_on_average(recorded) -> None:
    """Over many greedy texts. A recording at gamma 4 tells shorter drafts, and says what it assumes of longer ones."""
    seeds, gammas = range(100, 200 if FULL else 118), (1, 3, BLOCK)
    real = {gamma: [real_passes(seed, gamma) for seed in seeds] for gamma in gammas}
    records = [run(known_pair(seed), recorded if isinstance(recorded, int) else Calibration()) for seed in seeds]
    outcomes = [what_if(events, EVEN, gammas) for events in records]
    for gamma, found in zip(gammas, zip(*outcomes, strict=True), strict=True):
        expected = [outcome.target_passes for outcome in found]
        if recorded == 4 and gamma > 4:  # later guesses are kept less often than the last ones that were recorded
            assert 0.85 < statistics.fmean(expected) / statistics.fmean(real[gamma]) < 1.05
            continue
        error = statistics.stdev(e - r for e, r in zip(expected, real[gamma], strict=True)) / len(seeds) ** 0.5
        assert abs(statistics.fmean(expected) - statistics.fmean(real[gamma])) < max(3 * error, 0.2), gamma
        assert error < 0.05 * statistics.fmean(real[gamma])
    assumed = at_all_lengths(records[0], EVEN, 2.0).assumed
    assert (assumed is None) == (recorded != 4)
    assert recorded != 4 or "more than 4 guesses" in assumed


def test_sampling_is_expected_as_it_comes_out_on_average() -> None:
    """q of a guess is the target's own distribution some tokens ahead, which is flatter the farther it is ahead."""
    p = torch.tensor([[0.9, 0.08, 0.02], [0.1, 0.85, 0.05], [0.3, 0.3, 0.4]])
    pair, times, gammas = sampled_pair(p), 200 if FULL else 40, (1, 4, BLOCK) if FULL else (1, 4)
    runs = {g: [run(pair, g, 40, temperature=1.0, seed=1000 + i) for i in range(times)] for g in gammas}
    for recorded in (BLOCK, 5) if FULL else (BLOCK,):
        records = [run(pair, recorded, 40, temperature=1.0, seed=i) for i in range(times)]
        outcomes = [what_if(events, EVEN, gammas) for events in records]
        assert not any(outcome.exact for found in outcomes for outcome in found)
        for gamma, found in zip(gammas, zip(*outcomes, strict=True), strict=True):
            if gamma > recorded:
                continue
            expected = [outcome.target_passes for outcome in found]
            real = [measured(events)[0] for events in runs[gamma]]
            error = ((statistics.variance(expected) + statistics.variance(real)) / times) ** 0.5
            assert abs(statistics.fmean(expected) - statistics.fmean(real)) < 3 * error < 0.1 * statistics.fmean(real)


def test_a_draft_costs_one_pass_at_every_length() -> None:
    """The seconds at another length are rounds of one draft each; nothing multiplies or divides a draft by gamma."""
    recorded = run(known_pair(2), 4)
    costs = Costs.of(recorded)
    drafts = {costs.parts(n)[0] for n in range(1, BLOCK + 1)}
    assert len(drafts) == 1 and costs.parts(0)[0] == 0
    assert "A draft is one pass; its time at every length is that of 4 draft tokens." in costs.assumed
    assert "more than 4 draft tokens is extrapolated" in costs.assumed
    for outcome in what_if(recorded, EVEN, [1, BLOCK]):
        checks = outcome.seconds - 0.5 * outcome.target_passes
        # All rounds but the last, without a draft, are 0.4 s of drafting and 0.1 s of other work.
        assert checks == pytest.approx(outcome.target_passes + 0.05 * outcome.drafted, abs=0.5)
    several = Costs.of(run(known_pair(2), Calibration(), 200))
    assert [n for n, _ in several.draft] == [0, 1, 2, 4, BLOCK, MAX_GAMMA] and several.assumed is None
    assert several.draft[-1][1] == several.draft[-2][1]


def test_the_default_ends_with_the_block_and_knows_no_confidence() -> None:
    recorded = run(known_pair(3), 4)
    *lengths, oracle = what_if(recorded, EVEN)
    assert [outcome.gamma for outcome in lengths] == [*range(BLOCK + 1)] and oracle.name == ORACLE
    assert oracle.seconds <= min(outcome.seconds for outcome in lengths)
    with pytest.raises(specdec.InvalidInput, match="confidence stop would end it was not recorded"):
        what_if(recorded, EVEN, [specdec.ConfidenceStop(5, 0.4)])


def test_a_combination_with_a_block_drafter_is_refused() -> None:
    pair = known_pair(4)
    both = specdec.Pair(target=pair.target, draft=specdec.Combined(specdec.PromptLookup(), pair.draft))
    with pytest.raises(specdec.InvalidInput, match="depends on where it started"):
        what_if(run(both, 4), EVEN)


def test_a_page_draws_the_recorded_length_as_it_was_and_others_in_proportion() -> None:
    """One list of whole numbers: its rounds at the recorded length are the run's, and elsewhere about as many."""
    off = []
    for seed in range(12):
        pair = known_pair(seed)
        recorded = run(pair, 5)
        found = at_all_lengths(recorded, EVEN, 2.0)
        assert found.lengths[5].exact and found.lengths[5].passes == measured(recorded)[0]
        start, made = 1, []
        while start < len(found.hits):
            n = min(5, BLOCK, 60 - start - 1)
            made.append(min(n, found.hits[start]) + 1)
            start += made[-1]
        assert made == [len(event.committed_ids) for event in rounds_of(recorded)[1:]]
        assert not found.lengths[2].exact and not any(found.wrong)
        assert len({length.passes for length in found.lengths[BLOCK:]}) == 1
        off += [found.lengths[gamma].passes / measured(run(pair, gamma))[0] for gamma in (1, 2, 3)]
    assert statistics.fmean(off) == pytest.approx(1, abs=0.04)


def test_v_is_known_at_the_rows_that_were_measured() -> None:
    """The rows of a check are the guesses and the last token; those that occurred once, or first, do not count."""
    lane, alone = run(known_pair(5), 5), run(known_pair(5), 0)
    found = {cost.rows: cost for cost in row_costs(lane, alone)}
    assert {1, 6} <= found.keys() and found[1].passes >= 57
    rounds = rounds_of(lane)[3:]
    seconds = [event.verify_seconds for event in rounds if len(event.draft) == 5]
    assert (found[6].passes, found[6].seconds) == (len(seconds), statistics.median(seconds))
    assert row_costs([], lane[:1]) == []
