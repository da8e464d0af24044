"""What a round looked like: everything an event says, brought to the host in one transfer."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

import torch

from specdec.drafting import Proposal
from specdec.events import Decision, DraftToken
from specdec.verify import Verdict

TOP = 10


class Observed(NamedTuple):
    """Host values of one round: g draft tokens, of which ``accepted`` stand."""

    accepted: int
    token_id: int
    draft_ids: list[int]
    draft_prob: list[float]
    target_prob: list[float]
    accept_prob: list[float]
    draw: list[float] | None
    choices: list[int]
    confidence: list[float]
    margin: float
    decision: Decision
    missed: tuple[tuple[int, float], ...]


def observe(
    proposal: Proposal, verdict: Verdict, logits: torch.Tensor, choices: torch.Tensor, p: torch.Tensor | None
) -> Observed:
    """Gather a round's figures; this is where the host waits for the device.

    logits (g + 1, V): the target's raw ones. choices (g + 1,): its most likely tokens. p (g + 1, V): None in greedy.
    """
    gamma, at = len(proposal.ids), verdict.accepted.view(1)
    # One softmax over every raw row a figure is read from: the target's at the decision, the drafts', the missed.
    raw = torch.cat([logits.index_select(0, at), proposal.logits, proposal.missed_logits])
    log_probs = raw.log_softmax(-1)
    guessed = torch.cat([proposal.ids, proposal.missed_choices])
    # The rows to show where the target decided: p, then q unless the whole draft stood, then the residual.
    if p is None:
        places = torch.cat([at * 0, (at + 1).clamp(max=gamma)]) if gamma else at * 0
        top = log_probs.index_select(0, places).topk(min(TOP, raw.shape[-1]))
        sampled = []
    else:
        rows = [p.index_select(0, at)]
        rows += [proposal.q.index_select(0, at.clamp(max=gamma - 1))] if gamma else []
        rows += [verdict.residual] if verdict.residual is not None else []
        top = torch.cat(rows).topk(min(TOP, raw.shape[-1]))
        ids = proposal.ids[:, None]
        sampled = [proposal.q.gather(1, ids)[:, 0], p[:gamma].gather(1, ids)[:, 0], log_probs[0].topk(2).values]
        sampled += [] if verdict.draw is None else [verdict.draw]
    (n,), (token_id,), guessed, choices, confidence, accept_prob, tokens, values, *sampled = _to_host(
        at,
        verdict.token_id.view(1),
        guessed,
        choices,
        log_probs[1:].gather(1, guessed[:, None])[:, 0],
        verdict.accept_prob,
        top.indices.flatten(),
        top.values.flatten(),
        *sampled,
    )
    if p is None:
        best, values = values[:2], [math.exp(value) for value in values]
        # One-hot: the draft was certain of its token, and the target of its own choice.
        draft_prob, draw = [1.0] * gamma, None
        target_prob = [float(guess == choice) for guess, choice in zip(guessed[:gamma], choices, strict=False)]
    else:
        draft_prob, target_prob, best, *draw = sampled
    width, whole = top.indices.shape[1], n == gamma
    tables = [_table(tokens[i : i + width], values[i : i + width]) for i in range(0, len(values), width)]
    return Observed(
        accepted=int(n),
        token_id=int(token_id),
        draft_ids=[int(i) for i in guessed[:gamma]],
        draft_prob=draft_prob,
        target_prob=target_prob,
        accept_prob=accept_prob,
        draw=draw[0] if draw else None,
        choices=[int(i) for i in choices],
        confidence=[math.exp(value) for value in confidence[:gamma]],
        margin=best[0] - best[1],
        decision=Decision(
            p=tables[0],
            q=None if whole else tables[1],
            residual=None if whole or verdict.residual is None else tables[2],
        ),
        missed=tuple((int(i), math.exp(value)) for i, value in zip(guessed[gamma:], confidence[gamma:], strict=True)),
    )


def draft_tokens(seen: Observed, committed: int) -> tuple[DraftToken, ...]:
    """The draft's tokens with their statuses; ``committed`` is how many tokens the round appended.

    Where EOS, a stop string or the length cut falls inside the draft, what stands behind it was of no consequence
    and counts as discarded.
    """
    tested = seen.accepted + 1 if committed > seen.accepted else committed
    tokens = []
    for i, token_id in enumerate(seen.draft_ids):
        if i >= tested:
            tokens.append(
                DraftToken(token_id, "discarded", seen.draft_prob[i], None, None, None, None, seen.confidence[i])
            )
            continue
        tokens.append(
            DraftToken(
                token_id=token_id,
                status="accepted" if i < seen.accepted else "rejected",
                draft_prob=seen.draft_prob[i],
                target_prob=seen.target_prob[i],
                accept_prob=seen.accept_prob[i],
                draw=seen.draw[i] if seen.draw else None,
                target_token_id=seen.choices[i],
                draft_confidence=seen.confidence[i],
            )
        )
    return tuple(tokens)


def _to_host(*parts: torch.Tensor) -> list[list[float]]:
    """Every part as a list, in one transfer. Joined as float32, in which ids up to 16 million stay exact."""
    host = torch.cat(parts).tolist()
    ends = list(accumulate(len(part) for part in parts))
    return [host[end - len(part) : end] for part, end in zip(parts, ends, strict=True)]


def _table(tokens: list[float], values: list[float]) -> tuple[tuple[int, float], ...]:
    """Token ids with their probabilities; what a filter set to zero is not shown."""
    return tuple((int(token), value) for token, value in zip(tokens, values, strict=True) if value > 0)
