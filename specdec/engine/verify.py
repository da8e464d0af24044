"""The accept / residual step of Algorithm 1 (Leviathan et al. 2211.17192) and its variants, as pure functions.

Names are Leviathan's: ``p`` is the target's distribution and ``q`` the draft's. Chen et al. 2302.01318 and gpt-fast
call them the other way round. g = gamma, the number of draft tokens; V = the target's vocabulary.

Everything stays on the device. Nothing here waits for a value, so a round needs a single synchronisation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec.runtime import draws


class VerifyResult(NamedTuple):
    """The outcome of one draft. ``draw`` and ``residual`` are None where no p / q decided."""

    accepted: torch.Tensor  # (): n, how many draft tokens are accepted; the first rejected one is at index n
    token_id: torch.Tensor  # (): the token that the target adds after them
    accept_prob: torch.Tensor  # (g,): the probability that each draft token's test passes; bool if nothing is drawn
    draw: torch.Tensor | None  # (g,): uniform on [0, 1)
    residual: torch.Tensor | None  # (1, V): the distribution that ``token_id`` was drawn from


def verify(
    draft_ids: torch.Tensor,
    q: torch.Tensor,
    p: torch.Tensor,
    rng: torch.Generator,
    limit: torch.Tensor | None = None,
) -> VerifyResult:
    """Test the draft tokens in order and draw the token after them, so that the output is distributed as ``p``.

    - draft_ids (g,): the draft tokens.
    - q (g, V): the distribution that each of them was drawn from.
    - p (g + 1, V): the target's distribution at each of them, and one more after the last.
    - limit (): how many draft tokens count; None for all. The others are treated as if they had not been drafted.
    """
    accept_prob = _ratios(draft_ids, q, p).clamp(max=1.0).to(p.dtype)
    u = draws.uniform(len(draft_ids), rng, like=p)
    n = _leading(_within(limit, u < accept_prob))
    rest = residual(n, _drafted(q, limit), p)
    return VerifyResult(n, draws.draw(rest, rng)[0], accept_prob, u, rest)


def residual(n: torch.Tensor, q: torch.Tensor, p: torch.Tensor, weight: torch.Tensor | float = 1.0) -> torch.Tensor:
    """norm(max(0, weight p - q)) at position ``n``, (1, V); ``weight`` () is 1 except in block verification.

    After a full acceptance there is no q. It counts as zero, so the residual is p itself, and the bonus token is a
    case of the correction.
    """
    p_next = p.index_select(0, n)
    q_next = torch.cat([q, torch.zeros_like(p[:1])]).index_select(0, n)
    rest = (weight * p_next - q_next).clamp(min=0.0)
    total = rest.sum()
    # Where p and q agree to the last bit the residual is empty. Rounding may still have rejected: then p is right.
    return torch.where(total > 0, rest / total, p_next)


def verify_block(
    draft_ids: torch.Tensor,
    q: torch.Tensor,
    p: torch.Tensor,
    rng: torch.Generator,
    limit: torch.Tensor | None = None,
) -> VerifyResult:
    """Judge the draft as a whole (Sun et al. 2403.10444, Algorithm 2). Arguments and result are those of ``verify``.

    It is lossless too, and on average it keeps no less. Every place is tested, and the draft is accepted up to the last
    test that passes. With w_0 = 1, the first i draft tokens have the weight w_i = min(1, w_{i-1} p/q). The mass that
    the target has left after them is r_i = sum of max(0, w_i p - q), where q is that of the next draft token. Their
    test passes with probability r_i / (r_i + 1 - w_i). After the n accepted ones the next token is drawn from
    norm(max(0, w_n p - q)).
    """
    # All in float64: the little that close distributions differ by would be lost in float32.
    weights = [torch.ones_like(p[0, 0], dtype=torch.float64)]
    for ratio in _ratios(draft_ids, q, p):
        weights.append((weights[-1] * ratio).clamp(max=1.0))
    weight = torch.stack(weights)
    q = _drafted(q, limit)
    left = (weight[:, None] * p - torch.cat([q, torch.zeros_like(p[:1])])).clamp(min=0.0).sum(-1)
    total = left + (1 - weight)  # neither part is negative, so ``left`` is no more than it
    # 0 / 0 occurs where p and q agree and all tokens before are accepted for certain.
    accept_prob = torch.where(total == 0, 1.0, left / total)[1:].to(p.dtype)
    u = draws.uniform(len(draft_ids), rng, like=p)
    n = _last(_within(limit, u < accept_prob))
    rest = residual(n, q, p, weight.take(n))
    return VerifyResult(n, draws.draw(rest, rng)[0], accept_prob, u, rest)


def verify_greedy(draft_ids: torch.Tensor, choices: torch.Tensor, limit: torch.Tensor | None = None) -> VerifyResult:
    """``verify`` at temperature 0, where p and q are one-hot: a draft token is accepted if the target chose it too.

    draft_ids (g,). choices (g + 1,): the target's most likely token at each position. limit (): as in ``verify``.
    """
    if not len(draft_ids):  # plain decoding: a shortcut, because all time beside the pass is overhead
        return VerifyResult(draft_ids.new_zeros(()), choices[0], draft_ids, None, None)
    match = draft_ids == choices[:-1]
    n = _leading(_within(limit, match))
    return VerifyResult(n, choices.take(n), match, None, None)


def verify_top_k(
    draft_ids: torch.Tensor, processed: torch.Tensor, choices: torch.Tensor, k: int, limit: torch.Tensor | None = None
) -> VerifyResult:
    """Accept a draft token that is among the target's ``k`` most likely ones. Not lossless: faster, and another text.

    - processed (g + 1, V): the target's processed logits. A token that a filter removed (-inf) is never accepted.
    - choices (g + 1,): the token that the target would add at each position, drawn from p or its most likely one.
    - limit (): as in ``verify``.
    """
    best = processed[:-1].topk(min(k, processed.shape[-1]))
    passes = ((best.indices == draft_ids[:, None]) & (best.values > float("-inf"))).any(-1)
    n = _leading(_within(limit, passes))
    return VerifyResult(n, choices.take(n), passes, None, None)


def _ratios(draft_ids: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """p/q at each draft token, (g,), in float64, where no quotient of two float32 numbers is infinite."""
    at = draft_ids[:, None]
    return (p[:-1].gather(1, at).double() / q.gather(1, at).double()).squeeze(1)


def _drafted(q: torch.Tensor, limit: torch.Tensor | None) -> torch.Tensor:
    """``q`` (g, V) with zeros after ``limit``, where no draft token counts."""
    return q if limit is None else q * (_numbers(len(q), limit) < limit)[:, None]


def _within(limit: torch.Tensor | None, flags: torch.Tensor) -> torch.Tensor:
    """``flags`` (g,), False from ``limit`` on."""
    return flags if limit is None else flags & (_numbers(len(flags), limit) < limit)


def _numbers(count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(count, device=like.device)


def _leading(flags: torch.Tensor) -> torch.Tensor:
    """How many flags are set before the first that is not, ()."""
    return flags.cumprod(0).sum()


def _last(flags: torch.Tensor) -> torch.Tensor:
    """The number of the last flag that is set, counted from 1, (); 0 where none is."""
    return flags.flip(0).cumsum(0).gt(0).sum()
