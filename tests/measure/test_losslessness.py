"""The self-test of lossless sampling: lossless lanes pass, and others are caught.

Lossless sampling fails one self-test in 1,000 by chance (``LEVEL``). Seeds are fixed, so a run gives the same verdict
each time. The bounds on simulated p-values and distances would be exceeded once in 10,000 choices of a seed.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
import time
from dataclasses import replace

import pytest
import torch
from comparison import FULL
from fakes import chain, count_passes, random_table, table_pair
from pairwise import few
from scipy import stats
from transformers.generation.candidate_generator import AssistedCandidateGenerator

import specdec
from specdec.measure.losslessness import (
    COUNTED,
    LEVEL,
    MOST_COMMON,
    LosslessnessResult,
    Progress,
    chi_square,
    compare_samples,
    pooled,
    self_test,
)
from specdec.report.losslessness import losslessness_headline, losslessness_notes, samples_table, sentence, size

verify_module = importlib.import_module("specdec.engine.verify")

PROMPT = torch.tensor([2, 1, 0, 2])
PARAMS = specdec.SamplingParams(temperature=1.0, seed=0)
TARGET = random_table(3, 3, seed=0)
DRAFT = TARGET + random_table(3, 3, seed=1, scale=2.0)
DRAWS = 200 if FULL else 120
pytestmark = pytest.mark.xdist_group("losslessness")  # ``one`` is measured once


def found(pair: specdec.Pair, **settings) -> tuple[list[Progress], LosslessnessResult]:
    """Run a self-test; returns all its progress and its findings."""
    settings = {"prompt": PROMPT, "params": PARAMS, "draws": DRAWS, "accept_top_k": 2} | settings
    *progress, findings = self_test(pair, **settings)
    return progress, findings


# --- on lanes --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one() -> tuple[list[Progress], LosslessnessResult]:
    return found(table_pair(TARGET, DRAFT))


def test_lossless_passes_and_lossy_is_caught(one) -> None:
    findings = one[1]
    assert findings.verdict == "lossless"
    assert findings.lossless.p_value >= LEVEL > findings.lossy.p_value
    assert findings.lossy.total_variation > findings.lossy.noise_bound
    assert 0 < findings.alpha < findings.lossy_alpha < 1
    apart = f"{100 * findings.lossless.total_variation:.1f}\u00a0%"
    assert sentence(findings).startswith(f"Speculative decoding passes: {apart} of its draws would have to change to")
    stated = size(findings.lossless.detectable)
    assert 100 * findings.lossless.noise_bound < float(stated.removesuffix("\u00a0%")) < 60
    assert [row[1] for row in samples_table(findings).rows][0] == apart and samples_table(findings).rows[0][3] == stated
    assert losslessness_headline(findings).startswith("No difference found: plain and speculative samples agree.")
    assert losslessness_notes(findings)[0] == (
        f"If speculation changed {stated} of the draws or more, this test would find it 9 times in 10."
    )
    assert re.search("Lossy top-k acceptance is caught: [0-9.]+\u00a0%", sentence(findings))
    counts = [(one.plain, one.lossless, one.lossy) for one in findings.common]
    assert sorted(map(sum, counts), reverse=True) == list(map(sum, counts)) and 1 < len(counts) <= MOST_COMMON
    assert all(sum(sample) <= DRAWS for sample in zip(*counts, strict=True))


def test_each_step_is_tested_first(one) -> None:
    """Texts with as many tokens as a sample are tested step by step, and a note says what that can see."""
    steps = one[1].steps
    assert steps.tokens == 4 * DRAWS and steps.texts > 1 and not steps.differs
    assert f"finds a bias of {size(steps.detectable)} per token or more, 9 times" in losslessness_notes(one[1])[2]
    assert [progress.unit for progress in one[0]] == sorted((p.unit for p in one[0]), reverse=True)


def test_a_faulty_step_is_not_lossless(monkeypatch) -> None:
    """A bias that is too small for 50 draws is found in the steps."""
    ratios = verify_module._ratios
    monkeypatch.setattr(verify_module, "_ratios", lambda *args: 1.1 * ratios(*args))
    findings = found(table_pair(TARGET, DRAFT), draws=50)[1]
    assert findings.lossless.p_value > LEVEL and findings.verdict == "not lossless"
    assert losslessness_headline(findings).startswith("Not lossless: guesses are not accepted by min(1, p/q)")


def test_progress_counts_every_continuation(one) -> None:
    """Progress counts every continuation. A slow lane may also send an update without a new one."""
    drawn = [progress for progress in one[0] if progress.unit == "continuations"]
    done = [progress.done for progress in drawn]
    assert done == sorted(done) and set(done) - {0} == set(range(1, 3 * DRAWS + 1))
    assert {progress.total for progress in drawn} == {3 * DRAWS}


def test_progress_counts_the_samples_from_time_to_time(one) -> None:
    """So bars can grow. All samples have as many draws then, and nothing is concluded."""
    counted = [progress for progress in one[0] if progress.common]
    assert [progress.draws for progress in counted] == list(range(COUNTED, DRAWS + 1, COUNTED))
    for progress in counted:
        assert 0 < sum(common.plain for common in progress.common) <= progress.draws
    assert counted[-1].common == one[1].common


def test_findings_are_plain_values(one) -> None:
    """Findings are plain values, as a page and a file need them."""
    again = json.loads(json.dumps(one[1].record()))
    assert again["verdict"] == "lossless"
    assert again["lossless"]["p_value"] == one[1].lossless.p_value
    assert again["lossless"]["detectable"] == one[1].lossless.detectable
    assert again["steps"]["checks"][-1]["kind"] == "tokens"
    assert (again["level"], again["draws"], again["gamma"]) == (LEVEL, DRAWS, "2")
    assert again["params"]["max_new_tokens"] == 4 and again["params"]["seed"] == 0


@pytest.mark.full
def test_a_draft_far_from_the_target_is_lossless_too() -> None:
    """A draft that prefers the target's least likely token is lossless too. Most guesses are rejected."""
    findings = found(table_pair(TARGET, -3 * TARGET), accept_top_k=3)[1]
    assert findings.alpha < 0.4
    assert findings.verdict == "lossless"


