"""The settings of a race that a visitor asks for: a value, which a link and a recording name in texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from specdec.engine.policy import gamma_of
from specdec.errors import BadSetting, InvalidInput, SpecdecError, quoted, with_names
from specdec.events import Event, SamplingParams
from specdec.lanes.race import race
from specdec.lanes.table import DEFAULT_KEYS, race_configs, turned
from specdec.measure.prompts import message_of
from specdec.measure.task import Task
from specdec.report.link_settings import DEFAULTS, GAMMA, NEW_TOKENS, PARAMS, further_keys, grammar_in, link_settings
from specdec.ui.fields import LABELS, parsed
from specdec.ui.jobs.limits import Limits

REPEATS = 5


@dataclass(frozen=True, slots=True)
class RaceSettings:
    """A race that a visitor asks for. The engine checks the values."""

    prompt: str
    gamma: int | str = GAMMA
    params: SamplingParams = SamplingParams(max_new_tokens=NEW_TOKENS)
    acceptance: str = "lossless"
    accept_top_k: int | None = None
    lanes: tuple[str, ...] = DEFAULT_KEYS  # of ``LANES``
    runs: int = 1
    until_clear: bool = False  # repeat a short race as ``report.verdict.another_run`` says
    chat: bool = False

    def again(self, made: int, seed: int | None) -> RaceSettings:
        """One more run after ``made`` ones, with their seed. Another lane is first in each."""
        return replace(self, lanes=turned(self.lanes, made), params=replace(self.params, seed=seed), runs=1)

    @property
    def message(self) -> str | list[dict[str, str]]:
        """The prompt for the engine."""
        return message_of(self.prompt, self.chat)

    @property
    def keys(self) -> list[str]:
        """The lanes that run, each once."""
        return list(race_configs(self.lanes, self.gamma))

    @property
    def task(self) -> Task[list[Event]]:
        """The race, for the device."""
        names = ("gamma", "params", "acceptance", "accept_top_k", "lanes", "runs")
        settings = {name: getattr(self, name) for name in names}
        return Task(partial(race, prompt=self.message, **settings), self.tokens)

    @property
    def tokens(self) -> int:
        """New tokens of all lanes and runs, at most."""
        return self.params.max_new_tokens * len(self.keys) * self.runs

    def settings(self) -> dict[str, Any]:
        """The settings for a link or a recording."""
        rule = self.acceptance, self.accept_top_k
        return link_settings(self.prompt, self.chat, self.gamma, self.params, *rule, self.lanes)


SWITCHES = {"block", "ignore_eos", "chat"}  # 0 or 1


def from_recording(settings: dict[str, Any], limits: Limits, runs: int | None = None) -> RaceSettings:
    """The race of a recording's settings; without ``runs`` until it is clear. Raises ``InvalidInput``."""
    values: dict[str, Any] = DEFAULTS | {"prompt": ""}
    for name, text in settings.items():
        try:
            values[name] = value_of(name, str(text), limits)
        except SpecdecError as error:
            raise InvalidInput(
                f"This run's {name} {quoted(text)} cannot be used here ({clause(error)}). Nothing ran."
            ) from error
    return from_values(values | {"lanes": values["lanes"].split(",")}, runs)


def value_of(name: str, text: str, limits: Limits) -> Any:
    """One value of a link, checked by the engine's own rules. Raises ``InvalidInput`` or what the engine raises."""
    if name == "prompt":
        return text
    if name in PARAMS:
        value = parsed(text, float if isinstance(DEFAULTS[name], float) else int)
        given: dict[str, Any] = {PARAMS[name]: value}
        SamplingParams(**given)
        if name == "tokens" and value > limits.new_tokens:
            raise InvalidInput(f"above {limits.new_tokens}")
        return exact(value) if name == "seed" else value
    if name == "gamma":
        return gamma_of(text)
    if name == "grammar":
        found = grammar_in(text)
        limits.take_grammar(found)
        return found
    if name == "lanes":
        if unknown := set(filter(None, text.split(","))) - set(further_keys()):
            raise InvalidInput(f"there is no lane {', '.join(sorted(unknown))}")
        return text
    if name not in DEFAULTS:
        raise InvalidInput("no such setting")
    if (value := parsed(text, int)) not in (0, 1) and name in SWITCHES:
        raise InvalidInput("neither 0 nor 1")
    if name == "accept_top_k" and value < 1:
        raise InvalidInput("below 1")
    return value


def from_values(values: dict[str, Any], runs: int | None = None) -> RaceSettings:
    """The settings of a race from values under the names of a link, with the lanes as a list.

    Without ``runs`` the race runs until it is clear.
    """
    kept = values["accept_top_k"]
    if kept is not None and values["block"]:
        raise InvalidInput("Block verification and lossy top-k acceptance exclude each other. Turn one of them off.")
    return RaceSettings(
        prompt=values["prompt"],
        gamma=values["gamma"],
        params=SamplingParams(
            **{field: values[name] for name, field in PARAMS.items()},
            ignore_eos=bool(values["ignore_eos"]),
            grammar=values["grammar"] or None,
        ),
        acceptance="top-k" if kept is not None else "block" if values["block"] else "lossless",
        accept_top_k=kept,
        lanes=(*DEFAULT_KEYS, *(lane for lane in further_keys() if lane in values["lanes"])),
        runs=runs or 1,
        until_clear=runs is None,
        chat=bool(values["chat"]),
    )


def clause(error: Exception) -> str:
    """The text of an error as a part of another sentence."""
    return with_names(error, LABELS).rstrip(".")


def exact(seed: Any) -> Any:
    """The seed if a browser keeps it exactly: browsers round whole numbers above 2^53."""
    if isinstance(seed, int) and seed > 2**53 - 1:
        raise BadSetting(
            f"seed is {seed}, above {2**53 - 1}, the largest whole number that a browser stores exactly. "
            "Use a smaller seed."
        )
    return seed
