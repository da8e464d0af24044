"""What other draft lengths would have given in a recorded run, compared with runs at those lengths."""

from __future__ import annotations

import dataclasses
import itertools
import statistics

import pytest
import torch
from comparison import FULL
from fakes import ids_of, noisy_copy, prompt_of, random_table, rounds_of, shared_tiny, table_pair, tiny
from judged import PAIR
from pairwise import few

import specdec
from specdec.engine.policy import AutoGamma, ConfidenceStop
from specdec.events import DraftToken, Finished, Round, Started
from specdec.measure.costs import Costs
from specdec.measure.whatif import Calibration, what_if

STOPS = [ConfidenceStop(gamma, least) for gamma, least in ((16, 0.2), (16, 0.4), (5, 0.6), (16, 0.8))]
POLICIES = [*range(17), *STOPS]
EVEN = Costs(((0, 0.0), (16, 1.6)), ((0, 1.0), (16, 1.8)), 0.1)  # seconds at all lengths


def run(pair: specdec.Pair, gamma, tokens: int = 40, prompt: torch.Tensor | None = None, **settings) -> list:
    params = specdec.SamplingParams(max_new_tokens=tokens, **{"ignore_eos": True} | settings)
    return list(specdec.speculative(pair, prompt_of(9) if prompt is None else prompt, gamma=gamma, params=params))


def measured(events: list) -> tuple[int, int]:
    figures = specdec.collect(events).metrics
    return figures.target_passes, figures.drafted


def require_the_very_runs(recorded: list, runs: dict) -> float:
    """An exact outcome has the run's number of passes and, at a fixed length, of draft tokens.

    Another outcome misses a guess at the end of the text, so its passes differ by one at most. Returns the share of
    these.
    """
    exact = 0
    for policy, outcome in zip(runs, what_if(recorded, EVEN, list(runs)), strict=True):
        passes, drafted = measured(runs[policy])
        assert outcome.name == str(policy)
        if not outcome.exact:
            assert abs(outcome.target_passes - passes) < 1
            continue
        exact += 1
        assert outcome.target_passes == passes
        whole = specdec.collect(runs[policy]).metrics.mean_acceptance_length
        # Whether the draft would have guessed a last EOS may be unknown. That round then counts by its chance.
        last = (outcome.gamma or 0) / passes if runs[policy][-1].finish_reason == "eos" else 1e-9
        assert isinstance(policy, ConfidenceStop) or outcome.tokens_per_pass == pytest.approx(whole, abs=last)
        assert outcome.drafted == drafted or isinstance(policy, ConfidenceStop)
    return 1 - exact / len(runs)


def small_tables(seed: int) -> specdec.Pair:
    """Tables that run fast: the last two tokens of 64 decide the next one."""
    table = random_table(64, 2, seed=seed)
    return table_pair(table, table + random_table(64, 2, seed=100 + seed, scale=0.25))


def small_transformers(seed: int) -> specdec.Pair:
    target = shared_tiny("llama", seed, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, seed, scale=0.006))


@pytest.mark.parametrize("seed", few([0, 1, 2, 3], 2))
def test_a_recording_at_one_length_tells_every_other(seed: int) -> None:
    """Six recordings give target passes, tokens a pass and draft tokens at each of 17 lengths and by confidence."""
    pair, prompt = (small_tables if seed else small_transformers)(seed), torch.tensor([1, 2])
    runs = {policy: run(pair, policy, 50, prompt) for policy in POLICIES}
    assert 0.3 < specdec.collect(runs[4]).metrics.alpha < 0.95
    assert len({measured(events) for events in runs.values()}) > 10
    recordings = runs[1], runs[2], runs[5], runs[16], runs[STOPS[1]], run(pair, Calibration(), 50, prompt)
    assert statistics.fmean(require_the_very_runs(recorded, runs) for recorded in recordings) < 0.25


def test_what_is_not_exact_is_at_the_very_end() -> None:
    """For runs cut at every length most outcomes are exact, and the others say that they are not."""
    doubts = []
    for tokens, seed in itertools.product(range(20, 32), range(3)):
        pair, prompt = small_tables(seed), torch.tensor([1, 2])
        runs = {policy: run(pair, policy, tokens, prompt) for policy in (1, 2, 4, 9)}
        doubts += [require_the_very_runs(recorded, runs) for recorded in (runs[1], runs[4])]
    assert 0 < statistics.fmean(doubts) < 0.2


