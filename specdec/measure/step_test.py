"""Tests each step of sampled runs of our loop by the probabilities that their events record.

It relies on these records, and checks them: p is computed again, from the target's own forward pass along the written
text and with the logits processors of transformers' ``generate``. The test in ``losslessness.py`` needs no record and
sees large faults only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import torch
from transformers import GenerationConfig

from specdec.engine.observe import TOP
from specdec.engine.request import masks_of
from specdec.errors import InvalidInput
from specdec.events import DraftToken, Event, Round, Started
from specdec.forward.hf import HFForward
from specdec.forward.hf_private import logits_processors
from specdec.measure.detectable import LEAST_EXPECTED, LEVEL, Draw, chi_square_tail, fit
from specdec.measure.result import started_of, written_ids
from specdec.models.pair import Pair

Kind = Literal["target", "rule", "residual", "kept", "guesses", "corrections", "tokens"]
FIGURES: tuple[Kind, ...] = ("target", "rule", "residual")
CHANCES: tuple[Kind, ...] = ("kept", "guesses", "corrections", "tokens")
FORMULA = 1e-4  # the largest gap between recorded figures that follow from each other by a formula in float32
ROUNDING = 0.002  # the mean gap between the target's probabilities computed in another order, in float32
COARSE_ROUNDING = 0.05  # the same in half precision and with quantised weights
RANKS = (1, 2, 4, 8)  # the last ranks of the classes of tokens; a fifth class has all further tokens


@dataclass(frozen=True, slots=True)
class StepCheck:
    """One check. ``places`` counts the places of the text where it looked.

    ``gap`` is how far recorded figures are from what they must be, and ``allowed`` what rounding explains; both are
    None for a check of chance. ``p_value`` is None for a check of figures.
    """

    kind: Kind
    places: int
    gap: float | None = None
    allowed: float | None = None
    p_value: float | None = None

    @property
    def differs(self) -> bool:
        if self.p_value is not None:
            return self.p_value < LEVEL / len(CHANCES)
        return self.gap is not None and self.allowed is not None and self.gap > self.allowed


@dataclass(frozen=True, slots=True)
class StepFindings:
    """The checks of ``tokens`` tokens in ``texts`` texts; all checks together fail a lossless lane once in 1,000 times.

    ``detectable`` is the bias that the check of all tokens finds in at least 9 of 10 such tests: the mean total
    variation of a token's distribution over its classes (see ``RANKS``); None where it finds none.
    """

    tokens: int
    texts: int
    checks: tuple[StepCheck, ...]
    detectable: float | None

    @property
    def differs(self) -> bool:
        return any(check.differs for check in self.checks)


@dataclass
class _Seen:
    """What the places of all texts say: gaps between figures, and the chances of classes with the class drawn."""

    gaps: dict[Kind, list[float]] = field(default_factory=lambda: defaultdict(list))
    draws: dict[Kind, list[Draw]] = field(default_factory=lambda: defaultdict(list))
    surplus: float = 0.0  # the sum of accept_prob - overlap
    variance: float = 0.0  # its largest possible variance, if each guess was drawn from its q


def step_test(pair: Pair, runs: Sequence[Sequence[Event]]) -> StepFindings:
    """Test sampled ``runs`` of a lane of our loop. Each has its ``Started``, and need not be finished.

    Each run costs a forward pass of the target along its text. Raises ``InvalidInput`` for greedy runs, for lanes that
    do not record their probabilities, and for another acceptance than "lossless".
    """
    seen = _Seen()
    for events in runs:
        _require_recorded(events)
        rows = _target_rows(pair, started_of(events), written_ids(events))
        for event in events:
            if isinstance(event, Round):
                _look(seen, event, [next(rows) for _ in event.committed_ids])
    coarse = pair.target.dtype != torch.float32 or getattr(pair.target, "is_quantized", False)
    target, rule, residual = (seen.gaps[kind] for kind in FIGURES)
    fits = {kind: fit(seen.draws[kind], LEVEL / len(CHANCES)) for kind in ("kept", "corrections", "tokens")}
    guesses = chi_square_tail(seen.surplus**2 / max(seen.variance, LEAST_EXPECTED), 1)
    checks = (
        StepCheck("target", len(target), fmean(target or [0.0]), COARSE_ROUNDING if coarse else ROUNDING),
        StepCheck("rule", len(rule), max(rule, default=0.0), FORMULA),
        StepCheck("residual", len(residual), max(residual, default=0.0), FORMULA),
        StepCheck("kept", len(seen.draws["kept"]), p_value=fits["kept"].p_value),
        StepCheck("guesses", len(seen.draws["kept"]), p_value=guesses),
        StepCheck("corrections", len(seen.draws["corrections"]), p_value=fits["corrections"].p_value),
        StepCheck("tokens", len(seen.draws["tokens"]), p_value=fits["tokens"].p_value),
    )
    return StepFindings(len(seen.draws["tokens"]), len(runs), checks, fits["tokens"].detectable)


def records_steps(events: Sequence[Event]) -> bool:
    """Whether the rounds so far record their guesses with probabilities."""
    drafts = [event.draft for event in events if isinstance(event, Round)]
    return all(draft is not None and all(token.draft_prob is not None for token in draft) for draft in drafts)


def _require_recorded(events: Sequence[Event]) -> None:
    started = started_of(events)
    if started.params.greedy:
        raise InvalidInput("The run is greedy, so there is no distribution to test; give a run with a temperature.")
    if started.lane == "generate" or not records_steps(events):
        raise InvalidInput(f"The lane {started.lane} records no probabilities; give a run of a lane of specdec.")
    if started.acceptance != "lossless":
        raise InvalidInput(f'Acceptance was {started.acceptance}; this test has the rules of "lossless" acceptance.')


@torch.inference_mode()
def _target_rows(pair: Pair, started: Started, written: Sequence[int]) -> Iterator[torch.Tensor]:
    """The target's distribution (V,) at each written token."""
    params, prompt = started.params, torch.tensor(started.prompt_ids, device=pair.device)
    ids = torch.cat([prompt, prompt.new_tensor(written)])
    passes, start = HFForward(pair.target), len(prompt)
    logits = [passes.logits(prompt, 0, 1)]  # by itself, as in ``generate``
    if len(written) > 1:
        logits.append(passes.logits(ids[start:-1], start, None))
    config = GenerationConfig(
        do_sample=True, temperature=float(params.temperature), top_k=params.top_k, top_p=float(params.top_p),
        min_p=params.min_p or None, repetition_penalty=float(params.repetition_penalty),
    )  # fmt: skip
    processors = logits_processors(pair.target, config, start, pair.device)
    masks = masks_of(pair, params, start)
    for end, row in enumerate(torch.cat(logits).float(), start=start):
        allowed = row[None] if masks is None else masks.apply(row[None], ids[:end].tolist())
        yield processors(ids[None, :end], allowed)[0].softmax(-1).cpu()


