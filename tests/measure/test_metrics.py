"""Rates from counts and seconds against values by hand, and the papers' closed forms against simulation."""

from __future__ import annotations

import random

import pytest

from specdec.closed_forms import expected_speedup, expected_tokens
from specdec.events import DraftToken, Finished, Round
from specdec.measure.metrics import compute_metrics, latency_reduction, pool, repeated_ngrams, speedup, speedup_total


def token(status: str) -> DraftToken:
    return DraftToken(1, status, 1.0, None, None, None, None, 0.5)


def round_of(index: int, draft: str | None, committed: int, elapsed: float, whole: bool = True, **seconds) -> Round:
    """A round from letters: a accepted, r rejected, d discarded; None for a draft that cannot be observed."""
    names = {"a": "accepted", "r": "rejected", "d": "discarded"}
    seconds = {"draft_seconds": 0.1, "verify_seconds": 0.2, "model_seconds": 0.15} | seconds
    return Round(
        index=index,
        draft=None if draft is None else tuple(token(names[letter]) for letter in draft),
        token_id=2 if whole else None,
        token_kind="bonus" if whole else None,
        committed_ids=(2,) * committed,
        elapsed_seconds=elapsed,
        **seconds,
    )


RUN = [
    round_of(0, "", 1, 1.0),
    round_of(1, "aaaa", 5, 2.0),
    round_of(2, "ardd", 2, 3.0),
    round_of(3, "rddd", 1, 4.0),
    round_of(4, "aad", 2, 5.0, whole=False),  # EOS was the second draft token
    Finished("eos", 1.0, 5.5),
]


def test_every_figure_of_a_run() -> None:
    """11 tokens, 10 of them in 4 s after the first; 7 accepted of 9 tested of 15; 8 tokens in 3 whole passes."""
    m = compute_metrics(RUN)
    assert (m.new_tokens, m.decode_tokens, m.target_passes) == (11, 10, 4)
    assert (m.accepted, m.rejected, m.discarded) == (7, 2, 6)
    assert m.alpha == pytest.approx(7 / 9)
    assert m.draft_acceptance_rate == pytest.approx(7 / 15)
    assert m.mean_acceptance_length == pytest.approx(8 / 3)
    assert (m.prefill_seconds, m.decode_seconds) == (1.0, 4.0)
    assert m.tokens_per_second == pytest.approx(2.5)
    assert m.seconds_per_token == pytest.approx(0.4)
    assert (m.draft_seconds, m.verify_seconds) == (pytest.approx(0.4), pytest.approx(0.8))
    assert m.overhead_share == pytest.approx(1 - 0.6 / 4)


def test_the_processors_share_is_of_the_whole_call() -> None:
    """4 s of processor time in a call of 5 s; unknown for a call that did not end, and so for both together."""
    ended = compute_metrics([*RUN[:-1], Finished("eos", 1.0, 5.5, 4.0)])
    assert ended.cpu_share == pytest.approx(0.8)
    assert pool([ended, ended]).cpu_share == pytest.approx(0.8)
    stopped = compute_metrics(RUN[:-1])
    assert stopped.cpu_share is None and pool([ended, stopped]).cpu_share is None


def test_alpha_counts_tested_tokens_only() -> None:
    """Alpha counts tested guesses only. At alpha 0.8 and gamma 4, vLLM's accepted / drafted is 0.59."""
    rng, rounds = random.Random(0), [round_of(0, "", 1, 0.5)]
    for index in range(1, 20_001):
        n = next((i for i in range(4) if rng.random() > 0.8), 4)
        rounds.append(round_of(index, "a" * n + ("r" + "d" * (3 - n) if n < 4 else ""), n + 1, index))
    m = compute_metrics(rounds)
    assert m.alpha == pytest.approx(0.8, abs=0.01)
    assert m.draft_acceptance_rate == pytest.approx(0.59, abs=0.01)
    assert m.mean_acceptance_length == pytest.approx(expected_tokens(0.8, 4), abs=0.02)


def test_nothing_yet() -> None:
    """Before the first token there are no figures, and after it no rate yet."""
    assert compute_metrics([]) is None
    m = compute_metrics(RUN[:1])
    assert (m.new_tokens, m.decode_tokens, m.prefill_seconds) == (1, 0, 1.0)
    assert m.tokens_per_second is None and m.seconds_per_token is None
    assert m.alpha is None and m.draft_acceptance_rate is None and m.mean_acceptance_length is None


def test_plain_decoding_has_no_alpha() -> None:
    """Without guesses the acceptance is unknown, not 0."""
    m = compute_metrics([round_of(i, "", 1, 1.0 + i) for i in range(5)])
    assert (m.alpha, m.draft_acceptance_rate, m.accepted) == (None, None, 0)
    assert m.mean_acceptance_length == 1
    assert m.tokens_per_second == pytest.approx(1.0)


