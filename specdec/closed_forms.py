"""The closed forms of Leviathan et al. 2211.17192: expected tokens, expected gain, break-even acceptance.

``cost_coefficient`` (c) is seconds of a draft pass / seconds of a target pass over one token. ``one_pass`` says that a
draft takes one pass, whatever its length (a block drafter, such as DFlash or P-EAGLE); else each guess takes one.
"""

from __future__ import annotations

from collections.abc import Mapping


def expected_tokens(alpha: float, gamma: int) -> float:
    """Expected tokens for each target pass, (1 - alpha^(gamma+1)) / (1 - alpha): Leviathan et al., equation 1."""
    if alpha >= 1:
        return gamma + 1
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def draft_passes(gamma: int, one_pass: bool = False) -> int:
    """The draft passes of a round with ``gamma`` guesses: gamma, or one where a draft takes one pass."""
    return min(gamma, 1) if one_pass else gamma


def expected_speedup(
    alpha: float, gamma: int, cost_coefficient: float, verify_growth: float = 1.0, one_pass: bool = False
) -> float:
    """Expected gain over plain decoding by the same loop, a factor. With ``verify_growth`` 1 it is Theorem 3.8.

    ``verify_growth`` is seconds of a target pass over gamma + 1 tokens / seconds of one over a single token.
    """
    return expected_tokens(alpha, gamma) / (draft_passes(gamma, one_pass) * cost_coefficient + verify_growth)


def break_even_alpha(gamma: int, round_cost: float) -> float | None:
    """The acceptance rate at which a round of ``gamma`` guesses writes as many tokens as it costs, by the closed form.

    ``round_cost`` is seconds of a round / seconds per token of what the round is compared with. With gamma c + v (c + v
    of a block drafter), that is our loop without a draft. None where a round costs more than it writes even if all
    guesses are kept.
    """
    if round_cost > gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, gamma) < round_cost else (low, middle)
    return high


def least_alpha(cost_coefficient: float, verify_growth: Mapping[int, float], one_pass: bool = False) -> float | None:
    """The acceptance rate above which the best of some draft lengths gains, by the closed form.

    ``verify_growth`` has the v of each of these lengths, which are 1 or more. None where none of them gains at any
    rate. With v = 1 at every length and a cost coefficient below 1, it is the cost coefficient itself where each guess
    takes a pass.
    """
    costs = {g: draft_passes(g, one_pass) * cost_coefficient + v for g, v in verify_growth.items()}
    rates = (break_even_alpha(g, cost) for g, cost in costs.items())
    return min((rate for rate in rates if rate is not None), default=None)
