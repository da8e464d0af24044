"""Sampling is lossless: what speculative decoding writes is distributed as what the target alone would write.

Every check here is one statistic, ``p_value`` of a chi-square test with cells expected below 5 pooled, at a
significance of 1e-4, and for whole continuations a bound on the total variation distance at the same level. Seeds are
fixed, so a run gives the same verdict each time. ``test_..._is_caught`` put known bugs in and see the statistic fail.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math

import pytest
import torch
from fakes import ids_of, letter_tokenizer, random_table, table_model, table_pair
from scipy import stats

import specdec
from specdec.drafters.model import ModelDraft
from specdec.drafters.own_tokenizer import TranslatedDraft
from specdec.passes.cache import RoomyLayer

verify_module = importlib.import_module("specdec.engine.verify")

SIGNIFICANCE = 1e-4


def p_value(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Chi-square; cells expected below 5 are pooled into one, an outcome that cannot be gives 0."""
    counts, probabilities = counts.double(), probabilities.double()
    if (counts[probabilities <= 0] > 0).any():
        return 0.0
    counts, probabilities = counts[probabilities > 0], probabilities[probabilities > 0]
    order = probabilities.argsort(descending=True)
    counts, expected = counts[order], probabilities[order] / probabilities.sum() * counts.sum()
    large = int((expected >= 5).sum())
    if large < len(expected) and expected[large:].sum() < 5:
        large -= 1
    observed = torch.cat([counts[:large], counts[large:].sum(0, keepdim=True)[: len(counts) - large]])
    expected = torch.cat([expected[:large], expected[large:].sum(0, keepdim=True)[: len(counts) - large]])
    if len(observed) < 2:
        return 1.0
    return float(stats.chisquare(observed.numpy(), expected.numpy()).pvalue)