def test_a_text_that_ends_inside_a_draft() -> None:
    """A draft that goes past an EOS gives the passes and draft tokens of a run, at each length."""
    inside = 0
    for seed in range(3):
        text = ids_of(run(specdec.Pair(target=shared_tiny("llama", seed, layers=3)), 0))
        last = next(i for i in range(19, 36) if text[i] not in text[:i])
        target = tiny("llama", seed, layers=3, eos=text[last])
        pair = specdec.Pair(target=target, draft=noisy_copy(target, seed, scale=0.004))
        runs = {policy: run(pair, policy, ignore_eos=False) for policy in (0, 1, 3, 5, 8, 16, STOPS[1])}
        inside += sum(events[-2].token_id is None for events in runs.values())
        assert all(events[-1].finish_reason == "eos" for events in runs.values())
        for recorded in (runs[3], runs[16], run(pair, Calibration(), ignore_eos=False)):
            assert require_the_very_runs(recorded, runs) == 0
    assert inside > 5


def test_a_confidence_stop_is_exact_within_a_longer_recorded_draft() -> None:
    """A recording at 16 holds every draft of up to 4 tokens with a confidence stop, so its draft tokens are exact."""
    for seed in range(4):
        pair, prompt = small_tables(seed), torch.tensor([1, 2])
        recorded = run(pair, 16, 60, prompt)
        for least in (0.1, 0.2, 0.3, 0.5):
            policy = ConfidenceStop(4, least)
            (outcome,) = what_if(recorded, EVEN, [policy])
            passes, drafted = measured(run(pair, policy, 60, prompt))
            assert outcome.target_passes == passes
            assert outcome.drafted == pytest.approx(drafted, rel=0.1)


@pytest.mark.full
def test_sampling_is_expected_as_it_comes_out_on_average() -> None:
    """Expected passes equal the mean of real runs at other lengths, within three standard errors of under 3 %.

    They are computed from runs at gamma 16, which know nearly every guess, and at gamma 1, which know half of them. The
    text after an accepted guess differs from the text after a rejected one. An estimate that uses min(1, p/q) of the
    guess as the chance of the text's token would be off by more.
    """
    p = torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log()
    q = torch.tensor([[0.999, 0.001], [0.5, 0.5]]).log()
    pair, (times, bound) = table_pair(p, q), (200, 0.02) if FULL else (100, 0.03)

    def sampled(gamma: int, first: int) -> list[list]:
        return [run(pair, gamma, 24, torch.tensor([0]), temperature=1.0, seed=first + i) for i in range(times)]

    runs = {gamma: [measured(events)[0] for events in sampled(gamma, times)] for gamma in (2, 6)}
    for recorded in (16, 1):
        outcomes = [what_if(events, EVEN, runs) for events in sampled(recorded, 0)]
        assert not any(outcome.exact for each in outcomes for outcome in each)
        for real, same in zip(runs.values(), zip(*outcomes, strict=True), strict=True):
            expected = [outcome.target_passes for outcome in same]
            error = ((statistics.variance(expected) + statistics.variance(real)) / times) ** 0.5
            assert error < bound * statistics.fmean(real)
            assert abs(statistics.fmean(expected) - statistics.fmean(real)) < 3 * error


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_policy_is_faster_than_the_oracle(temperature: float) -> None:
    for seed in range(4):
        events = run(small_tables(seed), 5, 60, torch.tensor([1, 2]), temperature=temperature, seed=seed)
        for slope in (0.02, 0.3, 2.0):
            costs = Costs(((0, 0.0), (16, 16 * slope)), ((0, 1.0), (1, 1.3), (16, 1.8)), 0.1)
            *others, oracle = what_if(events, costs)
            assert oracle.name == "oracle"
            assert oracle.seconds <= min(other.seconds for other in others) + 1e-9


STATUS = {"+": "accepted", "-": "rejected", "?": "discarded", "!": "discarded"}


