"""Numbers and names as a person reads them. All figures come from ``specdec.metrics``; here they get their words."""

from __future__ import annotations

from typing import Any

LANE_NAMES = {"generate": "Plain", "speculative": "Speculative"}


def factor(value: float) -> str:
    """A speed-up as a bare number, with more digits where it is close to 1: ``1.9``, ``1.03``, ``12``."""
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 1.2 else f"{value:.1f}"


def percent(share: float | None) -> str:
    return "\u2013" if share is None else f"{share * 100:.0f} %"


def number(value: float | None, digits: int = 1) -> str:
    return "\u2013" if value is None else f"{value:.{digits}f}"


def rate(value: float | None) -> str:
    """Tokens a second: whole numbers, one digit more where they are small."""
    return number(value, 0 if value is None or value >= 20 else 1)


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def pair_line(facts: dict[str, Any]) -> str:
    """A pair in one line: names, layers, machine."""
    target, draft = (_model(facts, role) for role in ("target", "draft"))
    models = f"{target} \u2190 {draft}" if draft else f"{target}, no draft"
    if facts.get("name"):
        models = f"{facts['name']}, {models}"
    return " \u00b7 ".join([models, machine(facts), facts.get("target_dtype", "")]).strip(" \u00b7")


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