def total_variation(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    return float((counts.double() / counts.sum() - probabilities.double()).abs().sum() / 2)


def total_variation_bound(n: int, probabilities: torch.Tensor) -> float:
    """Exceeded with a probability of at most 1e-4 if the distribution is right.

    The mean is at most sum sqrt(p(1-p)/n) / 2, and one sample moves the distance by 1/n at most, so that
    McDiarmid's inequality bounds the rest.
    """
    p = probabilities.double()
    return float((p * (1 - p) / n).sqrt().sum() / 2) + math.sqrt(math.log(1 / SIGNIFICANCE) / (2 * n))


# --- the pure function -----------------------------------------------------------------------------------------------

V = 5
DRAWS = 1_000_000


def distributions(gamma: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """q (gamma, V, V) and p (gamma + 1, V, V): rows by position and by the token before it."""
    rng = torch.Generator().manual_seed(gamma)
    q = torch.randn(gamma, V, V, generator=rng).mul(1.5).softmax(-1)
    p = torch.randn(gamma + 1, V, V, generator=rng).mul(1.5).softmax(-1)
    if kind == "equal":
        p[:gamma] = q
    elif kind == "rounding":  # the same up to the last bits: the residual is nearly nothing, or nothing at all
        p[:gamma] = q * (1 + 1e-7 * torch.randn(q.shape, generator=rng))
    elif kind == "zeros":
        q[..., 0], q[..., 3], p[..., 1] = 0.0, 0.0, 0.0
    elif kind == "disjoint":
        q[..., 2:], p[..., :2] = 0.0, 0.0
    elif kind == "one-hot draft":
        q = torch.zeros_like(q)
        q[..., 2] = 1.0
    return q / q.sum(-1, keepdim=True), p / p.sum(-1, keepdim=True)


def pick(rows: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    return torch.multinomial(rows, 1, generator=rng).squeeze(-1)


def verify_often(gamma: int, kind: str, draws: int = DRAWS) -> tuple[float, float]:
    """p-values of the written tokens and of the number accepted, over ``draws`` drafts verified side by side.

    Every token depends on the one before it. Behind what ``verify`` commits, the sequence is completed from p, so
    that all gamma + 1 tokens together must be distributed as p alone writes them.
    """
    q, p = distributions(gamma, kind)
    rng = torch.Generator().manual_seed(1000 + gamma)
    previous = torch.zeros(draws, dtype=torch.long)
    draft_ids, q_rows, p_rows = [], [], [p[0, previous]]
    for i in range(gamma):
        q_rows.append(q[i, previous])
        previous = pick(q_rows[-1], rng)
        draft_ids.append(previous)
        p_rows.append(p[i + 1, previous])
    drafts = torch.stack(draft_ids, 1) if gamma else torch.zeros(draws, 0, dtype=torch.long)
    q_rows = torch.stack(q_rows, 1) if gamma else torch.zeros(draws, 0, V)
    one = lambda ids, q, p: verify_module.verify(ids, q, p, rng)  # noqa: E731
    verdict = torch.vmap(one, randomness="different")(drafts, q_rows, torch.stack(p_rows, 1))

    written, outcome = torch.zeros(draws, dtype=torch.long), torch.zeros(draws, dtype=torch.long)
    for i in range(gamma + 1):
        token = pick(p[i, written], rng)
        if i < gamma:
            token = torch.where(verdict.accepted > i, drafts[:, i], token)
        written = torch.where(verdict.accepted == i, verdict.token_id, token)
        outcome = outcome * V + written

    exact = torch.zeros(V ** (gamma + 1), dtype=torch.double)
    at_least = torch.zeros(gamma + 2, dtype=torch.double)  # the chance that n draft tokens or more stand
    at_least[0] = 1
    for cell, ids in enumerate(itertools.product(range(V), repeat=gamma + 1)):
        rows = list(zip((0, *ids), ids, strict=False))
        exact[cell] = math.prod(p[i, before, now].item() for i, (before, now) in enumerate(rows))
    for n in range(1, gamma + 1):
        for ids in itertools.product(range(V), repeat=n):
            rows = list(enumerate(zip((0, *ids), ids, strict=False)))
            at_least[n] += math.prod(min(p[i, b, t].item(), q[i, b, t].item()) for i, (b, t) in rows)
    accepted = (at_least[:-1] - at_least[1:]).clamp(min=0)
    counts = torch.bincount(outcome, minlength=len(exact))
    return p_value(counts, exact), p_value(torch.bincount(verdict.accepted, minlength=gamma + 1), accepted)


@pytest.mark.parametrize("kind", ["different", "equal", "rounding", "zeros", "disjoint", "one-hot draft"])
@pytest.mark.parametrize("gamma", [0, 1, 3])
def test_verify_writes_what_the_target_would(gamma: int, kind: str) -> None:
    """A million drafts: the tokens written follow p exactly, and as many are accepted as can be (Theorem 3.5)."""
    tokens, accepted = verify_often(gamma, kind)
    assert tokens > SIGNIFICANCE
    if kind != "rounding":  # there it depends on the last bits whether one of a million is rejected
        assert accepted > SIGNIFICANCE


def test_verify_alone_agrees_with_verify_in_bulk() -> None:
    """The bulk run above vectorises ``verify``; called one by one, as the engine calls it, it follows p too."""
    q, p = (rows[:, 0] for rows in distributions(1, "different"))
    rng = torch.Generator().manual_seed(3)
    counts = torch.zeros(V)
    for _ in range(20_000):
        draft_id = torch.multinomial(q[0], 1, generator=rng)
        verdict = verify_module.verify(draft_id, q, p, rng)
        counts[draft_id if verdict.accepted == 1 else verdict.token_id] += 1
    assert p_value(counts, p[0]) > SIGNIFICANCE


def test_missing_residual_is_caught_in_verify(monkeypatch) -> None:
    """Drawing the correction from p instead of the residual writes the draft's favourites too rarely."""
    monkeypatch.setattr(verify_module, "residual", lambda n, q, p: p.index_select(0, n.view(1)))
    assert verify_often(1, "different")[0] < SIGNIFICANCE


# --- whole continuations through the engine --------------------------------------------------------------------------

WIDTH = 5
CONTINUATION = 3  # letters; where rounds begin varies, so that every one of them is a bonus and a correction too
STOP = WIDTH  # stands behind every continuation and makes the table forget what was before
CONTINUATIONS = 20_000
BLOCKS = 100  # continuations in one text: each begins at another place of a round and of the cache


def forgetful_table(seed: int) -> torch.Tensor:
    """Logits of the next token by the three before it: a letter, by the letters since STOP; behind three of them STOP.

    So the letters between two STOPs are independent of all others, and one long text holds many continuations. A
    text out of step shows as an outcome that cannot be.
    """
    table = random_table(WIDTH + 1, CONTINUATION, seed)
    for place in range(CONTINUATION):  # of STOP; a later one overwrites what an earlier one says
        table.movedim(place, 0)[STOP] = table[(0,) * place + (STOP,)].clone()
    table[..., STOP] = -1e4
    table[(slice(WIDTH),) * CONTINUATION] = torch.full((WIDTH + 1,), -1e4).index_fill(0, torch.tensor(STOP), 0.0)
    return table


PROMPT = torch.tensor([1, 2, STOP])  # as long as what the table looks at
TARGET = forgetful_table(seed=0)
DRAFT = TARGET + random_table(WIDTH + 1, CONTINUATION, seed=1)


def processed(logits: torch.Tensor, params: specdec.SamplingParams) -> torch.Tensor:
    """The distribution that the settings ask for, by their definitions."""
    logits = logits.double() / params.temperature
    if params.top_k:
        logits[logits < logits.topk(params.top_k).values[-1]] = -math.inf
    p = logits.softmax(-1)
    ordered, index = p.sort(descending=True)
    p[index[ordered.cumsum(0) - ordered >= params.top_p]] = 0
    p[p < params.min_p * p.max()] = 0
    return p / p.sum()


def exact_continuations(params: specdec.SamplingParams) -> torch.Tensor:
    """The chance of any four tokens behind STOP: of 5^3 continuations with STOP, and none of whatever else."""
    rows = torch.stack([processed(row, params) for row in TARGET.reshape(-1, WIDTH + 1)]).reshape(TARGET.shape)
    chances = torch.zeros((WIDTH + 1,) * (CONTINUATION + 1), dtype=torch.double)
    for letters in itertools.product(range(WIDTH), repeat=CONTINUATION):
        text = (*PROMPT.tolist(), *letters, STOP)
        steps = range(CONTINUATION + 1)
        chances[(*letters, STOP)] = math.prod(rows[text[i : i + CONTINUATION + 1]].item() for i in steps)
    return chances.flatten()


def pair_of(drafting: str) -> specdec.Pair:
    """TARGET, drafted for by a table of its own, over its own tokens or others, by copying, or by the first of two
    layers whose sum it is."""
    if drafting == "model":
        return table_pair(TARGET, DRAFT)
    if drafting == "prompt lookup":
        return dataclasses.replace(table_pair(TARGET, None), draft=specdec.PromptLookup(max_ngram=2))
    if drafting == "other tokenizer":  # five tokens in common, in another order; "e" is missing, three are strange
        tokens = ["x", "d", "b", "a", "y", "ab", "c", "."]
        return specdec.Pair(
            target=table_model(TARGET),
            draft=table_model(random_table(len(tokens), 2, seed=2)),
            tokenizer=letter_tokenizer(list("abcde.")),
            draft_tokenizer=letter_tokenizer(tokens),
        )
    return specdec.Pair(target=table_model(DRAFT, TARGET - DRAFT), draft=specdec.EarlyExit(1))


def sample(
    params: dict, gamma: int, count: int = CONTINUATIONS, drafting: str = "model"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts of the continuations in many texts, each with a seed of its own, and their exact distribution."""
    pair, length = pair_of(drafting), CONTINUATION + 1
    place_values = (WIDTH + 1) ** torch.arange(length).flip(0)
    counts = torch.zeros((WIDTH + 1) ** length)
    for seed in range(count // BLOCKS):
        settings = specdec.SamplingParams(max_new_tokens=BLOCKS * length, seed=seed, **params)
        ids = ids_of(list(specdec.speculative(pair, PROMPT, gamma=gamma, params=settings)))
        counts += torch.bincount(torch.tensor(ids).view(BLOCKS, length) @ place_values, minlength=len(counts))
    return counts, exact_continuations(settings)


CASES = {
    "plain": ({"temperature": 1.0}, 2),
    "top-k": ({"temperature": 0.8, "top_k": 4}, 3),
    "top-p": ({"temperature": 1.0, "top_p": 0.8}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_continuations_are_distributed_as_the_target_writes_them(case: str) -> None:
    """20,000 continuations of three tokens against the exact distribution over 125 outcomes, at 1e-4."""
    counts, exact = sample(*CASES[case])
    assert p_value(counts, exact) > SIGNIFICANCE
    assert total_variation(counts, exact) < total_variation_bound(CONTINUATIONS, exact)


@pytest.mark.parametrize("drafting", ["prompt lookup", "early exit", "other tokenizer"])
def test_other_ways_to_draft_are_lossless(drafting: str) -> None:
    counts, exact = sample(*CASES["plain"], drafting=drafting)
    assert p_value(counts, exact) > SIGNIFICANCE
    assert total_variation(counts, exact) < total_variation_bound(CONTINUATIONS, exact)


@pytest.mark.parametrize("drafting", ["model", "prompt lookup", "early exit", "other tokenizer"])
def test_the_first_token_is_distributed_as_the_target_writes_it(drafting: str) -> None:
    """It comes from the prefill, which is one in many rounds of the texts above."""
    pair, counts = pair_of(drafting), torch.zeros(WIDTH + 1)
    for seed in range(1_000):
        params = specdec.SamplingParams(temperature=0.7, top_k=4, max_new_tokens=1, seed=seed)
        counts[ids_of(list(specdec.speculative(pair, PROMPT, gamma=2, params=params)))[0]] += 1
    assert p_value(counts, processed(TARGET[tuple(PROMPT)], params)) > SIGNIFICANCE


FEW = 4_000
NARROW = {"temperature": 0.6, "top_k": 3}


def test_correct_engine_passes_where_bugs_are_caught() -> None:
    """The control of the tests below, with the settings that the tests above do not run."""
    assert p_value(*sample(NARROW, 2, FEW)) > SIGNIFICANCE


def test_missing_residual_is_caught(monkeypatch) -> None:
    """A correction drawn from p itself is not lossless."""
    monkeypatch.setattr(verify_module, "residual", lambda n, q, p: p.index_select(0, n.view(1)))
    assert p_value(*sample(*CASES["plain"], FEW)) < SIGNIFICANCE


def test_q_of_other_processors_is_caught(monkeypatch) -> None:
    """Drafting with temperature and top-k but accepting by the raw softmax is not lossless."""
    propose = ModelDraft.propose

    def unprocessed(self, *args, **kwargs):
        proposal = propose(self, *args, **kwargs)
        if not proposal.logits:
            return proposal
        return proposal._replace(q=torch.cat(proposal.logits)[: len(proposal.ids)].softmax(-1))

    monkeypatch.setattr(ModelDraft, "propose", unprocessed)
    assert p_value(*sample(NARROW, 2, FEW)) < SIGNIFICANCE


def test_unshared_part_of_q_is_caught(monkeypatch) -> None:
    """A draft with another tokenizer that keeps the share of its unshared tokens out of q is not lossless."""
    propose = TranslatedDraft.propose

    def unnormalised(self, *args, **kwargs):
        proposal = propose(self, *args, **kwargs)
        return proposal._replace(q=0.6 * proposal.q)

    monkeypatch.setattr(TranslatedDraft, "propose", unnormalised)
    assert p_value(*sample(*CASES["plain"], FEW, drafting="other tokenizer")) < SIGNIFICANCE


def test_stale_cache_row_is_caught(monkeypatch) -> None:
    """A rollback that leaves one row of the rejected draft where an accepted token's should stand is not lossless."""
    crop = RoomyLayer.crop

    @torch.inference_mode()
    def stale(self, count):
        kept = self._length + count
        if count and kept:
            self._keys[..., kept - 1, :] = self._keys[..., kept, :]
        crop(self, count)

    monkeypatch.setattr(RoomyLayer, "crop", stale)
    assert p_value(*sample(*CASES["plain"], FEW)) < SIGNIFICANCE