def test_what_a_lane_cannot_observe_is_none() -> None:
    """Assisted generation streams accepted ids, which give tokens a pass but no kinds and no pass times."""
    unseen = {"draft_seconds": None, "verify_seconds": None, "model_seconds": None}
    rounds = [round_of(i, None, n, 1.0 + i, whole=False, **unseen) for i, n in enumerate((3, 4, 2, 1))]
    m = compute_metrics([*rounds, Finished("length", 1.0, 4.0)])
    assert (m.alpha, m.draft_acceptance_rate, m.accepted, m.rejected, m.discarded) == (None,) * 5
    assert (m.draft_seconds, m.verify_seconds, m.overhead_share) == (None,) * 3
    assert m.mean_acceptance_length == pytest.approx(3.0)  # the last pass may be a cut one
    assert (m.new_tokens, m.decode_tokens) == (10, 7)
    assert m.tokens_per_second == pytest.approx(7 / 3)


def test_speedup_is_a_factor_per_token() -> None:
    """The speed-up compares seconds a token after the first, so texts of unequal length compare; 1.0 is no change."""
    plain = compute_metrics([round_of(i, "", 1, 1.0 + i) for i in range(6)])  # 1 token/s
    fast = compute_metrics(RUN)  # 2.5 tokens/s
    assert speedup(plain, fast) == pytest.approx(2.5)
    assert speedup(fast, plain) == pytest.approx(0.4)
    assert speedup(plain, plain) == 1
    assert speedup_total(plain, fast) == pytest.approx((6 / 6) / (5 / 11))
    assert speedup(compute_metrics(RUN[:1]), fast) is None and speedup(plain, compute_metrics(RUN[:1])) is None
    assert latency_reduction(2.0) == pytest.approx(0.5)
    assert latency_reduction(0.5) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("alpha", "gamma", "tokens"),
    [(0.0, 5, 1.0), (1.0, 5, 6.0), (0.5, 1, 1.5), (0.5, 2, 1.75), (0.8, 4, 3.3616), (0.3, 0, 1.0), (1.0, 0, 1.0)],
)
def test_expected_tokens(alpha: float, gamma: int, tokens: float) -> None:
    """Equation 1 of Leviathan et al., with its limit at alpha 1."""
    assert expected_tokens(alpha, gamma) == pytest.approx(tokens)
    assert expected_tokens(1 - 1e-9, 5) == pytest.approx(6.0, abs=1e-5)


def test_expected_speedup() -> None:
    """Theorem 3.8 with verify_growth 1; table 1 of the paper: alpha 0.8, gamma 5 is 3.69 times at c = 0."""
    assert expected_speedup(0.8, 5, 0.0) == pytest.approx(3.69, abs=0.005)
    assert expected_speedup(0.9, 10, 0.0) == pytest.approx(6.86, abs=0.005)
    assert expected_speedup(0.8, 4, 0.1) == pytest.approx(3.3616 / 1.4)
    assert expected_speedup(1.0, 4, 0.25, verify_growth=1.5) == pytest.approx(5 / 2.5)
    assert expected_speedup(0.7, 0, 0.3) == 1


def test_repeated_ngrams() -> None:
    """The share of repeated 4-grams shows repeating text, which is easy to guess."""
    assert repeated_ngrams([]) == repeated_ngrams([1, 2, 3]) == 0
    assert repeated_ngrams(range(20)) == 0
    assert repeated_ngrams([1] * 20) == pytest.approx(16 / 17)
    assert repeated_ngrams([1, 2, 1, 2, 1, 2], n=2) == pytest.approx(1 - 2 / 5)


def test_the_cost_of_reading_again_is_the_time_beyond_a_pass_without_it() -> None:
    """Reading again costs the time of a pass beyond the median pass over as many guesses.

    It is unknown without such passes.
    """
    usual = [round_of(1, "aa", 3, 2.0, verify_seconds=0.2), round_of(2, "rd", 1, 3.0, verify_seconds=0.3)]
    again = round_of(3, "ad", 1, 4.0, verify_seconds=0.45, reread=1, state_seconds=0.01)
    found = compute_metrics([round_of(0, "", 1, 1.0), *usual, again])
    assert found.reread_seconds == pytest.approx(0.2) and found.state_seconds == pytest.approx(0.01)
    other = round_of(3, "aad", 2, 4.0, verify_seconds=0.45, reread=1)
    assert compute_metrics([round_of(0, "", 1, 1.0), *usual, other]).reread_seconds is None
    many = [again] * 10  # one in eleven has no pass to compare with, the others have
    assert compute_metrics([round_of(0, "", 1, 1.0), *usual, *many, other]).reread_seconds == pytest.approx(2.0)
