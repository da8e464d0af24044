"""Folds the times of batched passes with a pair's acceptance: at which load would speculation pay? Needs no torch.

All B sequences advance together. A round of gamma guesses takes gamma draft passes over B x 1 tokens and a target pass
over B x (gamma + 1). Its gain over plain decoding, which takes a target pass over B x 1 tokens for each token, is

    tokens a round x target(B, 1) / (gamma draft(B, 1) + target(B, gamma + 1))

The passes are measured, and the gain is computed. Nothing else of a round costs time here: choosing tokens, scheduling,
and that sequences of one batch keep different numbers of guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.measure.metrics import Metrics

TRANSFORMERS, LEAN, GRAPH = PASSES = ("transformers", "lean", "graph")  # the kinds of passes that can be timed


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of passes over ``batch`` sequences, each with ``context`` cached tokens.

    ``target`` by the tokens of each sequence that a pass reads, 1 to gamma + 1; ``draft`` over one token of each.
    Measured ones have a value for each run, all lists alike long; the least possible ones of a machine have a single
    value. ``passes`` is one of ``PASSES``.
    """

    context: int
    batch: int
    target: Mapping[int, Sequence[float]]
    draft: Sequence[float]
    passes: str = TRANSFORMERS


def kept_by_place(recorded: Metrics) -> list[float]:
    """For each place of a draft, the share of the guesses tested there that were kept."""
    return [kept / tested for kept, tested in zip(recorded.kept_at, recorded.tested_at, strict=True)]


def tokens_a_round(kept: Sequence[float], gamma: int) -> float:
    """Expected tokens of a round of ``gamma`` guesses, the target's own included.

    A guess is kept if all before it are. A place that was never tested counts as never kept.
    """
    tokens, reached = 1.0, 1.0
    for share in kept[:gamma]:
        reached *= share
        tokens += reached
    return tokens


def load_gains(times: PassTimes, kept: Sequence[float], gamma: int) -> list[float]:
    """The computed gain of ``gamma`` guesses over plain decoding at the same load, a factor for each run."""
    tokens = tokens_a_round(kept, gamma)
    return [
        tokens * plain / (gamma * draft + check)
        for plain, draft, check in zip(times.target[1], times.draft, times.target[gamma + 1], strict=True)
    ]
