"""The accept step by hand; that its output is distributed as p is tested in ``test_sampling_distribution``."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from fakes import noisy_copy, prompt_of, random_table, rounds_of, shared_tiny, table_pair

import specdec
from specdec.engine.verify import residual, verify, verify_block, verify_greedy, verify_top_k


def one_hot(*ids: int, width: int = 4) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(ids), width).float()


@pytest.mark.parametrize(
    ("draft", "choices", "accepted", "token_id"),
    [
        ([], [3], 0, 3),
        ([1], [1, 2], 1, 2),
        ([1], [0, 2], 0, 0),
        ([1, 2, 3], [1, 2, 3, 0], 3, 0),
        ([1, 2, 3], [1, 0, 3, 0], 1, 0),
        ([1, 2, 3], [0, 2, 3, 1], 0, 0),
    ],
)
def test_greedy_keeps_what_the_target_chose_too(draft, choices, accepted: int, token_id: int) -> None:
    """Guesses are kept up to the first difference. Later ones were drafted on another text."""
    verdict = verify_greedy(torch.tensor(draft, dtype=torch.long), torch.tensor(choices))
    assert (int(verdict.accepted), int(verdict.token_id)) == (accepted, token_id)
    assert verdict.accepted.dim() == verdict.token_id.dim() == 0
    assert len(verdict.accept_prob) == len(draft)


@pytest.mark.parametrize(
    ("draft", "choices"), [([], [3]), ([1], [1, 2]), ([1], [0, 2]), ([1, 2, 3], [1, 0, 3, 0]), ([1, 2], [1, 2, 3])]
)
def test_greedy_is_the_limit_of_sampling(draft, choices) -> None:
    """With one-hot p and q nothing is random, and both functions agree."""
    draft_ids = torch.tensor(draft, dtype=torch.long)
    q, p = one_hot(*draft) if draft else torch.zeros(0, 4), one_hot(*choices)
    sampled = verify(draft_ids, q, p, torch.Generator().manual_seed(0))
    greedy = verify_greedy(draft_ids, torch.tensor(choices))
    assert (int(sampled.accepted), int(sampled.token_id)) == (int(greedy.accepted), int(greedy.token_id))


def test_a_guess_with_p_above_q_is_always_accepted() -> None:
    """min(1, p/q): never above 1, and exactly 1 where p is above q."""
    q, p = torch.tensor([[0.25, 0.75]]), torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    verdicts = [verify(torch.tensor([0]), q, p, torch.Generator().manual_seed(seed)) for seed in range(50)]
    assert {(float(verdict.accept_prob), int(verdict.accepted)) for verdict in verdicts} == {(1.0, 1)}


@pytest.mark.parametrize(("n", "expected"), [(0, [0.0, 0.25, 0.75]), (1, [0.5, 0.25, 0.25])])
def test_the_residual_is_what_p_has_more_than_q(n: int, expected: list[float]) -> None:
    """It is normed, because a recording shows it. After a full acceptance it is p."""
    q, p = torch.tensor([[0.8, 0.1, 0.1]]), torch.tensor([[0.4, 0.2, 0.4], [0.5, 0.25, 0.25]])
    torch.testing.assert_close(residual(torch.tensor(n), q, p), torch.tensor([expected]))


@pytest.mark.parametrize(
    ("draft", "k", "passes"),
    [
        ([3, 3, 3], 1, [True, False, False]),
        ([3, 3, 3], 2, [True, True, False]),
        ([4, 4, 4], 4, [False, False, False]),
        ([4, 4, 4], 9, [True, True, False]),  # more than there are tokens; a filter removed it from the third row
        ([2, 3, 0], 2, [True, True, True]),
        ([0, 3, 0], 2, [False, True, True]),
    ],
)
def test_top_k_keeps_what_is_among_the_targets_best(draft: list[int], k: int, passes: list[bool]) -> None:
    """Guesses are kept up to the first token that is not among them. The target's choice follows."""
    gone = float("-inf")
    processed = torch.tensor(
        [
            [0.0, 1.0, 2.0, 3.0, -1.0],
            [1.0, 0.0, 3.0, 2.0, -1.0],
            [2.0, gone, gone, gone, gone],
            [0.0, 0.0, 0.0, 1.0, 0.0],
        ]
    )
    verdict = verify_top_k(torch.tensor(draft), processed, torch.tensor([3, 2, 0, 1]), k)
    assert verdict.accept_prob.tolist() == passes
    kept = (passes + [False]).index(False)
    assert (int(verdict.accepted), int(verdict.token_id)) == (kept, [3, 2, 0, 1][kept])
    assert verdict.draw is verdict.residual is None