def _look(seen: _Seen, event: Round, rows: Sequence[torch.Tensor]) -> None:
    """Add a round. ``rows`` (V,) are the target's distributions at its tokens."""
    tested = [token for token in event.draft or () if token.status != "discarded"]
    for p, token in zip(rows, tested, strict=False):
        _look_at_guess(seen, token, float(p[token.token_id]))
    for p, token_id in zip(rows, event.committed_ids, strict=True):
        best = p.topk(min(RANKS[-1], len(p)))
        seen.draws["tokens"].append(
            _ranked(list(zip(best.indices.tolist(), best.values.tolist(), strict=True)), token_id)
        )
    if event.decision is None or event.token_id is None:
        return
    p_of, decision = dict(event.decision.p), event.decision
    seen.gaps["target"].append(max(abs(float(rows[-1][token_id]) - chance) for token_id, chance in p_of.items()))
    if decision.residual is None or decision.q is None:
        return
    seen.draws["corrections"].append(_ranked(decision.residual, event.token_id))
    left, q_of = 1 - (tested[-1].overlap or 0.0), dict(decision.q)
    unknown = min(q_of.values()) if len(q_of) >= TOP else 0.0  # q of a token that is not among those recorded, at most
    for token_id, chance in decision.residual:
        if token_id in p_of:
            most = max(0.0, p_of[token_id] - q_of.get(token_id, 0.0))
            least = max(0.0, p_of[token_id] - q_of.get(token_id, unknown))
            seen.gaps["residual"].append(max(0.0, least - chance * left, chance * left - most))


def _look_at_guess(seen: _Seen, token: DraftToken, target_prob: float) -> None:
    q, p, accept, overlap = token.draft_prob, token.target_prob, token.accept_prob, token.overlap
    if q is None or p is None or accept is None or overlap is None or token.draw is None:
        raise InvalidInput("A tested guess has no recorded probabilities; give a run of a lane of specdec.")
    kept = token.status == "accepted"
    seen.gaps["target"].append(abs(p - target_prob))
    seen.gaps["rule"].append(abs(accept - min(1.0, p / q)) if kept == (token.draw < accept) else 1.0)
    seen.draws["kept"].append(([accept, 1 - accept], 0 if kept else 1))
    overlap = min(overlap, 1.0)
    seen.surplus += accept - overlap
    seen.variance += overlap * (1 - overlap)


def _ranked(table: Sequence[tuple[int, float]], token_id: int) -> Draw:
    """The chance of each class of ``RANKS``, and the class of ``token_id``. ``table`` has the most likely tokens."""
    chances, drawn, start = [], len(RANKS), 0
    for number, end in enumerate(RANKS):
        chances.append(sum(chance for _, chance in table[start:end]))
        if token_id in (other for other, _ in table[start:end]):
            drawn = number
        start = end
    return [*chances, max(0.0, 1 - sum(chances))], drawn
