"""Explains the outcome of a lane: a paragraph, its figures, and the steps from plain ``generate`` to it."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.closed_forms import expected_tokens
from specdec.report import numbers, sentences
from specdec.report.definitions import make_figure
from specdec.report.judge import FULL, Judgement
from specdec.report.verdict import Figure, Why

NOTICEABLE = 0.03  # share of time; smaller terms are not mentioned
SHORT = 0.95  # guesses per round / gamma; below this, drafts were noticeably short


def of_race(found: Judgement, causes: Sequence[str]) -> Why:
    """The explanation of a race: a title, a paragraph, what limits the lane and, if our loop ran, figures and steps.

    Where costs are not known, as on servers or of a text that is too short, it is ``causes`` alone.
    """
    if found.gain is None or not found.guesses or found.c is None or found.tokens is None:
        return {"title": sentences.WHY, "text": "", "figures": [], "steps": [], "causes": list(causes)}
    return {
        "causes": list(causes),
        "title": sentences.why_title(found),
        "text": why_paragraph(found),
        "figures": why_figures(found) if found.split else [],
        "steps": list(found.steps) if found.split else [],
    }


def why_paragraph(found: Judgement, at: str = sentences.AT) -> str:
    """The terms of the gain in words, and what may help if speculation loses; empty if nothing was drafted.

    ``at``: the words before the draft length; they say of which run the terms are.
    """
    if not found.guesses or found.c is None or found.tokens is None:
        return ""
    said = _terms(found, at) if found.split else [sentences.fill(sentences.WHY_UNSPLIT, found)]
    return " ".join(filter(None, [*said, sentences.advice(found)]))


def _terms(found: Judgement, at: str) -> list[str]:
    needs = sentences.WHY_REFUTED if found.refutes_theory else sentences.WHY_NEEDS
    said = [sentences.fill(sentences.WHY_TERMS, found, at=at, needs=sentences.fill(needs[found.can_break_even], found))]
    gain = sentences.fill(sentences.WHY_GAIN, found)
    if found.predicted is None or found.speculation is None:
        said.append(f"{gain}.")
    else:
        off = found.speculation / found.predicted
        difference = _difference(found, faster=off > 1) if abs(off - 1) >= NOTICEABLE else ""
        said.append(f"{gain}; {sentences.fill(sentences.WHY_THEORY, found)}.{difference}")
    if found.engine is not None and abs(found.engine - 1) >= NOTICEABLE:
        said.append(sentences.fill(sentences.WHY_ENGINE, found))
    return said


def _difference(found: Judgement, faster: bool) -> str:
    """What the closed form does not consider, of that which makes speculation ``faster``, or slower, than it."""
    gamma, alpha, tokens = found.gamma, found.alpha, found.tokens
    causes = []
    if isinstance(gamma, int) and found.guesses is not None and FULL * gamma <= found.guesses < SHORT * gamma:
        causes.append("short")
    if isinstance(gamma, int) and alpha is not None and tokens is not None:
        more = tokens / expected_tokens(alpha, gamma)
        causes += ["uneven"] * (abs(more - 1) >= NOTICEABLE and (more > 1) == faster)
    causes += ["overhead"] * ((found.overhead or 0.0) >= NOTICEABLE and not faster)
    listed = "; ".join(sentences.fill(sentences.WHY_OFF[cause], found) for cause in causes or ["unknown"])
    return f" The difference: {listed}."


def why_figures(found: Judgement) -> list[Figure]:
    """The terms as values with definitions."""
    alpha, needed = sentences.kept_and_needed(found)
    if found.can_break_even is False:
        needed = sentences.NONE_IS_ENOUGH
    values = {
        "cost coefficient": numbers.number(found.c, 2),
        "verify growth": numbers.number(found.v, 2),
        "acceptance": alpha,
        "break-even": needed,
        "loop overhead": numbers.percent(found.overhead),
        "predicted": numbers.times_or_none(found.predicted),
        "measured": sentences.gain_share_times(found, found.speculation),
        "engine": sentences.gain_share_times(found, found.engine),
    }
    return [make_figure(value, name) for name, value in values.items()]