def test_nothing_left_after_a_rejection() -> None:
    """Where p is below q everywhere, by rounding, no residual is left: the correction comes from p, not from 0 / 0."""
    q, p = torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.25, 0.25, 0.0], [0.2, 0.3, 0.5]])
    rng = torch.Generator().manual_seed(1)
    corrections = [
        int(verdict.token_id)
        for verdict in (verify(torch.tensor([0]), q, p, rng) for _ in range(200))
        if verdict.accepted == 0
    ]
    assert len(corrections) > 50
    assert set(corrections) == {0, 1}


def test_same_draws_same_verdict() -> None:
    """All random numbers come from the given generator."""
    rng = torch.Generator().manual_seed(5)
    q, p = torch.rand(3, 7, generator=rng).softmax(-1), torch.rand(4, 7, generator=rng).softmax(-1)
    state = torch.random.get_rng_state()
    first, second = (verify(torch.tensor([1, 2, 3]), q, p, torch.Generator().manual_seed(9)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.draw, second.draw)
    assert (int(first.accepted), int(first.token_id)) == (int(second.accepted), int(second.token_id))
    torch.testing.assert_close(first.accept_prob, (p[:3] / q).clamp(max=1)[range(3), [1, 2, 3]])
    n = int((first.draw < first.accept_prob).long().cumprod(0).sum())
    assert int(first.accepted) == n


# --- chances ---------------------------------------------------------------------------------------------------------


def random_draft(seed: int, gamma: int, width: int, peak: float, apart: float) -> tuple[torch.Tensor, ...]:
    """Draft tokens with their q, and p. ``peak`` scales the logits; ``apart`` is how far those of p are from q's."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(gamma + 1, width, generator=rng)
    p = (logits * peak).softmax(-1)
    q = ((logits + apart * torch.randn(gamma + 1, width, generator=rng))[:gamma] * peak).softmax(-1)
    return torch.multinomial(q, 1, generator=rng)[:, 0], q, p


def exact_chances(draft_ids: torch.Tensor, q: torch.Tensor, p: torch.Tensor, block: bool) -> list[Fraction]:
    """The chances of the tests in exact arithmetic, for the same p and q (Sun et al. 2403.10444, Algorithm 2)."""
    ours, theirs = ([[Fraction(value) for value in row] for row in rows.tolist()] for rows in (q, p))
    chances, weight = [], Fraction(1)
    for i, token in enumerate(draft_ids.tolist()):
        ratio = theirs[i][token] / ours[i][token]
        weight = min(Fraction(1), weight * ratio)
        after = ours[i + 1] if i + 1 < len(ours) else [Fraction(0)] * len(theirs[0])
        left = sum(max(Fraction(0), weight * a - b) for a, b in zip(theirs[i + 1], after, strict=True))
        total = left + 1 - weight
        chances.append((left / total if total else Fraction(1)) if block else min(Fraction(1), ratio))
    return chances


@pytest.mark.parametrize("judge", [verify, verify_block])
@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("peak", [0.3, 3.0, 30.0, 300.0])
def test_chances_are_those_of_exact_arithmetic(peak: float, apart: float, judge) -> None:
    """From flat to peaked distributions, and from equal ones to different ones."""
    for seed in range(12):
        draft_ids, q, p = random_draft(seed, 1 + seed % 5, 12, peak, apart)
        outcome = judge(draft_ids, q, p, torch.Generator().manual_seed(seed))
        chances = outcome.accept_prob
        assert chances.dtype == torch.float32 and ((chances >= 0) & (chances <= 1)).all()
        exact = exact_chances(draft_ids, q, p, judge is verify_block)
        torch.testing.assert_close(chances, torch.tensor([float(one) for one in exact]), rtol=1e-6, atol=1e-6)
        assert [float(one) == 1 for one in exact] == (chances == 1).tolist() or apart > 0


@pytest.mark.parametrize(
    ("q", "p", "chances"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5]] * 3, [1, 1]),  # 0 / 0
        ([[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]], [0, 0]),
        ([[1.0, 0.0], [1.0, 0.0]], [[1 - 2**-24, 2**-24], [1.0, 0.0], [0.5, 0.5]], [0, 1 - 2**-24]),
        ([[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]], [0, 0.5]),
        ([[2**-140, 1.0], [2**-140, 1.0]], [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], [0, 0]),  # 0 x p/q, which overflows
    ],
)
def test_block_chances_at_the_edges(q, p, chances: list[float]) -> None:
    outcome = verify_block(torch.tensor([0, 0]), torch.tensor(q), torch.tensor(p), torch.Generator())
    assert outcome.accept_prob.tolist() == chances


@pytest.mark.parametrize("rule", [{}, {"acceptance": "block"}, {"acceptance": "top-k", "accept_top_k": 2}])
def test_every_probability_of_an_event_is_one(rule: dict) -> None:
    """A recording of other values cannot be opened. The drafts equal their targets or nearly do: sums round above 1."""
    target, table = shared_tiny("llama", 6), random_table(48, 1, 0)
    near, equal, events = specdec.Pair(target, noisy_copy(target, 6, 1e-5)), table_pair(table, table), []
    for settings in ({"temperature": 0.2}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}):
        params = specdec.SamplingParams(max_new_tokens=30, seed=3, **settings)
        for pair, prompt in ((near, prompt_of(6)), (equal, torch.tensor([0]))):
            events += rounds_of(list(specdec.speculative(pair, prompt, gamma=5, params=params, **rule)))
    found = []
    for event in events:
        for token in event.draft:
            found += [token.draft_prob, token.target_prob, token.accept_prob, token.draw, token.draft_confidence]
            found.append(token.overlap)
        for row in (event.decision.p, event.decision.q, event.decision.residual):
            found += [value for _, value in row or ()]
    values = [value for value in found if value is not None]
    assert len(values) > 200 and all(0 <= value <= 1 for value in values)


@pytest.mark.parametrize("rule", [verify, verify_block])
def test_a_guess_that_the_target_never_writes_is_rejected_by_every_draw(rule, monkeypatch) -> None:
    """A draw may be exactly 0."""
    monkeypatch.setattr("specdec.runtime.draws.uniform", lambda count, rng, like: torch.zeros(count))
    found = rule(torch.tensor([0]), one_hot(0), torch.cat([one_hot(2), one_hot(3)]), torch.Generator().manual_seed(0))
    assert (int(found.accepted), float(found.accept_prob)) == (0, 0.0)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_after_the_limit_nothing_was_drafted(limit: int, monkeypatch) -> None:
    """Each rule judges the draft tokens before the limit as it judges a draft of these alone."""
    monkeypatch.setattr("specdec.runtime.draws.uniform", lambda count, rng, like: torch.full((count,), 0.3))
    ids, rows = torch.tensor([1, 1, 1]), torch.tensor([[0.2, 0.5, 0.2, 0.1]])
    q, p = rows.repeat(3, 1), torch.tensor([[0.1, 0.4, 0.3, 0.2]]).repeat(4, 1)
    choices, most, rng = torch.ones(4, dtype=torch.long), torch.tensor(limit), torch.Generator()
    for rule in (
        lambda n, most: verify(ids[:n], q[:n], p[: n + 1], rng.manual_seed(0), most),
        lambda n, most: verify_block(ids[:n], q[:n], p[: n + 1], rng.manual_seed(0), most),
        lambda n, most: verify_greedy(ids[:n], choices[: n + 1], most),
        lambda n, most: verify_top_k(ids[:n], p[: n + 1].log(), choices[: n + 1], 2, most),
    ):
        limited, alone = rule(3, most), rule(limit, None)
        assert int(limited.accepted) == int(alone.accepted) == limit
        assert int(limited.token_id) == int(alone.token_id)
        torch.testing.assert_close(limited.accept_prob[:limit], alone.accept_prob, check_dtype=False)
        assert (limited.residual is None) == (alone.residual is None)
        if limited.residual is not None:
            torch.testing.assert_close(limited.residual, alone.residual)


@pytest.mark.parametrize(
    ("draws", "accepted"), [((0.999, 0.999), 0), ((0.0, 0.999), 1), ((0.999, 0.0), 2), ((0.0, 0.0), 2)]
)
def test_a_block_is_accepted_up_to_its_last_test_that_passes(draws, accepted: int, monkeypatch) -> None:
    monkeypatch.setattr("specdec.runtime.draws.uniform", lambda count, rng, like: torch.tensor(draws))
    q, p = torch.tensor([[0.2, 0.5, 0.3]]).repeat(2, 1), torch.tensor([[0.3, 0.4, 0.3]]).repeat(3, 1)
    found = verify_block(torch.tensor([1, 1]), q, p, torch.Generator().manual_seed(0))
    assert int(found.accepted) == accepted and all(0 < chance < 0.999 for chance in found.accept_prob)
