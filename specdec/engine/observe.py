"""Gathers on the device everything that a round's event will say, and brings it to the host in one transfer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch

from specdec.drafters.base import Proposal
from specdec.engine.verify import VerifyResult
from specdec.errors import NotNumbers
from specdec.events import Decision, DraftToken
from specdec.forward.engine import Engine

TOP = 10


class RoundValues(NamedTuple):
    """The values of one round on the host: g draft tokens, of which the first ``accepted`` are accepted."""

    accepted: int
    token_id: int
    draft_ids: list[int]
    draft_prob: list[float]
    target_prob: list[float]
    accept_prob: list[float]
    draw: list[float] | None
    overlap: list[float] | None
    choices: list[int]
    confidence: list[float]
    margin: float | None
    decision: Decision
    missed: tuple[tuple[int, float], ...]


class TargetStep(NamedTuple):
    """The result of the target's pass over g draft tokens, on the device."""

    outcome: VerifyResult
    logits: torch.Tensor  # (g + 1, V): the target's raw ones
    choices: torch.Tensor  # (g + 1,): its most likely tokens
    p: torch.Tensor | None  # (g + 1, V); None in greedy


class RoundTensors(NamedTuple):
    """What the host needs of a round, still on the device: its parts by name.

    ``joined`` holds all parts in one row of float32, where the host has to wait for them; None elsewhere. In float32,
    ids up to 16 million are exact.
    """

    parts: dict[str, torch.Tensor]
    joined: torch.Tensor | None


def observe_round(engine: Engine, proposal: Proposal, decided: TargetStep, waits: bool) -> RoundValues:
    """What is worth telling of a round, on the host, which waits for the device here.

    ``waits``: whether it waits wherever it reads a value (``TokenBuffer.blocks_host``). Then it reads once.
    """
    gathered = engine.run("gather", proposal.key, lambda: _collect(proposal, decided, waits))
    return _values(gathered, proposal.choices.already_reported)


def _collect(proposal: Proposal, decided: TargetStep, waits: bool) -> RoundTensors:
    """Gather a round's figures.

    Where the host ``waits`` for the device, nothing is read here: rows are selected on the device.
    """
    outcome, logits, choices, p = decided
    gamma, at, width = len(proposal.ids), outcome.accepted, min(TOP, logits.shape[-1])
    drafts = proposal.choices
    # Raw log-probabilities: the target's where it decided, then the draft's at its choices.
    raw = torch.cat([_row(logits, at, waits), *drafts.logits]).log_softmax(-1)
    neg_log_probs = -_of(raw[1:], drafts.ids) if drafts.neg_log_probs is None else drafts.neg_log_probs
    # The rows to show at the place where the target added its token: p, q, the residual. After a full acceptance q and
    # the residual mean nothing there; ``_values`` leaves them out, because only the host knows which case it is.
    if p is None:
        shown = [raw[:1], _row(raw[1:], at, waits)] if drafts.logits else [raw]
        sampled = {}
    else:
        q = cast(torch.Tensor, proposal.q)  # None in greedy decoding only
        shown = [_row(p, at, waits), _row(q, at, waits)] if gamma else [_row(p, at, waits)]
        sampled = {"best": raw[0].topk(2).values, "q": _of(q, proposal.ids), "p": _of(p[:gamma], proposal.ids)}
        sampled["overlap"] = torch.minimum(p[:gamma], q).sum(-1).clamp(max=1.0)  # rounding may add up to more
        if outcome.residual is not None:
            shown.append(outcome.residual)
        if outcome.draw is not None:
            sampled["draw"] = outcome.draw
    top = torch.cat(shown).topk(width)
    parts = {
        "accepted": at,
        # NaN and infinity show in a row's largest value (-inf is allowed), and in greedy decoding in the chosen one.
        "peaks": _of(logits, choices) if p is None else logits.amax(-1),
        "token_id": outcome.token_id,
        "choices": choices,
        "guesses": drafts.ids,
        "neg_log_probs": neg_log_probs,
        "accept_prob": outcome.accept_prob,
        "tokens": top.indices,
        "values": top.values,
        **sampled,
        **({} if proposal.limit is None else {"limit": proposal.limit}),
    }
    return RoundTensors(parts, torch.cat([part.flatten().float() for part in parts.values()]) if waits else None)


