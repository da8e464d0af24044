"""The closed forms of Leviathan et al. 2211.17192: expected tokens, expected gain, break-even acceptance."""

from __future__ import annotations


def expected_tokens(alpha: float, gamma: int) -> float:
    """Expected tokens for each target pass, (1 - alpha^(gamma+1)) / (1 - alpha): Leviathan et al., equation 1."""
    if alpha >= 1:
        return gamma + 1
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_speedup(alpha: float, gamma: int, cost_coefficient: float, verify_growth: float = 1.0) -> float:
    """Expected gain over plain decoding by the same loop, a factor. With ``verify_growth`` 1 it is Theorem 3.8.

    ``cost_coefficient`` is seconds of a draft pass / seconds of a target pass over one token. ``verify_growth`` is
    seconds of a target pass over gamma + 1 tokens / seconds of one over a single token.
    """
    return expected_tokens(alpha, gamma) / (gamma * cost_coefficient + verify_growth)


def break_even_alpha(gamma: int, round_cost: float) -> float | None:
    """The acceptance rate at which a round of ``gamma`` guesses writes as many tokens as it costs, by the closed form.

    ``round_cost`` is seconds of a round / seconds per token of what the round is compared with. With gamma c + v, that
    is our loop without a draft. None where a round costs more than it writes even if all guesses are kept.
    """
    if round_cost > gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, gamma) < round_cost else (low, middle)
    return high


def least_alpha(cost_coefficient: float, verify_growth: float = 1.0, longest: int = 16) -> float | None:
    """The acceptance rate above which the best draft length of 1 to ``longest`` gains, by the closed form.

    None where no draft length gains at any rate. With ``verify_growth`` 1 and a cost
    coefficient below 1 it is the cost coefficient itself.
    """
    rates = (break_even_alpha(g, g * cost_coefficient + verify_growth) for g in range(1, longest + 1))
    return min((rate for rate in rates if rate is not None), default=None)
