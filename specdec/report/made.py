"""Says what figures come from: pair, machine, versions, day and settings, so that a file explains itself."""

from __future__ import annotations

from typing import Any

from specdec.measure.plan import Plan
from specdec.measure.results import About
from specdec.report import words
from specdec.report.origin import date, day


def made(about: About, plan: Plan) -> dict[str, str]:
    """The same for a person to read, by name."""
    return {
        "Pair": words.pair_line(about["pair"]),
        **words.head(about["pair"]),
        "Machine": words.hardware(about["machine"]),
        "Passes": words.passes(about["pair"]),
        "Engine": words.engine(about["pair"]),
        "Versions": ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        "Date": f"{day(about)} (UTC)",
        "Prompts": words.prompts(plan.chosen, len(plan.prompts)),
        "Settings": settings(plan),
    }


def settings(plan: Plan) -> str:
    """All settings except the prompts."""
    params = plan.params
    sampling = " (greedy)" if params.greedy else f", seed {params.seed}" if params.seed is not None else ""
    found = [f"{params.max_new_tokens} new tokens per prompt", words.runs(plan.runs)]
    found.append(f"temperature {params.temperature:g}{sampling}")
    if gammas := _gammas(plan):
        found.append(f"\u03b3 {words.lengths(gammas)}")
    return ", ".join(found)


def columns(about: About, plan: Plan) -> dict[str, Any]:
    """The same as plain values, one for each column, for tables whose rows must explain themselves."""
    machine = about["machine"]
    return {
        "pair": words.pair_line(about["pair"]),
        **{name: machine.get(name) for name in ("device", "cpu", "gpu")},
        **about["versions"],
        "date": f"{date(about):%Y-%m-%d}",
        "prompt_set": plan.chosen.name,
        "prompts": len(plan.prompts),
        "first_a_category": plan.chosen.first,
        "chat": plan.chosen.chat,
        "new_tokens": plan.params.max_new_tokens,
        "planned_runs": plan.runs,
        "temperature": plan.params.temperature,
        "seed": plan.params.seed,
        "gammas": " ".join(map(str, _gammas(plan))),
    }


def _gammas(plan: Plan) -> list[Any]:
    """Every draft length of the plan, numbers first."""
    found = {gamma for _, gamma in plan.entrants if gamma is not None}
    return sorted(found, key=lambda gamma: (not isinstance(gamma, int), gamma if isinstance(gamma, int) else 0))