def _values(gathered: RoundTensors, already_reported: int) -> RoundValues:
    """Bring a round's figures to the host. ``already_reported``: see ``DraftChoices``."""
    seen = _to_host(gathered)
    n, drafted, values = seen["accepted"], len(seen["accept_prob"]), seen["values"]
    gamma = seen.get("limit", drafted)
    _require_numbers("target", seen["peaks"])
    neg_log_probs = seen["neg_log_probs"]
    _require_numbers("draft", (value for value in neg_log_probs if value != math.inf))  # a probability of 0 is no fault
    confidence = [math.exp(-value) for value in neg_log_probs]
    guesses = seen["guesses"]
    greedy = "best" not in seen
    if greedy:
        best = values[0]
        values = [[math.exp(value) for value in row] for row in values]
        # One-hot: the draft was certain of its token, and the target of its own choice.
        draft_prob = [1.0] * gamma
        target_prob = [float(guess == choice) for guess, choice in zip(guesses[:gamma], seen["choices"], strict=False)]
    else:
        best, draft_prob, target_prob = seen["best"], seen["q"], seen["p"]
    tables = [_table(*table) for table in zip(seen["tokens"], values, strict=True)]
    all_accepted = n == gamma  # then there is no guess and no residual at the target's token
    new = slice(drafted + already_reported, None)
    return RoundValues(
        accepted=n,
        token_id=seen["token_id"],
        draft_ids=guesses[:gamma],
        draft_prob=draft_prob,
        target_prob=target_prob,
        accept_prob=[float(value) for value in seen["accept_prob"]],
        draw=seen.get("draw"),
        overlap=seen.get("overlap"),
        choices=seen["choices"],
        confidence=confidence[:gamma],
        margin=best[0] - best[1] if best[1] > -math.inf else None,  # a model may rule out all tokens but one
        decision=Decision(
            p=tables[0],
            q=None if all_accepted or len(tables) < 2 else tables[1],
            residual=None if all_accepted or len(tables) < 3 else tables[2],
        ),
        missed=tuple(zip(guesses[new], confidence[new], strict=True)),
    )


def draft_tokens(seen: RoundValues, committed: int, one_by_one: bool) -> tuple[DraftToken, ...]:
    """The draft's tokens with their statuses.

    ``committed`` is how many tokens the round appended. ``one_by_one`` says whether each guess was tested against
    p / q; only then its overlap is the chance that it is kept. Where EOS or a stop string ends the text inside the
    draft, the guesses after it count as discarded.
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
                overlap=seen.overlap[i] if seen.overlap and one_by_one else None,
            )
        )
    return tuple(tokens)


def _require_numbers(whose: str, values: Iterable[float]) -> None:
    """Refuse NaN and infinity. Nothing can be compared with them or drawn from them, and a call would not notice."""
    if not all(map(math.isfinite, values)):
        raise NotNumbers(whose)


def _row(rows: torch.Tensor, at: torch.Tensor, waits: bool) -> torch.Tensor:
    """The row (1, V) of the token that the target added. A draft has none after a full acceptance: its last row."""
    last = len(rows) - 1
    if waits:
        return rows.index_select(0, at.clamp(max=last))
    n = min(int(at), last)  # a view copies nothing
    return rows[n : n + 1]


def _of(rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The value of ``ids[i]`` in row i, (n,)."""
    return rows.gather(1, ids[:, None])[:, 0]


def _to_host(gathered: RoundTensors) -> dict[str, Any]:
    """Every part as a number or as lists of numbers, in one transfer."""
    parts, joined = gathered
    if joined is None:
        return {name: part.tolist() for name, part in parts.items()}
    host = torch.empty(joined.shape, pin_memory=joined.device.type == "cuda")
    host.copy_(joined)
    pieces = host.split([part.numel() for part in parts.values()])
    named = zip(parts.items(), pieces, strict=True)
    return {name: piece.view(part.shape).to(part.dtype).tolist() for (name, part), piece in named}


def _table(tokens: list[int], values: list[float]) -> tuple[tuple[int, float], ...]:
    """Token ids with their probabilities; what a filter set to zero is not shown."""
    return tuple(pair for pair in zip(tokens, values, strict=True) if pair[1] > 0)