def made(
    drafts: list[str], seconds: list[tuple] | None = None, tokens: int = 99, end: str | None = "length", **about
) -> list:
    """Events made by hand, one draft a round: "++-?" is two accepted tokens, a rejected and a discarded one.

    ``seconds[i]`` are the seconds of round i + 1 for drafting, verifying and the rest. Only a discarded "!" is unsure.
    """
    about = {"lane": "speculative", "gamma": 5, "acceptance": "lossless", "accept_top_k": None, "pair": PAIR} | about
    params = specdec.SamplingParams(max_new_tokens=tokens)
    rounds, elapsed = [Round(0, (), 7, "target", (7,), 0.1, 0.9, 1.0)], 1.0
    for draft, spent in zip(drafts, seconds or [(0.1, 0.2, 0.3)] * len(drafts), strict=True):
        guesses = tuple(DraftToken(7, STATUS[sign], 1.0, *[None] * 4, 0.1 if sign == "!" else 0.9) for sign in draft)
        elapsed += sum(spent)
        committed = (7,) * (draft.count("+") + 1)
        rounds.append(Round(len(rounds), guesses, 7, None, committed, *spent[:2], elapsed))
    started = Started(prompt_ids=(1,), params=params, machine={}, versions={}, neutralised={}, **about)
    return [started, *rounds, *([Finished(end, 1.0, elapsed)] if end else [])]


HITS = ["++-", "-", "+++-", "-", "-", ""]  # hits at 1, 2, 5, 6 and 7 of 12


def test_the_oracle_is_the_best_of_all_choices() -> None:
    """The oracle equals the best of all choices of lengths, tried one by one."""
    events = made(HITS, tokens=12)
    hits = [place in (1, 2, 5, 6, 7) for place in range(12)]
    for first, more in ((0.1, 0.1), (0.3, 0.3), (0.9, 0.05), (0.05, 0.9)):
        costs = Costs(((0, 0.0), (1, first), (16, first + 15 * more)), ((0, 1.0), (16, 1.4)), 0.0)

        def best(start: int, costs: Costs = costs) -> float:
            if start == 12:
                return 0.0
            choices = []
            for n in range(min(16, 12 - start - 1) + 1):
                stand = next((i for i in range(n) if not hits[start + i]), n)
                choices.append(costs.seconds(n) + best(start + stand + 1))
            return min(choices)

        (oracle,) = what_if(events, costs, ["oracle"])
        assert oracle.seconds == pytest.approx(best(1))


def test_rounds_by_hand() -> None:
    """At length 2 the hits make rounds from 1, 4, 5, 8, 9, 10, with one draft token, and 11, with none."""
    costs = Costs(((0, 0.0), (1, 0.1), (2, 0.3)), ((0, 1.0), (1, 1.5), (2, 1.6)), 0.25)
    (outcome,) = what_if(made(HITS, tokens=12), costs, [2])
    assert (outcome.target_passes, outcome.drafted) == (7, 11)
    seconds = 5 * (0.3 + 1.6 + 0.25) + (0.1 + 1.5 + 0.25) + (1.0 + 0.25)
    assert outcome.seconds == pytest.approx(seconds)
    assert outcome.seconds_per_token == pytest.approx(seconds / 11)
    assert outcome.gain == pytest.approx(11 * 1.25 / seconds)
    assert (outcome.name, outcome.gamma, outcome.exact) == ("2", 2, True)


def test_the_waste_of_a_confidence_stop_is_estimated_from_discarded_guesses() -> None:
    """After a miss one draft token in four was unsure. A draft of up to 8 has 4 tokens where the recorded one went on.

    Elsewhere it is expected to continue by 1 + 3/4 + 9/16 + ... of the 7 remaining tokens.
    """
    events = made([*["-"] * 7, "-??!?"])
    (outcome,) = what_if(events, EVEN, [ConfidenceStop(8, 0.5)])
    assert outcome.target_passes == 8
    assert outcome.drafted == pytest.approx(4 + 7 * (1 + (1 - 0.75**7) / 0.25))


COLD = (9.0, 9.0, 9.0)


def test_costs_are_medians_of_the_rounds_of_all_lanes() -> None:
    """Costs leave out the first two rounds of a long lane, lengths that occur once, and other lanes. Values by hand."""
    drafts = ["+", "++", "++", "++", "", "", "++", "+"]
    seconds = [COLD, COLD, (2, 10, 1), (4, 20, 1), (0, 8, 1), (0, 9, 2), (3, 12, 3), (70, 70, 70)]
    short = made(["++", "", "++++", "++++"], [(5, 18, 1), (0, 10, 1), (7, 30, 1), (9, 32, 1)])
    others = [made(["+"] * 3, lane=lane) for lane in ("prompt-lookup", "draft-alone")]
    costs = Costs.of(made(drafts, seconds), *others, short)
    assert costs.draft == ((0, 0.0), (2, 3.5), (4, 8.0))
    assert costs.verify == ((0, 9.0), (2, 15.0), (4, 31.0))
    assert costs.rest == 1.0
    assert costs.seconds(1) == pytest.approx(3.5 / 2 + 12 + 1)
    assert costs.seconds(2.5) == pytest.approx((3.5 + 4.5 / 4) + (15 + 16 / 4) + 1)
    assert costs.seconds(8) == pytest.approx(16 + (31 + 22) + 1)
    assert costs.assumed == "The cost of more than 4 draft tokens is extrapolated."