@pytest.mark.full
def test_missing_residual_is_caught(monkeypatch) -> None:
    """A correction drawn from p itself is caught.

    If the target tosses a coin and the draft always says heads, heads then come in three of four cases.
    """
    heads = torch.tensor([8.0, 0.0]).expand(2, 2)
    coin = {"pair": table_pair(torch.zeros(2, 2), heads), "prompt": torch.tensor([0]), "accept_top_k": 1, "draws": 200}
    assert found(**coin)[1].verdict == "lossless"
    monkeypatch.setattr(verify_module, "residual", lambda n, q, p: p.index_select(0, n.view(1)))
    findings = found(**coin)[1]
    assert findings.verdict == "not lossless"
    assert sentence(findings).startswith("Speculative decoding fails")


def test_a_test_that_misses_lossy_acceptance_is_undecided() -> None:
    """If the draft is the target, even lossy acceptance is lossless, so passing the test proves nothing."""
    findings = found(table_pair(TARGET, TARGET), draws=50, accept_top_k=3)[1]
    assert findings.alpha == findings.lossy_alpha == 1
    assert findings.verdict == "undecided"
    assert "is missed" in sentence(findings)


def test_a_test_without_guesses_is_untested() -> None:
    """If prompt lookup finds nothing to copy, equal samples say nothing about speculation."""
    pair = specdec.Pair(table_pair(TARGET, DRAFT).target, specdec.PromptLookup(max_ngram=10, min_ngram=10))
    idle = found(pair, draws=50)[1]
    assert idle.verdict == "untested" and "passes" not in sentence(idle)


@pytest.mark.full
def test_a_seed_repeats_a_test() -> None:
    """One seed gives the same findings, another seed others. Without a seed one is drawn and reported."""
    pair = table_pair(TARGET, DRAFT)
    first, again, other, drawn = (
        found(pair, draws=50, params=replace(PARAMS, seed=seed))[1] for seed in (1, 1, 2, None)
    )
    assert first == again
    assert first.lossless != other.lossless
    assert drawn.params.seed is not None


def test_no_two_draws_share_a_seed(monkeypatch) -> None:
    """No two draws share a seed: samples from the same random numbers would agree too well and hide a fault."""
    module, seeds = importlib.import_module("specdec.measure.losslessness"), []

    def noted(lane):
        events = list(lane)
        seeds.append(events[0].params.seed)
        yield events

    monkeypatch.setattr(module, "driven", noted)
    *_, findings = found(table_pair(TARGET, DRAFT), draws=50)
    assert len(seeds) == len(set(seeds)) == 150 + findings.steps.texts


