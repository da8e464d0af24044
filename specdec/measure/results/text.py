"""Writes the trials of a measurement as a text that can be read again, and continued. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json

from specdec.errors import InvalidInput
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.format import VERSION, About, results_line, trials_of

UNASKED = ("at", "chosen")  # of the first line, may differ: the same prompts can be chosen in another way


class ResultsText:
    """The trials of ``plan`` as JSON lines, after a first line that says what was measured: ``head``.

    ``about`` is the part of that line about pair, machine, versions and time.
    """

    def __init__(self, plan: Plan, head: dict[str, Any]):
        self.plan = plan
        self._order = {(run, item.name, *config): at for at, (run, item, config) in enumerate(plan.steps())}
        self._head = head

    @property
    def about(self) -> About:
        head = self._head
        return {"at": head["at"], "pair": head["pair"], "machine": head["machine"], "versions": head["versions"]}

    def write(self, known: Iterable[Trial]) -> str:
        """Write each trial once, in the plan's order."""
        by_key = {trial.key: trial for trial in known}
        ordered = sorted(by_key.values(), key=lambda trial: self._order[trial.key])
        return results_line({"results": self._head}) + "".join(map(trial_line, ordered))

    def read(self, text: str, name: str) -> list[Trial]:
        """Read the plan's trials from a text. A line that was cut short is dropped, and its trial runs again.

        The time at which the measurement began stays that of the text. Raises ``InvalidInput``, with the ``name`` of
        the text's file, if it belongs to another measurement.
        """
        head, *lines = text.splitlines() or [""]
        if not head:
            return []
        self._head["at"] = _same(name, head, from_json(results_line(self._head)))
        return trials_of(lines, self.plan, name)


def plan_head(about: About, plan: Plan) -> dict[str, Any]:
    """The first line: what two parts of one measurement must have in common, and the fields in ``UNASKED``."""
    # Without sampling, the drawn seed does not matter.
    params = asdict(plan.params) | ({"seed": None} if plan.params.greedy else {})
    asked = {"prompts": [asdict(item) for item in plan.prompts], "configs": plan.configs, "runs": plan.runs}
    return {"version": VERSION, **about} | asked | {"params": params, "chosen": asdict(plan.chosen)}


def _same(name: str, text: str, ours: dict[str, Any]) -> float:
    """When the measurement with this first line began. Raises ``InvalidInput`` if it is another measurement."""
    try:
        theirs = from_json(text)["results"]
        differing = [name for name in ours if name not in UNASKED and theirs.get(name) != ours[name]]
        if not differing:
            return float(theirs["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidInput(f"{name} has no results of this program. Name another file.") from None
    raise InvalidInput(f"{name} has results of another measurement ({', '.join(differing)} differ). Name another file.")


def trial_line(trial: Trial) -> str:
    return results_line(asdict(trial))