def test_one_length_alone_does_not_tell_what_a_plain_pass_costs() -> None:
    """With one length the cost of a plain pass is taken as constant, or from plain generate, and this is said."""
    lane = made(["+++"] * 5, [(3, 10, 1)] * 5)
    costs = Costs.of(lane)
    assert [costs.seconds(n) for n in (0, 1, 3, 6)] == [11, 12, 14, 17]
    assert "without a draft is assumed to equal that of a pass over 3 draft tokens" in costs.assumed
    plain = made([""] * 9, [(0, 0, 20)] * 2 + [(0, 0, 8)] * 7, lane="generate")
    costs = Costs.of(plain, lane)
    assert [costs.seconds(n) for n in (0, 3, 6)] == [8, 14, 20]
    assert "that of transformers' generate" in costs.assumed
    assert Costs.of(lane, made([""] * 2, [(0, 6, 1)] * 2, lane="speculative")).seconds(0) == 7


def test_a_calibration_tries_all_lengths_and_leaves_the_text_alone() -> None:
    pair, prompt = small_tables(1), torch.tensor([1, 2])
    events = run(pair, policy := Calibration(), 100, prompt)
    assert ids_of(events) == ids_of(run(pair, 0, 100, prompt))
    assert {len(event.draft) for event in events[2:-4]} == {0, 1, 2, 4, 8, 16}
    assert events[0].gamma == str(policy) == "4, 2, 1, 8, 0, 16 in turn"
    assert Costs.of(events).assumed is None
    params = specdec.SamplingParams(max_new_tokens=100, ignore_eos=True)
    one, other = (specdec.speculative(pair, prompt, gamma=policy, params=params) for _ in range(2))
    begun = [next(one) for _ in range(4)]
    assert len(list(other)) == len(events)
    assert [len(r.draft) for r in rounds_of([*begun, *one])] == [len(r.draft) for r in rounds_of(events)]


def test_what_if_of_early_exit_is_close_and_not_called_exact() -> None:
    """Early exit shares the target's cache and never re-reads, so its passes are close and not called exact."""
    pair = specdec.Pair(target=shared_tiny("llama", 0, layers=3), draft=specdec.EarlyExit(2))
    recorded = run(pair, 4, 60)
    assert not any(event.missed for event in recorded[1:-1])
    for gamma, outcome in zip((1, 8), what_if(recorded, EVEN, [1, 8]), strict=True):
        assert not outcome.exact
        assert outcome.target_passes == pytest.approx(measured(run(pair, gamma, 60))[0], rel=0.1)


def test_a_recording_that_was_broken_off_is_not_called_exact() -> None:
    for events in (made(HITS, end=None), made(HITS, end="deadline")):
        assert not any(outcome.exact for outcome in what_if(events, EVEN))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "of 0 lanes"),
        (made(HITS) + made(HITS), "of 2 lanes"),
        (made([""] * 20, lane="generate"), "known at 0 tokens"),
        (made(["+-"] * 3), "known at 6 tokens"),
        (made(HITS, acceptance="top-k"), "write another text"),
        (made(HITS, pair={"draft": specdec.PromptLookup().describe()}), "depends on where it started"),
        (made(HITS, pair={"draft": {"kind": "model", "depends_on_start": True}}), "depends on where it started"),
        (
            [dataclasses.replace(e, draft=None) if isinstance(e, Round) else e for e in made(HITS)],
            "does not report its guesses",
        ),
    ],
)
def test_lanes_that_what_if_cannot_use_are_refused(events: list, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        what_if(events, EVEN)


@pytest.mark.parametrize("policy", [AutoGamma(), "auto", Calibration(), 17, "5"])
def test_policies_that_what_if_cannot_compute_are_refused(policy) -> None:
    with pytest.raises(specdec.InvalidInput, match="gamma"):
        what_if(made(HITS), EVEN, [policy])


def test_costs_of_lanes_without_passes_are_refused() -> None:
    for lanes in ([], [made([""] * 9, lane="generate")]):
        with pytest.raises(specdec.InvalidInput, match="no.* measured passes|No lane"):
            Costs.of(*lanes)
