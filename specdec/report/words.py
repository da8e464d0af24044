"""Numbers and names as a person reads them. The figures come from ``specdec.measure.metrics``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median
from typing import Any

# Every figure that is shown, with what it means and its unit.
DEFINITIONS = {
    "speed-up": "Plain seconds / this lane's seconds, a token, over the tokens after the first. A factor.",
    "tokens/s": "Tokens written after the first one / seconds from the first token to the last.",
    "acceptance": "Guesses kept / guesses tested. A guess behind the first miss was never tested and does not count.",
    "tokens a pass": "Tokens written a pass of the target, its own correction or bonus token counted. The first token "
    "and rounds cut short by the end are left out.",
    "same": "Tokens of the two texts that are equal, counted from the start to the first difference.",
    "written": "Tokens each lane wrote. When sampling, equal texts are not to be expected.",
    "first token": "Seconds from the call to the first token: the prompt is read, by the draft too where there is one.",
    "with the prompt": "The speed-up with the time to the first token counted in.",
    "saved": "The share of the plain lane's seconds after its first token that was saved.",
    "drafted and kept": "Guesses kept / all guesses, those never tested included.",
    "draft cost": "Seconds a guess / plain seconds a token. At 1 or more no draft length can pay.",
    "round cost": "Seconds a round / plain seconds a token: so many tokens a round must write to break even.",
    "cost coefficient": "Seconds of a draft pass / seconds of a target pass over one token (our loop at \u03b3 0).",
    "verify growth": "Seconds of a target pass over a round's tokens / over one token. The papers take it for 1.",
    "loop overhead": "The share of a round's time that is neither drafting nor checking.",
    "predicted": "(1 - \u03b1^(\u03b3+1)) / ((1 - \u03b1)(\u03b3 c + v)), against our loop at \u03b3 0. "
    "Leviathan et al., Theorem 3.8, with v measured.",
    "measured": "Seconds a token of our loop at \u03b3 0 / of the speculative lane.",
    "engine": "Seconds a token of plain generate / of our loop at \u03b3 0. It has nothing to do with speculation.",
    "break-even": "The acceptance rate above which some draft length pays if checking more tokens cost nothing: c, by "
    "Corollary 3.9.",
    "outside": "The share of the speculative lane's time, after its first token, not spent inside the models' passes.",
}


def factor(value: float) -> str:
    """A speed-up as a bare number, with more digits where it is close to 1: ``1.9``, ``1.03``, ``12``."""
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 1.2 else f"{value:.1f}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share with its % sign; a browser keeps the two on one line."""
    # Adding zero takes the sign from what rounds to none.
    return "\u2013" if share is None else f"{round(share * 100, digits) + 0.0:.{digits}f}\u00a0%"


def number(value: float | None, digits: int = 1) -> str:
    return "\u2013" if value is None else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Tokens a second: whole numbers, one digit more where they are small."""
    return number(value, 0 if value is None or value >= 20 else 1)


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """A median with the lowest and highest value, or the one value there is."""
    if not values:
        return "\u2013"
    if len({show(value) for value in values}) == 1:
        return show(values[0])
    return f"{show(median(values))} ({show(min(values))}\u2013{show(max(values))})"


def times(factors: Sequence[float]) -> str:
    """Speed-ups: the median with the lowest and highest."""
    text = spread(factors, "{:.2f}".format)
    return text.replace(" (", "x (", 1) if "(" in text else text + "x" * bool(factors)


def lengths(gammas: Sequence[int | str]) -> str:
    """One or more draft lengths in rising order, neighbours as a range: ``2, 4–8 and auto``."""
    numbers = sorted(gamma for gamma in gammas if isinstance(gamma, int))
    parts = []
    for _, row in groupby(enumerate(numbers), lambda at: at[1] - at[0]):
        (_, first), *rest = row
        parts.append(f"{first}\u2013{rest[-1][1]}" if rest else str(first))
    parts += [gamma for gamma in gammas if not isinstance(gamma, int)]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def seconds(value: float) -> str:
    return f"{value:.2f}\u00a0s" if value < 10 else f"{value:.1f}\u00a0s"


def pair_line(facts: dict[str, Any]) -> str:
    """A pair in one line: names, layers, machine."""
    target, draft = (_model(facts, role) for role in ("target", "draft"))
    models = f"{target} \u2190 {draft}" if draft else f"{target}, no draft"
    if facts.get("name"):
        models = f"{facts['name']}, {models}"
    bits, compiled = facts.get("target_bits"), "compiled" if facts.get("compiled") else ""
    parts = [models, machine(facts), facts.get("target_dtype", ""), f"{bits} bits" if bits else "", compiled]
    return " \u00b7 ".join(filter(None, parts))


def machine(facts: dict[str, Any]) -> str:
    device = facts.get("device", "cpu")
    return device.upper() if device in {"cpu", "cuda"} else device


def _model(facts: dict[str, Any], role: str) -> str | None:
    name, layers = facts.get(role), facts.get(f"{role}_layers")
    if not name:
        return None
    # The folders of the embedded pair are called target and draft: their layers say more than their names.
    if facts.get("name") and layers:
        name = role
    return f"{name} ({layers} layer{'s' * (layers != 1)})" if layers else name
