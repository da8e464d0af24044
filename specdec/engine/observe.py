"""What a round looked like: everything an event says, brought to the host in one transfer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch

from specdec.drafters.base import Proposal
from specdec.engine.verify import Verdict
from specdec.errors import NotNumbers
from specdec.events import Decision, DraftToken

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
    margin: float | None
    decision: Decision
    missed: tuple[tuple[int, float], ...]


def observe(
    proposal: Proposal, verdict: Verdict, logits: torch.Tensor, choices: torch.Tensor, p: torch.Tensor | None
) -> Observed:
    """Gather a round's figures; this is where the host waits for the device.

    logits (g + 1, V): the target's raw ones. choices (g + 1,): its most likely tokens. p (g + 1, V): None in greedy.
    """
    gamma, at, width = len(proposal.ids), verdict.accepted, min(TOP, logits.shape[-1])
    # Raw log-probabilities: the target's where it decided, then the draft's at its guesses.
    raw = torch.cat([_row(logits, at), *proposal.logits]).log_softmax(-1)
    nats = -_of(raw[1:], proposal.guesses) if proposal.logits else cast(torch.Tensor, proposal.nats)
    # The rows to show where the target decided: p, q, the residual. Where all of the draft stood, the last two are of
    # no consequence and left out below, when the host knows.
    if p is None:
        shown = [raw[:1], _row(raw[1:], at)] if proposal.logits else [raw]
        sampled = []
    else:
        q = cast(torch.Tensor, proposal.q)  # None in greedy decoding only
        shown = [_row(p, at), _row(q, at)] if gamma else [_row(p, at)]
        shown += [] if verdict.residual is None else [verdict.residual]
        sampled = [raw[0].topk(2).values, _of(q, proposal.ids), _of(p[:gamma], proposal.ids)]
        sampled += [] if verdict.draw is None else [verdict.draw]
    top = torch.cat(shown).topk(width)
    # NaN or infinite where a row holds such a value: the largest is found already, unless a filter was between.
    peaks = _of(logits, choices) if p is None else logits.amax(-1)
    n, highest, token_id, chosen, guesses, nats, accept_prob, tokens, values, *drawn = _to_host(
        at,
        peaks,
        verdict.token_id,
        choices,
        proposal.guesses,
        nats,
        verdict.accept_prob,
        top.indices,
        top.values,
        *sampled,
    )
    _require_numbers("target", highest)
    _require_numbers("draft", (nat for nat in nats if nat != math.inf))  # a token of probability 0 is none of these
    confidence = [math.exp(-value) for value in nats]
    if p is None:
        best = values[0]
        values = [[math.exp(value) for value in row] for row in values]
        # One-hot: the draft was certain of its token, and the target of its own choice.
        draft_prob, draw = [1.0] * gamma, []
        target_prob = [float(guess == choice) for guess, choice in zip(guesses[:gamma], chosen, strict=False)]
    else:
        best, draft_prob, target_prob, *draw = drawn
    tables = [_table(*table) for table in zip(tokens, values, strict=True)]
    stands = n == gamma  # the whole draft: no guess and no residual at the target's token
    return Observed(
        accepted=n,
        token_id=token_id,
        draft_ids=guesses[:gamma],
        draft_prob=draft_prob,
        target_prob=target_prob,
        accept_prob=[float(value) for value in accept_prob],
        draw=draw[0] if draw else None,
        choices=chosen,
        confidence=confidence[:gamma],
        margin=best[0] - best[1] if best[1] > -math.inf else None,  # a model may rule out all tokens but one
        decision=Decision(
            p=tables[0],
            q=None if stands or (p is None and not proposal.logits) else tables[1],
            residual=None if stands or verdict.residual is None else tables[2],
        ),
        missed=tuple(zip(guesses[gamma:], confidence[gamma:], strict=True)),
    )


def draft_tokens(seen: Observed, committed: int) -> tuple[DraftToken, ...]:
    """The draft's tokens with their statuses; ``committed`` is how many tokens the round appended.

    Where EOS or a stop string falls inside the draft, what stands behind it was of no consequence and counts as
    discarded.
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


def _require_numbers(whose: str, values: Iterable[float]) -> None:
    """Refuse what can be neither compared nor drawn from: a call with it would go on to the end without a word."""
    if not all(map(math.isfinite, values)):
        raise NotNumbers(whose)


def _row(rows: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """The row at the decision, (1, V); the last one where a draft has none, as all of it stood."""
    last = len(rows) - 1
    if rows.device.type == "cpu":  # nothing to wait for, and a view copies nothing
        n = min(int(at), last)
        return rows[n : n + 1]
    return rows.index_select(0, at.clamp(max=last))


def _of(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The value of ``ids[i]`` in row i, (n,)."""
    return rows.gather(1, ids[:, None])[:, 0]


def _to_host(*parts: torch.Tensor) -> list[Any]:
    """Every part as numbers in lists, in one transfer. Joined as float32, in which ids up to 16 million stay exact."""
    if parts[0].device.type != "cpu":
        joined = torch.cat([part.flatten() for part in parts]).cpu()
        pieces = joined.split([part.numel() for part in parts])
        parts = tuple(piece.view(part.shape).to(part.dtype) for piece, part in zip(pieces, parts, strict=True))
    return [part.tolist() for part in parts]


def _table(tokens: list[int], values: list[float]) -> tuple[tuple[int, float], ...]:
    """Token ids with their probabilities; what a filter set to zero is not shown."""
    return tuple(pair for pair in zip(tokens, values, strict=True) if pair[1] > 0)
