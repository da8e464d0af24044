"""The measured terms of a speculative lane's gain, and what each costs a token (Leviathan et al. 2211.17192).

All seconds are means over the tokens after the first. The terms need our own loop at gamma 0 beside the speculative
lane: only then is the engine's share told apart from speculation's, and a target pass over one token measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.closed_forms import expected_speedup
from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.metrics import Metrics
from specdec.measure.summary import Summary, find

SOME = 0.7  # guesses made / gamma a round: below it drafts are too short for the closed form


@dataclass(frozen=True)
class Terms:
    """What the gain is made of; shares and factors are plain numbers.

    alpha          guesses kept / guesses tested
    cost           c: seconds of a draft pass / seconds of a target pass over one token
    growth         v: seconds of a target pass over a round's rows / over one
    tokens         tokens a round wrote; ``whole``: of rounds that neither EOS nor the length cut
    drafted        guesses made / gamma a round: below 1 where drafts were cut short, or nothing was there to copy
    overhead       share of the lane's time outside drafting and checking
    predicted      gain over our loop at gamma 0 by the closed form of alpha, c and v; None where drafts were too short
    measured       gain over our loop at gamma 0
    engine         our loop at gamma 0 against plain ``generate``
    steps          seconds a token, from plain ``generate`` to speculative, each with its name; they add up exactly
    """

    gamma: int | str
    alpha: float
    cost: float
    growth: float
    tokens: float
    whole: float
    drafted: float
    overhead: float
    predicted: float | None
    measured: float
    engine: float
    steps: tuple[tuple[str, float], ...]


def terms(plain: Metrics, loop: Metrics, lane: Metrics, gamma: int | str) -> Terms | None:
    """The terms of one speculative lane; None where it drafted nothing or wrote too little to tell."""
    sides = (plain, loop, lane)
    if not lane.drafted or lane.alpha is None or not all(m.tokens_per_second and m.target_passes for m in sides):
        return None
    if not loop.verify_seconds or lane.verify_seconds is None or lane.draft_seconds is None:
        return None
    single = loop.verify_seconds / loop.target_passes
    verify, draft = (part / lane.target_passes for part in (lane.verify_seconds, lane.draft_seconds))
    tokens = lane.decode_tokens / lane.target_passes
    base, alone, spent = (m.seconds_per_token for m in sides)
    rest, rest_alone = spent * tokens - verify - draft, alone - single
    cost, growth = lane.draft_seconds / lane.drafted / single, verify / single
    steps = (
        ("Plain generate", base),
        ("Engine", alone - base),
        ("Fewer target passes", alone / tokens - alone),
        ("Drafting", draft / tokens),
        ("Checking more tokens a pass", (verify - single) / tokens),
        ("Other overhead", (rest - rest_alone) / tokens),
    )
    share = lane.drafted / (gamma * lane.target_passes) if isinstance(gamma, int) else 0.0
    return Terms(
        gamma=gamma,
        alpha=lane.alpha,
        cost=cost,
        growth=growth,
        tokens=tokens,
        whole=lane.mean_acceptance_length or tokens,
        drafted=share,
        overhead=rest / (spent * tokens),
        # The form counts on a full draft every round; prompt lookup often has none.
        predicted=expected_speedup(lane.alpha, gamma, cost, growth) if share > SOME else None,
        measured=alone / spent,
        engine=base / alone,
        steps=steps,
    )


def terms_of(summaries: Sequence[Summary], lane: Summary) -> Terms | None:
    """The terms of one lane of a sweep or a benchmark, from the middle run of each prompt."""
    plain, loop = find(summaries, BASELINE), find(summaries, LOOP)
    if not plain or not loop or lane.lane != LOOP.lane or lane.entrant == LOOP:
        return None
    return terms(plain.typical, loop.typical, lane.typical, lane.gamma)
