"""Text of the engine with its real generator has the target's distribution.

``test_sampling_exactly`` is the proof: it goes through every outcome of every choice. Here long texts are sampled from
end to end with every way to draft. The test is a chi-square test at a significance of 1e-4, where cells with an
expected count below 5 are pooled. Whole continuations also have a bound on the total variation distance at the same
level. Seeds are fixed, so a run gives the same verdict each time. --hours samples twenty times as many.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from comparison import FULL, HOURS
from enumeration import processed
from fakes import ids_of, letter_tokenizer, random_table, table_model, table_pair
from pairwise import few
from scipy import stats

import specdec

SIGNIFICANCE = 1e-4


def p_value(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    """The p-value of a chi-square test, 0 if an outcome of probability 0 occurred.

    Cells expected below 5 are pooled.
    """
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


# --- whole continuations through the engine --------------------------------------------------------------------------

WIDTH = 5
CONTINUATION = 3  # letters; where rounds begin varies, so that every one of them is a bonus and a correction too
STOP = WIDTH  # stands after every continuation and makes the table forget what was before
CONTINUATIONS = 20_000 if HOURS else 2_000 if FULL else 1_000
BLOCKS = 100  # continuations in one text: each begins at another place of a round and of the cache


def forgetful_table(seed: int) -> torch.Tensor:
    """Logits of the next token by the three before it: a letter, or STOP after three letters.

    A letter depends on the letters since the last STOP only. So the letters between two STOPs are independent of all
    others, and one long text holds many continuations. A text out of step shows as an outcome of probability 0.
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


def exact_continuations(params: specdec.SamplingParams) -> torch.Tensor:
    """The chance of any four tokens after STOP: of 5^3 continuations with STOP, and none of whatever else."""
    rows = torch.stack([processed(row, params) for row in TARGET.reshape(-1, WIDTH + 1)]).reshape(TARGET.shape)
    chances = torch.zeros((WIDTH + 1,) * (CONTINUATION + 1), dtype=torch.double)
    for letters in itertools.product(range(WIDTH), repeat=CONTINUATION):
        text = (*PROMPT.tolist(), *letters, STOP)
        steps = range(CONTINUATION + 1)
        chances[(*letters, STOP)] = math.prod(rows[text[i : i + CONTINUATION + 1]].item() for i in steps)
    return chances.flatten()


def pair_of(drafting: str) -> specdec.Pair:
    """A pair with TARGET and a draft method: another table, with the same tokens or others, lookup, or early exit."""
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


DRAFTING = ("model", "prompt lookup", "early exit", "other tokenizer")


@pytest.mark.parametrize("drafting", few(DRAFTING, 2))
def test_continuations_are_distributed_as_the_target_writes_them(drafting: str) -> None:
    """Continuations of three tokens against the exact distribution over 125 outcomes, at 1e-4."""
    counts, exact = sample({"temperature": 0.9, "top_k": 4}, gamma=2, drafting=drafting)
    assert p_value(counts, exact) > SIGNIFICANCE
    assert total_variation(counts, exact) < total_variation_bound(CONTINUATIONS, exact)


def test_calls_of_different_seeds_are_independent() -> None:
    """The first token of many calls: had two seeds the same draws, it would not spread as the target says."""
    pair, counts = pair_of("model"), torch.zeros(WIDTH + 1)
    for seed in range(CONTINUATIONS // 4):
        params = specdec.SamplingParams(temperature=0.7, top_k=4, max_new_tokens=1, seed=seed)
        counts[ids_of(list(specdec.speculative(pair, PROMPT, gamma=2, params=params)))[0]] += 1
    assert p_value(counts, processed(TARGET[tuple(PROMPT)], params)) > SIGNIFICANCE