def test_after_the_time_limit_the_draws_so_far_count() -> None:
    """A time limit ends the test after whole rounds of draws, and not before the smallest useful number."""
    short = found(table_pair(TARGET, DRAFT), draws=500, seconds=0.0)[1]
    assert short.draws == 50 and short.verdict in ("lossless", "undecided")


def test_closing_midway_leaves_no_lane_running() -> None:
    """A test that is closed during a slow lane waits until that lane has ended, and starts no other."""
    pair = table_pair(TARGET, DRAFT)
    handle = pair.target.register_forward_pre_hook(lambda *_: time.sleep(0.15))
    with count_passes(pair.target) as fed:
        running = self_test(pair, PROMPT, params=PARAMS)
        while not fed:
            assert next(running).unit == "tokens"
        running.close()
        at_close = len(fed)
        time.sleep(0.4)
        assert 0 < at_close == len(fed) <= 2
    handle.remove()
    with pytest.raises(StopIteration):
        next(running)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"params": specdec.SamplingParams()}, "this test needs sampling"),
        ({"draws": 49}, "draws is 49; give a whole number, 50 or more"),
        ({"draws": True}, "draws is True"),
        ({"tokens": 2}, "tokens is 2; give a whole number, 3 or more"),
        ({"tokens": 600}, "context holds"),
        ({"gamma": 0}, "makes no guesses"),
        ({"gamma": 17}, "17"),
        ({"accept_top_k": 0}, "accept_top_k"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_runs(settings: dict, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        self_test(table_pair(TARGET, DRAFT), PROMPT, **{"params": PARAMS} | settings)


# --- on numbers ------------------------------------------------------------------------------------------------------


def draw(shape: str, count: int, rng: torch.Generator) -> list[tuple[int, ...]]:
    """Draw continuations of one distribution: equally likely, few likely and many unlikely, or with early ends."""
    if shape == "even":
        return [(i // 6, i % 6) for i in torch.randint(30, (count,), generator=rng).tolist()]
    chances = 1.0 / torch.arange(1, 201) ** (1.0 if shape == "long tail" else 1.5)
    drawn = torch.multinomial(chances, count, replacement=True, generator=rng).tolist()
    cells = [(i % 3, i // 3 % 7, i // 21) for i in drawn]
    return [cell[:2] if shape == "early ends" and cell[1] == 6 else cell for cell in cells]


@pytest.mark.parametrize("shape", ["even", "long tail", "early ends"])
def test_the_level_is_held(shape: str) -> None:
    """Of many pairs of samples from one distribution no more are told apart than the level allows."""
    rng, p_values, times = torch.Generator().manual_seed(0), [], 2000 if FULL else 500
    for _ in range(times):
        cells = pooled(draw(shape, 400, rng), 10)
        both = cells.bincount()
        p_values.append(chi_square(cells[:200].bincount(minlength=len(both)), both))
    for level in (LEVEL, 0.01, 0.1, 0.5):
        told_apart = sum(p < level for p in p_values)
        assert told_apart <= stats.binom.ppf(1 - 1e-4, times, level), level
    assert sum(p < 0.5 for p in p_values) >= stats.binom.ppf(1e-4, times, 0.4)  # and the test is not blind


@pytest.mark.parametrize("sizes", [(200, 200), (150, 300)])
def test_the_chi_square_is_that_of_scipy(sizes: tuple[int, int]) -> None:
    rng = torch.Generator().manual_seed(1)
    ours, others = (torch.randint(1, size // 5, (9,), generator=rng) for size in sizes)
    expected = stats.chi2_contingency(torch.stack([ours, others]).numpy()).pvalue
    assert chi_square(ours, ours + others) == pytest.approx(expected, rel=1e-9)


def test_noise_is_what_chance_gives() -> None:
    """Of 200 pairs of samples from one distribution the mean distance is as reported, and few exceed the bound."""
    rng = torch.Generator().manual_seed(2)
    pairs = [
        compare_samples(draw("long tail", 200, rng), draw("long tail", 200, rng), i, shuffles=200) for i in range(200)
    ]
    distances, means = (torch.tensor([getattr(c, name) for c in pairs]) for name in ("total_variation", "noise_mean"))
    assert abs((distances - means).mean()) < 3.9 * (distances - means).std() / len(pairs) ** 0.5
    # The bound is the largest of 200 shuffles, so one more shuffle is above it once in 201 times.
    assert sum(c.total_variation > c.noise_bound for c in pairs) <= stats.binom.ppf(1 - 1e-4, len(pairs), 1 / 201)


def test_noise_by_hand() -> None:
    """Noise equals the hypergeometric distribution: two samples of a coin are mixed and split again."""
    heads, tails = (1, 1), (2, 2)
    compared = compare_samples([heads] * 60 + [tails] * 40, [heads] * 50 + [tails] * 50)
    assert compared.cells == 2
    assert compared.total_variation == pytest.approx(0.1)
    chances = stats.hypergeom(200, 110, 100)
    distances = [abs(2 * k - 110) / 100 for k in range(10, 101)]
    mean = sum(chances.pmf(k) * d for k, d in zip(range(10, 101), distances, strict=True))
    assert compared.noise_mean == pytest.approx(mean, rel=0.04)
    beyond = sum(chances.pmf(k) for k, d in zip(range(10, 101), distances, strict=True) if d > compared.noise_bound)
    assert beyond < 2 * LEVEL


def test_samples_alike_and_samples_with_nothing_in_common() -> None:
    left, right = [(0, i % 4) for i in range(100)], [(1, i % 4) for i in range(100)]
    same, apart = compare_samples(left, left), compare_samples(left, right)
    assert (same.total_variation, same.p_value, same.cells) == (0, 1, 4)
    assert apart.total_variation == 1 and apart.p_value < 1e-20
    assert compare_samples([(1,)] * 50, [(1,)] * 50).p_value == 1  # a single cell tells nothing


def test_rare_continuations_count_by_how_they_begin() -> None:
    """Rare continuations are grouped by their beginning until each cell has ten."""
    often, rare, other = [(1, 2)] * 12, [(1, i) for i in range(5, 17)], [(3, i) for i in range(11)]
    strange = [(i, i) for i in range(20, 32)]
    cells = pooled([*often, *rare, *other, *strange], 10)
    assert [len(set(part.tolist())) for part in cells.split([12, 12, 11, 12])] == [1, 1, 1, 1]
    assert sorted(cells.bincount().tolist()) == [11, 12, 12, 12]


def test_too_few_for_a_cell_join_the_smallest() -> None:
    cells = pooled([(1, 1)] * 20 + [(2, 2)] * 15 + [(3, 3)] * 2, 10)
    assert sorted(cells.bincount().tolist()) == [17, 20]
    assert pooled([(1,), (2,)], 10).tolist() == [0, 0]


# --- transformers' own lanes on trial --------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", few(["prompt-lookup", "assisted", "transformers-lookup"], 1))
def test_other_lanes_pass_too(lane: str) -> None:
    findings = found(table_pair(TARGET, DRAFT), lane=lane)[1]
    assert findings.lane == lane and findings.verdict == "lossless", findings
    assert (
        (findings.steps is None)
        == (lane != "prompt-lookup")
        == ("records no probabilities, so only the samples were compared" in losslessness_notes(findings)[-1])
    )
    assert (findings.alpha is None) == (lane != "prompt-lookup")


def test_a_lane_that_reports_no_guesses_passes_only_where_one_was_kept() -> None:
    never = table_pair(chain([1, 2, 0]), chain([2, 0, 1]))  # at this temperature target and draft never agree
    findings = found(never, lane="assisted", params=replace(PARAMS, temperature=0.05), draws=50)[1]
    assert not findings.drafted and findings.verdict == "untested"


def test_a_lane_without_guesses_is_refused() -> None:
    for lane in ("generate", "draft-alone", "speculative:0", "nobody"):
        with pytest.raises(specdec.InvalidInput, match="no guesses"):
            self_test(table_pair(TARGET, DRAFT), PROMPT, lane=lane, params=PARAMS)


@pytest.mark.full
def test_an_assistant_that_drafts_greedily_and_hands_over_its_logits_is_caught(monkeypatch) -> None:
    """The fault of transformers' Gemma 4 assistants is caught, rebuilt in its assisted generation: each guess is the
    draft's best token, but q is reported as if the guess had been drawn from the draft's distribution."""
    generate = AssistedCandidateGenerator._generate_candidates

    def greedy(self, generation_args):
        config = copy.copy(generation_args["generation_config"])
        config.do_sample = False
        return generate(self, generation_args | {"generation_config": config})

    monkeypatch.setattr(AssistedCandidateGenerator, "_generate_candidates", greedy)
    findings = found(table_pair(TARGET, DRAFT), lane="assisted")[1]
    assert findings.verdict == "not lossless"
    assert "assisted" in sentence(findings)
