"""What a round looked like: everything an event says, brought to the host in one transfer."""

from __future__ import annotations

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
    gamma, ids = len(proposal.ids), proposal.ids[:, None]
    at = verdict.accepted.view(1)
    if p is None:
        draft_prob, target_prob = torch.ones_like(verdict.accept_prob), verdict.accept_prob
    else:
        draft_prob, target_prob = proposal.q.gather(1, ids)[:, 0], p[:gamma].gather(1, ids)[:, 0]
    # The rows to show where the target decided: p, then q unless the whole draft stood, then the residual.
    target_row = logits.index_select(0, at)
    q_at = at.clamp(max=max(gamma - 1, 0))
    if p is None:
        rows = torch.cat([target_row, proposal.logits.index_select(0, q_at)]) if gamma else target_row
        values, tokens = rows.topk(min(TOP, rows.shape[-1]))
        margin = values[:1, 0] - values[:1, 1]
        values = (values - rows.logsumexp(-1, keepdim=True)).exp()
    else:
        rows = [p.index_select(0, at)]
        rows += [proposal.q.index_select(0, q_at)] if gamma else []
        rows += [verdict.residual] if verdict.residual is not None else []
        rows = torch.cat(rows)
        values, tokens = rows.topk(min(TOP, rows.shape[-1]))
        best = target_row.topk(2).values
        margin = best[:, 0] - best[:, 1]
    parts = [
        verdict.accepted.view(1),
        verdict.token_id.view(1),
        proposal.ids,
        draft_prob,
        target_prob,
        verdict.accept_prob,
        verdict.accept_prob if verdict.draw is None else verdict.draw,
        choices,
        _probability(proposal.logits, proposal.ids),
        margin,
        tokens.flatten(),
        values.flatten(),
        proposal.missed_choices,
        _probability(proposal.missed_logits, proposal.missed_choices),
    ]
    # Token ids stay exact in float64, and one transfer is one wait.
    host = torch.cat([part.double() for part in parts]).tolist()
    pieces, start = [], 0
    for part in parts:
        pieces.append(host[start : start + len(part)])
        start += len(part)
    n = int(pieces[0][0])
    shown = [tuple(zip(map(int, t), v, strict=True)) for t, v in _grid(pieces[10], pieces[11], len(rows))]
    return Observed(
        accepted=n,
        token_id=int(pieces[1][0]),
        draft_ids=[int(i) for i in pieces[2]],
        draft_prob=pieces[3],
        target_prob=pieces[4],
        accept_prob=pieces[5],
        draw=None if verdict.draw is None else pieces[6],
        choices=[int(i) for i in pieces[7]],
        confidence=pieces[8],
        margin=pieces[9][0],
        decision=Decision(
            p=shown[0],
            q=shown[1] if n < gamma else None,
            residual=shown[-1] if verdict.residual is not None and n < gamma else None,
        ),
        missed=tuple(zip(map(int, pieces[12]), pieces[13], strict=True)),
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


def _probability(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The raw softmax of each row at its id, (n,)."""
    return (logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)).exp()


def _grid(tokens: list[float], values: list[float], rows: int):
    width = len(tokens) // rows
    return ((tokens[i : i + width], values[i : i + width]) for i in range(0, len(tokens), width))
